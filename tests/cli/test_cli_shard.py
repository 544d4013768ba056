"""``fedhist shard`` and a run on what it makes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulations.cli.main import cli
from simulations.populations import tables

EVENTS = "user,item\n" + "".join(f"u{k % 40},item {k % 7}\n" for k in range(400))


def test_shards_of_a_file_and_a_run_on_them(tmp_path: Path) -> None:
    """The run's estimate is that of the file itself."""
    (tmp_path / "events.csv").write_text(EVENTS + "u1,\n")
    runner = CliRunner()
    table = ["--user", "user", "--item", "item"]
    call = ["shard", str(tmp_path / "events.csv"), *table, "--out", str(tmp_path / "shards")]
    refused = runner.invoke(cli, call)
    assert refused.exit_code != 0
    assert "row 401: missing item (user 'u1'); --skip-bad-rows drops" in str(refused.exception)
    made = runner.invoke(cli, [*call, "--shards", "3", "--skip-bad-rows"], catch_exceptions=False)
    assert "40 users in 3 shards, 7 items" in made.stdout
    assert "left out: 1 rows, missing item (NOT PRIVATE)" in made.stdout
    (tmp_path / "whole.csv").write_text(EVENTS)
    estimates = []
    for name, population in [
        ("a", ["--population.kind", "shards", "--population.path", str(tmp_path / "shards")]),
        ("b", ["--data", str(tmp_path / "whole.csv"), *table]),
    ]:
        config = tmp_path / f"{name}.toml"
        config.write_text(
            '[protocol]\nname = "bounded-histogram"\nepsilon = 1.0\nclip = 5\n'
            '[population]\nkind = "zipf"\nn_users = 9\n[run]\nruntime = "inline"\nseed = 3\n'
        )
        run = ["run", str(config), "--population.top", "7", "--out", str(tmp_path / name)]
        if name == "a":
            text = config.read_text().replace('kind = "zipf"\nn_users = 9', "")
            config.write_text(text)
        result = runner.invoke(cli, [*run, *population], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        estimates.append((tmp_path / name / "estimate.csv").read_text())
    assert estimates[0] == estimates[1]


def test_what_a_file_takes_is_named_as_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what may be wrong with one is printed, and is in the document."""
    monkeypatch.setattr(tables, "SMALL", 1 << 10)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"who,what\n" + b"ann,tea\n" * 9000))
    call = ["shard", str(tmp_path / "t.csv.gz"), "--out", str(tmp_path / "out")]
    call += ["--user", "0", "--item", "1"]
    refused = CliRunner().invoke(cli, call)
    assert "give a higher --max-ratio if it is meant to" in str(refused.exception)
    call += ["--max-ratio", "10000"]
    made = CliRunner().invoke(cli, call, catch_exceptions=False)
    assert "note: the columns are given by number" in made.stdout
    assert "give --no-header if it is data" in made.stdout
    made = CliRunner().invoke(cli, [*call, "--json"], catch_exceptions=False)
    assert "--no-header" in json.loads(made.stdout)["NOT PRIVATE"]["warnings"][0]


def test_a_file_without_a_column_of_users(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["shard", "x.csv", "--out", str(tmp_path / "o")])
    assert "--user" in str(result.exception)
