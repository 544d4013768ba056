"""Files of formats that are not read say which they are, and what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhist.base.errors import PopulationError
from simulations.populations import population

TEXT = "user,item\nann,tea\nbob,rye\n"


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("a.csv", TEXT.replace("\n", "\r").encode(), "CR alone"),
        ("a.csv", TEXT.encode("utf-16"), 'encoding = "utf-16"'),
        ("a.jsonl", b'{"user": "ann", "item": "tea"}\n', "JSON"),
        ("a.csv", b'  [{"user": "ann", "item": "tea"}]\n', "JSON"),
        ("a.arrow", b"ARROW1\0\0", "Arrow"),
        ("a.csv", b"PAR1\x15\x04", "name it .parquet"),
        ("a.xlsx", b"PK\x03\x04", "spreadsheet"),
        ("a.parquet", TEXT.encode(), "not a Parquet file"),
    ],
)
def test_other_formats_are_named(tmp_path: Path, name: str, body: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(body)
    with pytest.raises(PopulationError, match=told):
        population("events", path=tmp_path / name, user="user", item="item").load()
