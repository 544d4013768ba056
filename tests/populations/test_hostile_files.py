"""Files that would fill the memory, wait for ever or are none."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from fedhist.base.errors import PopulationError
from simulations.populations import population
from simulations.populations import tables as module


def load(path: Path, **options: object) -> int:
    spec = population("events", path=str(path), user="user", item="item", **options)
    return len(spec.load().users)


def test_a_bomb_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 MiB of the same row in 4 KiB; the least size is made small for it."""
    monkeypatch.setattr(module, "SMALL", 1 << 16)
    bomb = tmp_path / "events.csv.gz"
    bomb.write_bytes(gzip.compress(b"user,item\n" + b"ann,tea\n" * (1 << 19)))
    size = bomb.stat().st_size
    assert size * 200 < 1 << 22
    with pytest.raises(PopulationError, match=rf"{size} bytes unpack to more than .*max_ratio"):
        load(bomb)
    assert load(bomb, max_ratio=10_000) == 1
    usual = tmp_path / "usual.csv.gz"
    rows = b"".join(b"user-%d,item-%d\n" % (i, i % 97) for i in range(50_000))
    usual.write_bytes(gzip.compress(b"user,item\n" + rows))
    assert load(usual) == 50_000


def test_a_damaged_archive_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 1 << 10)
    cut = tmp_path / "events.csv.gz"
    cut.write_bytes(gzip.compress(b"user,item\n" + os.urandom(5000))[:-200])
    with pytest.raises(PopulationError, match=r"events\.csv\.gz"):
        load(cut)


def test_what_is_no_file_is_named_as_what_it_is(tmp_path: Path) -> None:
    """A pipe would be waited on for ever."""
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    for name, what in (("pipe.csv", "a pipe"), ("folder.csv", "a folder")):
        with pytest.raises(PopulationError, match=f"{name} is {what}, not a file"):
            load(tmp_path / name)
    with pytest.raises(PopulationError, match="/dev/null is no regular file"):
        load(Path("/dev/null"))
