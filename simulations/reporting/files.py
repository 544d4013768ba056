"""Where a command may write: nothing is replaced but what the same command wrote; and strict JSON.

Every command that writes passes here, before it computes anything and again when it writes. A
folder of results holds :data:`MARK`, which names its kind and its files: a folder without it, of
another kind, or with a file that fedhist did not write is somebody else's. A file that is there is
left alone. ``--force`` replaces both, but never a folder that holds somebody's files.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.base.files import folder_held, whole_file

MARK = ".fedhist.json"
NEW = Path("results") / ".new"
"""Stands for a folder that :func:`new_folder` will make, where :func:`check_folder` looks first."""
SHAREABLE = ("estimate.csv", "estimate.parquet")
"""What of a run holds released numbers only; the other files hold seeds, and the truth."""


def check_folder(path: str | Path, kind: str, *, force: bool = False) -> Path:
    """Say where to write a folder of results, if nobody loses anything by it.

    ``path``: links are followed; ``kind``: what is to be written: "run", "study"; ``force``:
    results of another kind may go. Returns the absolute path. Raises ValueError if something is
    there that may not be replaced, or nothing can be written.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_dir():
        raise ValueError(f"{path} is a file, not a folder of results; it is left alone")
    here, home = Path.cwd(), Path.home().resolve()
    if target in (here, *here.parents, home, *home.parents):  # a shell would stand in nothing
        raise ValueError(f"{target} is left alone: it is not one to replace; name a folder in it")
    if target.is_dir() and any(target.iterdir()):
        marks = _marks(target)
        there = {str(p.relative_to(target)) for p in target.rglob("*") if not p.is_dir()}
        strange = sorted(there - {*marks.get("files", ()), MARK, ".DS_Store", "Thumbs.db"})
        if strange:  # it may be the data of this very call
            raise ValueError(
                f"{path} holds {strange[0]}, which fedhist did not write: it is left alone, by "
                "--force too; name another folder"
            )
        if marks.get("kind") != kind and not force:
            raise ValueError(
                f"{path} holds results of the kind {marks.get('kind')!r}, not {kind!r}; it is left "
                "alone (--force replaces it)"
            )
    place = next(p for p in target.parents if p.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".fedhist-", dir=place):
            return target
    except OSError as e:
        raise ValueError(f"{path} cannot be written: {place}: {e.strerror}") from None


def check_file(path: str | Path, *, force: bool = False) -> Path:
    """Say where to write a file; errors are those of :func:`check_folder`."""
    target = Path(path).resolve()
    if target.is_dir():
        raise ValueError(f"{path} is a folder; name a file")
    if target.exists() and not force:
        raise ValueError(f"{path} exists; it is left alone (--force replaces it)")
    return target


def new_folder(name: str) -> Path:
    """Make an empty folder under results/ that nobody has, named after what it is for and when."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    Path("results").mkdir(exist_ok=True)
    for more in ("", *(f"-{i}" for i in range(2, 1000))):
        folder = Path("results") / f"{name}-{stamp}{more}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise ValueError(f"results/ has a thousand folders {name}-{stamp}; name one by --out")


def kind_of(folder: Path) -> str:
    """Name the kind of a folder of results; empty where it has no mark."""
    return str(_marks(folder).get("kind", ""))


@contextmanager
def whole_folder(
    path: str | Path, kind: str, *, shared: bool = False, force: bool = False
) -> Iterator[Path]:
    """Let a folder of results appear whole or not at all.

    Yields a folder to write into. An older one is lost only when the new one has its place. It and
    its files are its owner's alone (0700 and 0600, but for :data:`SHAREABLE`), unless they are to
    be shared with whom the umask allows. Errors are those of :func:`check_folder`.
    """
    target = check_folder(path, kind, force=force)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    aside = part.with_name(f"{part.name}-old")
    try:
        yield part
        write_mark(part, kind)
        _set_modes(part, shared)
        with folder_held(target.parent):
            check_folder(path, kind, force=force)  # somebody may have been there meanwhile
            if target.exists():
                os.rename(target, aside)
            os.replace(part, target)
        shutil.rmtree(aside, ignore_errors=True)
    except BaseException:
        if aside.exists() and not target.exists():
            os.rename(aside, target)
        shutil.rmtree(part, ignore_errors=True)
        raise


def write_mark(folder: Path, kind: str, files: Iterator[str] | list[str] | None = None) -> None:
    """Say of which kind a folder is, and which files are fedhist's: all, if none is named."""
    names = [str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()]
    body = {"kind": kind, "files": sorted({*(names if files is None else files)} - {MARK})}
    whole_file(folder / MARK, json.dumps(body, indent=1, ensure_ascii=False) + "\n", mode=0o600)


def _set_modes(folder: Path, shared: bool) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        open_to_all = 0o777 if path.is_dir() else 0o666
        private = not shared and path.name not in SHAREABLE
        path.chmod(open_to_all & (0o700 if private else ~mask))


def _marks(folder: Path) -> dict[str, Any]:
    """Read the mark of a folder; {} where there is none that can be read."""
    try:
        marks = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return marks if isinstance(marks, dict) and isinstance(marks.get("files"), list) else {}


# -- plain data as strict JSON ---------------------------------------------------------------------


def plain(body: Any) -> Any:
    """Copy plain data for strict JSON, which has no word for infinities and dates.

    >>> plain({1: np.int64(3), "x": (math.inf, np.float32(0.5))})
    {'1': 3, 'x': ['inf', 0.5]}
    """
    if isinstance(body, Mapping):
        return {str(k): plain(v) for k, v in body.items()}
    if isinstance(body, list | tuple):
        return [plain(v) for v in body]
    if isinstance(body, np.generic | np.ndarray):
        return plain(body.tolist())
    if isinstance(body, float) and not math.isfinite(body):
        return str(body)
    return body if body is None or isinstance(body, bool | int | float | str) else str(body)


def canonical(body: Any) -> str:
    """Write plain data as strict JSON in one way: sorted keys, infinities as strings."""
    return json.dumps(plain(body), sort_keys=True, separators=(",", ":"), allow_nan=False)


def whole(body: Any) -> Any:
    """Copy plain data with 1 for 1.0, which mean the same in a configuration."""
    if isinstance(body, Mapping):
        return {str(k): whole(v) for k, v in body.items()}
    if isinstance(body, list | tuple):
        return [whole(v) for v in body]
    is_whole = isinstance(body, float) and body.is_integer() and abs(body) < 2**53
    return int(body) if is_whole else body


def numbers(body: Any) -> Any:
    """Undo the spelling of infinities in what JSON gave."""
    if isinstance(body, dict):
        return {k: numbers(v) for k, v in body.items()}
    if isinstance(body, list):
        return [numbers(v) for v in body]
    return float(body) if isinstance(body, str) and body in ("inf", "-inf", "nan") else body


def json_text(body: Any) -> str:
    """Write plain data as indented JSON; infinities and NaN as strings, which strict JSON lacks."""
    text = json.dumps(plain(body), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace").decode()  # of names that are not UTF-8


def write_json(path: Path, body: Any) -> None:
    """Write plain data to a file as :func:`json_text`."""
    whole_file(path, json_text(body))
