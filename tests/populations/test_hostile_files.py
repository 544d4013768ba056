"""Files that are damaged, no files, waited on for ever, or of formats that are not read."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest
from walked_users import same_users

from fedhist.base.errors import PopulationError
from fedhist.users.tables import TableFormat
from simulations.populations import population
from simulations.runs.convert import convert


def packed(kind: str, body: bytes) -> bytes:
    return gzip.compress(body) if kind == "gz" else bytes(pa.compress(body, "zstd", asbytes=True))


def load(path: Path, **options: object) -> int:
    spec = population("events", path=str(path), user="user", item="item", **options)
    return len(spec.load().users)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_damaged_archive_says_so(kind: str, tmp_path: Path) -> None:
    cut = tmp_path / f"events.csv.{kind}"
    cut.write_bytes(packed(kind, b"user,item\n" + os.urandom(5000))[:-200])
    with pytest.raises(PopulationError, match=r"events\.csv\.(gz|zst)"):
        load(cut)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_text_is_unpacked_as_it_is_read(kind: str, tmp_path: Path) -> None:
    text = "name;x\n" + "".join(f"sören {k % 7};{k / 8}\n" for k in range(400))
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    (tmp_path / f"t.csv.{kind}").write_bytes(packed(kind, text.encode("latin-1")))
    more = {"user": "name", "separator": ";", "encoding": "latin-1", "value": "x"}
    plain, small = (
        population("samples", path=tmp_path / name, **more).load().users
        for name in ("t.csv", f"t.csv.{kind}")
    )
    same_users(plain, small)
    form = TableFormat(separator=";", encoding="latin-1")
    paths = (str(tmp_path / f"t.csv.{kind}"),)
    convert(paths, tmp_path / "out", user="name", value=("x",), form=form)
    same_users(population("shards", path=tmp_path / "out").load().users, plain)


def test_what_is_no_file_is_named_as_what_it_is(tmp_path: Path) -> None:
    """A pipe would be waited on for ever."""
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    for name, what in (("pipe.csv", "a pipe"), ("folder.csv", "a folder")):
        with pytest.raises(PopulationError, match=f"{name} is {what}, not a file"):
            load(tmp_path / name)
    with pytest.raises(PopulationError, match="/dev/null is no regular file"):
        load(Path("/dev/null"))


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
