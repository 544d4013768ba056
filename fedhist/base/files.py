"""Files that appear whole or not at all, and locks: what a killed process may leave behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def whole_file(path: Path, data: bytes | str, *, mode: int = 0o666) -> None:
    """Write a file at once or not at all, with a mode that the umask narrows; text is UTF-8."""
    body = data.encode() if isinstance(data, str) else data
    _replace(path, path.with_name(f".{path.name}.{os.getpid()}.part"), body, mode)


def write_private(path: Path, data: bytes, *, append: bool = False) -> None:
    """Write with mode 0600 and force it to disk, at once or not at all; or append to the end."""
    if append:
        _force(path, data, os.O_APPEND, 0o600)
        sync_folder(path.parent)
    else:
        _replace(path, path.with_name(f"{path.name}.part"), data, 0o600)


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk, so that a power cut loses no new file."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def locked(path: Path, *, wait: bool = True) -> IO[str]:
    """Lock a file against other processes for as long as the returned object is open.

    The lock is the operating system's: it ends with its process, however that ends.

    Raises BlockingIOError if another process has the lock, and ``wait`` is false.
    """
    held = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        held.close()
        raise
    return held


@contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Let one process at a time do what must not be done by two in a folder; nothing is left."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(path: Path, part: Path, data: bytes, mode: int) -> None:
    """Write beside the file, and put that in its place."""
    try:
        _force(part, data, os.O_TRUNC, mode)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _force(path: Path, data: bytes, flag: int, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flag, mode), "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
    except OSError as e:
        if e.errno:
            e.filename = e.filename or os.fspath(path)  # a full disk names no file
        raise
