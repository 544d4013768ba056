"""Files appear whole or not at all, and a lock is one process's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedhist.base.files import locked, whole_file, write_private


def test_modes(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_private(tmp_path / "private", b"x")
        write_private(tmp_path / "log", b"x", append=True)
        whole_file(tmp_path / "page", "x")
        whole_file(tmp_path / "command", "x", mode=0o777)
        locked(tmp_path / "lock").close()
    finally:
        os.umask(before)
    modes = {f.name: f.stat().st_mode & 0o777 for f in tmp_path.iterdir()}
    private = dict.fromkeys(("private", "log", "lock"), 0o600)
    assert modes == private | {"page": 0o640, "command": 0o750}


def test_a_file_is_replaced_and_a_log_grows(tmp_path: Path) -> None:
    for text in ("one", "two"):
        whole_file(tmp_path / "page", f"{text} £")
        write_private(tmp_path / "private", text.encode())
        write_private(tmp_path / "log", text.encode(), append=True)
    assert (tmp_path / "page").read_text(encoding="utf-8") == "two £"
    assert (tmp_path / "private").read_bytes() == b"two"
    assert (tmp_path / "log").read_bytes() == b"onetwo"


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("write", [whole_file, write_private])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object, step: str
) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"before")

    def fail(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        write(target, b"after")
    assert [f.name for f in tmp_path.iterdir()] == ["file"]
    assert target.read_bytes() == b"before"


@pytest.mark.parametrize("write", [whole_file, write_private])
def test_the_file_and_then_its_folder_are_forced_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object
) -> None:
    """Data before the new name, the name before anything that follows."""
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def syncing(fd: int) -> None:
        steps.append("folder" if Path(f"/dev/fd/{fd}").is_dir() else "data")
        sync(fd)

    def replacing(source: Path, target: Path) -> None:
        steps.append("name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    write(tmp_path / "file", b"x")
    assert steps == ["data", "name", "folder"]


def test_a_lock_is_held_until_it_is_closed(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(BlockingIOError):
        locked(tmp_path / "lock", wait=False)
    locked(tmp_path / "lock", wait=False).close()
