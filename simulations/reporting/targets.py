"""Where a command may write: nothing is removed or replaced but what fedhist wrote as that kind.

Every command that writes passes here, before it computes anything and again when it writes. What is
written carries a mark of its kind: a folder the file :data:`MARK`, which lists its files with their
digests; a text a last line that is a comment, with the digest of what stands before it; a picture
and a Parquet file an entry of their metadata. So a file that somebody has put into a folder of
results, or a table that somebody has edited, is theirs. A CSV or JSON file has no place for a mark
and is never replaced unasked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from fedhist.base.files import folder_held, whole_file

MARK = ".fedhist.json"
SHAREABLE = ("estimate.csv", "estimate.parquet")
"""What of a run holds released numbers only; the other files hold seeds, and the truth."""
COMMENTS: Mapping[str, str] = {
    ".html": "<!-- {} -->",
    ".md": "<!-- {} -->",
    ".py": "# {}",
    ".svg": "<!-- {} -->",
    ".tex": "% {}",
    ".toml": "# {}",
}
"""How a comment is written, by the ending of a text's name."""
_BARE = (".csv", ".json")
_LITTER = (MARK, ".DS_Store", "Thumbs.db")
"""What a folder may hold besides: its mark, and what file managers leave."""


def check_target(path: str | Path, kind: str, *, force: bool = False) -> Path:
    """Say where to write something, if nobody loses anything by it.

    Parameters
    ----------
    path : str or Path
        A file or a folder; links are followed.
    kind : str
        What is to be written: "run", "comparison", "table" ...
    force : bool
        What is there may go, but for a folder in place of a file, or the other way round, and for
        a folder with files that fedhist did not write.

    Returns
    -------
    Path
        The absolute path.

    Raises
    ------
    ValueError
        If something is there that fedhist did not write as this kind, or somebody has changed.
    """
    target = Path(path).resolve()
    if target.is_dir():
        found = _of_folder(target, kind, force)
    elif target.exists():
        found = "" if force and target.is_file() else _of_file(target, kind)
    else:
        found = ""
    place = next(p for p in target.parents if p.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".fedhist-", dir=place):
            pass
    except OSError as e:
        raise ValueError(f"{path} cannot be written: {place}: {e.strerror}") from None
    if found:
        raise ValueError(f"{path} {found}; it is left alone (--force replaces it)")
    return target


def check_file(path: str | Path, kind: str, *, force: bool = False) -> Path:
    """Check as :func:`check_target` a path that is to be a file."""
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; name a file")
    return check_target(path, kind, force=force)


def check_folder(path: str | Path, kind: str, *, force: bool = False) -> Path:
    """Check as :func:`check_target` a path that is to be a folder."""
    if Path(path).exists() and not Path(path).is_dir():
        raise ValueError(f"{path} is a file, not a folder of results; it is left alone")
    return check_target(path, kind, force=force)


def check_results() -> None:
    """Check, before anything is computed, that :func:`new_folder` can make one."""
    check_folder(Path("results") / ".new", "")


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


def kind_of(path: Path) -> str:
    """Name the kind of what fedhist wrote at a path; "" where it has no mark."""
    return str(_marks(path).get("kind", "")) if path.is_dir() else _mark_of_file(path)[0]


def write_target(path: str | Path, data: bytes | str, kind: str, *, force: bool = False) -> None:
    """Write a file with a mark of its kind, whole or not at all.

    A text is marked here; bytes have their mark from :func:`mark`, in their metadata.

    Raises
    ------
    ValueError
        If something else has its place (:func:`check_target`).
    """
    target = check_file(path, kind, force=force)
    if isinstance(data, str) and target.suffix in COMMENTS:
        body = data if data.endswith("\n") else data + "\n"
        digest = hashlib.sha256(body.encode()).hexdigest()
        data = body + COMMENTS[target.suffix].format(f"{mark(kind)} {digest}") + "\n"
    target.parent.mkdir(parents=True, exist_ok=True)
    whole_file(target, data)


def mark(kind: str) -> str:
    """Write the mark of a kind, for the metadata of a picture.

    >>> mark("figure")
    'fedhist:figure'
    """
    return f"fedhist:{kind}"


@contextmanager
def whole_folder(
    path: str | Path, kind: str, *, shared: bool = False, force: bool = False
) -> Iterator[Path]:
    """Let a folder of results appear whole or not at all.

    Yields a folder to write into. An older one of the same kind is replaced, and is lost only when
    the new one has its place. It and its files are its owner's alone (0700 and 0600, but for
    :data:`SHAREABLE`), unless they are to be shared with whom the umask allows.

    Raises
    ------
    ValueError
        If something else has its place (:func:`check_folder`).
    """
    home = Path(path).resolve().parent
    with folder_held(home) if home.is_dir() else nullcontext():  # not while another has its turn
        target = check_folder(path, kind, force=force)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    aside = part.with_name(f"{part.name}-old")
    try:
        yield part
        _write_mark(part, kind)
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


def add_to_folder(folder: Path, name: str, data: str, kind: str, *, force: bool = False) -> None:
    """Write a file into a folder of results as a part of it, which goes when the folder goes."""
    marks = _marks(folder)
    write_target(folder / name, data, kind, force=force)
    if marks:
        marks["files"][name] = _digest(folder / name)
        path = folder / MARK
        whole_file(path, json.dumps(marks, indent=1) + "\n", mode=path.stat().st_mode & 0o777)


def _write_mark(folder: Path, kind: str) -> None:
    files = {str(p.relative_to(folder)): _digest(p) for p in _files(folder)}
    text = json.dumps({"kind": kind, "files": files}, indent=1, ensure_ascii=False)
    whole_file(folder / MARK, text + "\n")


def _set_modes(folder: Path, shared: bool) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        open_to_all = 0o777 if path.is_dir() else 0o666
        private = not shared and path.name not in SHAREABLE
        path.chmod(open_to_all & (0o700 if private else ~mask))


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir())


def _marks(folder: Path) -> dict[str, Any]:
    """Read the mark of a folder; {} where there is none that can be read."""
    try:
        found = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("files"), dict) else {}


def _of_folder(folder: Path, kind: str, force: bool) -> str:
    """Say why a folder may not be replaced; "" if it may."""
    here, home = Path.cwd(), Path.home().resolve()
    if folder in (here, *here.parents, home, *home.parents) or folder.is_mount():
        # not even by force: a shell would stand in a folder that is gone
        raise ValueError(f"{folder} is left alone: it is not one to replace; name a folder in it")
    if not any(folder.iterdir()):
        return ""
    marks = _marks(folder)
    listed: Mapping[str, str] = marks.get("files", {})
    files = {str(f.relative_to(folder)): f for f in _files(folder) if f.name not in _LITTER}
    strange = next((name for name in files if name not in listed), "")
    if strange:  # it may be the data of this very call
        what = f"holds {strange}, which fedhist did not write"
        raise ValueError(f"{folder} {what}: it is left alone, by --force too; name another folder")
    if force:
        return ""
    if not marks:
        return "is not empty and is not a folder of results"
    if marks["kind"] != kind:
        return f"holds results of the kind {marks['kind']!r}, not {kind!r}"
    for name, file in files.items():
        if file.is_symlink() or listed[name] != _digest(file):
            return f"holds a file of the {kind} that somebody has changed: {name}"
    return ""


def _of_file(file: Path, kind: str) -> str:
    """Say why a file may not be replaced; "" if it may."""
    if not file.is_file():
        return "is neither a file nor a folder"
    if file.stat().st_size == 0:
        return ""
    found, whole = _mark_of_file(file)
    if not found:
        bare = f" (a {file.suffix} has no place to say who did)" * (file.suffix in _BARE)
        return f"exists, and nothing says that fedhist wrote it{bare}"
    if found != kind:
        return f"is of the kind {found!r}, not {kind!r}"
    return "" if whole else f"is a {kind} that somebody has changed"


def _mark_of_file(file: Path) -> tuple[str, bool]:
    """Read the kind of a file, and whether it is as it was written."""
    try:
        body = file.read_bytes()
    except OSError:
        return "", False
    if file.suffix in COMMENTS:
        before, _, last = body.removesuffix(b"\n").rpartition(b"\n")
        left, right = COMMENTS[file.suffix].split("{}")
        words = last.decode(errors="replace").removeprefix(left).removesuffix(right).split()
        if len(words) == 2 and words[0].startswith(mark("")):
            whole = hashlib.sha256(before + b"\n").hexdigest() == words[1]
            return words[0].removeprefix(mark("")), whole
        return "", False
    if file.suffix == ".parquet":
        return _mark_of_parquet(file), True
    ahead = {".png": body[: max(body.find(b"IDAT"), 0)], ".pdf": body}.get(file.suffix, b"")
    found = re.search(rb"(?:Software\0|/Creator \()fedhist:([a-z]+)", ahead)
    return found[1].decode() if found else "", True


def _mark_of_parquet(file: Path) -> str:
    import polars as pl

    try:
        return pl.read_parquet_metadata(file).get("fedhist", "")
    except pl.exceptions.PolarsError:
        return ""


def _digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
