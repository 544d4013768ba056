"""A messy file: the error says the way out, and what is dropped is printed."""

from __future__ import annotations

import os
from pathlib import Path

from commands import Command

CONFIG = """
[run]
runtime = "inline"
nodes = 2
seed = 1

[protocol]
name = "bounded-histogram"
epsilon = 1.0
delta = 1e-6
clip = 5.0

[population]
kind = "events"
path = "events.csv"
user = "who"
item = "what"
domain = "domain.txt"
"""


def write(folder: Path, text: str) -> None:
    (folder / "messy.toml").write_text(CONFIG)
    (folder / "events.csv").write_text(text)
    (folder / "domain.txt").write_text("tea\nmate\n")


def test_bad_rows_are_named_with_the_way_out_and_counted_when_dropped(
    fedhist: Command, tmp_path: Path
) -> None:
    rows = [f"u{i},{'tea' if i % 3 else 'tea,x'}" for i in range(30)] + ["u0,"]
    write(tmp_path, "\n".join(["who,what", *rows]) + "\n")
    answer = fedhist("run", "messy.toml")
    assert answer.status == 2
    assert "row 1: too many fields" in answer.err
    answer = fedhist("run", "messy.toml", "--set", "population.skip_bad_rows=true")
    assert answer.status == 0
    assert "the loader: 10 x too many fields, 1 x missing item" in answer.out


def test_places_whose_names_are_not_utf8(fedhist: Command, tmp_path: Path) -> None:
    """Results are written into them; a file of data is refused by its name."""
    odd = os.fsdecode(b"caf\xe9")
    write(tmp_path, "who,what\nu1,tea\nu2,mate\n")
    answer = fedhist("run", "messy.toml", "--out", odd)
    assert answer.status == 0, answer.err
    assert (tmp_path / odd / "estimate.parquet").is_file()
    (tmp_path / f"{odd}.csv").write_text("who,what\nu1,tea\n")
    path = f"population.path={odd}.csv"
    answer = fedhist("run", "messy.toml", "--set", path)
    assert answer.status == 2
    assert "is not UTF-8" in answer.err
