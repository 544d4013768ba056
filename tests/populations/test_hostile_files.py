"""Files that would fill the memory, wait for ever or are none."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest
from walked_users import same_users

from fedhist.base.errors import PopulationError
from simulations.populations import population
from simulations.populations import tables as module
from simulations.populations.tables import TableFormat
from simulations.runs.convert import convert


def packed(kind: str, body: bytes) -> bytes:
    return gzip.compress(body) if kind == "gz" else bytes(pa.compress(body, "zstd", asbytes=True))


def load(path: Path, **options: object) -> int:
    spec = population("events", path=str(path), user="user", item="item", **options)
    return len(spec.load().users)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_bomb_is_refused_before_it_fills_the_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 MiB of the same row in 4 KiB or less; the least size is made small for it."""
    monkeypatch.setattr(module, "SMALL", 1 << 16)
    bomb = tmp_path / f"events.csv.{kind}"
    bomb.write_bytes(packed(kind, b"user,item\n" + b"ann,tea\n" * (1 << 19)))
    size = bomb.stat().st_size
    assert size * 200 < 1 << 22
    with pytest.raises(PopulationError, match=rf"{size} bytes unpack to more than .*max_ratio"):
        load(bomb)
    assert load(bomb, max_ratio=10_000) == 1
    usual = tmp_path / f"usual.csv.{kind}"
    rows = b"".join(b"user-%d,item-%d\n" % (i, i % 97) for i in range(50_000))
    usual.write_bytes(packed(kind, b"user,item\n" + rows))
    assert load(usual) == 50_000


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_damaged_archive_says_so(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SMALL", 1 << 10)
    cut = tmp_path / f"events.csv.{kind}"
    cut.write_bytes(packed(kind, b"user,item\n" + os.urandom(5000))[:-200])
    with pytest.raises(PopulationError, match=r"events\.csv\.(gz|zst)"):
        load(cut)
    monkeypatch.setattr(module, "SMALL", 1 << 40)
    with pytest.raises(PopulationError, match=r"events\.csv\.(gz|zst)"):
        load(cut)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_text_is_unpacked_as_it_is_read(kind: str, tmp_path: Path) -> None:
    """Of events and samples, in any encoding, and for shards."""
    text = "name;x\n" + "".join(f"sören {k % 7};{k / 8}\n" for k in range(400))
    for encoding in ("utf8", "latin-1"):
        (tmp_path / "t.csv").write_bytes(text.encode(encoding))
        (tmp_path / f"t.csv.{kind}").write_bytes(packed(kind, text.encode(encoding)))
        more = {"user": "name", "separator": ";", "encoding": encoding}
        for what, column in (("events", "item"), ("samples", "value")):
            plain, small = (
                population(what, path=tmp_path / name, **more, **{column: "x"}).load().users
                for name in ("t.csv", f"t.csv.{kind}")
            )
            same_users(plain, small)
        form = TableFormat(separator=";", encoding=encoding)
        paths = (str(tmp_path / f"t.csv.{kind}"),)
        convert(paths, tmp_path / "out", user="name", value=("x",), form=form, force=True)
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


def test_a_frame_to_be_skipped_is_named(tmp_path: Path) -> None:
    """As pzstd writes it; its bytes were read as text."""
    path = tmp_path / "events.csv.zst"
    body = pa.compress(b"user,item\na,x\n", "zstd", asbytes=True)
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + body)
    with pytest.raises(PopulationError, match="zstd with a frame to be skipped before the text"):
        population("events", path=str(path), user="user", item="item").load()
