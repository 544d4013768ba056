"""Where an error arose: in the code of who wrote a protocol or a plugin, or in ours."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_OURS = tuple(str(_ROOT / name) for name in ("fedhist", "clients", "server", "simulations"))
_THEIRS = tuple({sysconfig.get_path(p) for p in ("stdlib", "platstdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class Origin:
    """The innermost line of an author's code that an error passed.

    ``words`` name it: "mine.py, line 40, in answer". ``meant``: whether it says what is wrong with
    settings or data: the author raised it there as a ValueError, in words of their own, or we did
    of what a constructor was given.
    """

    words: str
    meant: bool


def origin_of(error: BaseException) -> Origin | None:
    """Find where in an author's code an error arose; None where it arose in none."""
    frames = list(_frames(error))
    first = next((i for i, f in enumerate(frames) if f.filename.startswith(_OURS)), len(frames))
    own = [f for f in frames[first:] if not f.filename.startswith((*_OURS, *_THEIRS, "<"))]
    if not own:
        return None
    last, end = own[-1], frames[-1]
    raised = (end.line or "").lstrip().startswith("raise ") and isinstance(error, ValueError)
    ours = end.filename.startswith(_OURS) and last.name in ("__init__", "__post_init__", "resolve")
    words = f"{Path(last.filename).name}, line {last.lineno}, in {last.name}"
    return Origin(words, raised and (end is last or ours))


def in_words(error: BaseException) -> str:
    """Write an error in one line: its type, its message, and where an author's code raised it."""
    origin = origin_of(error)
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return text if origin is None else f"{text} ({origin.words})"


def whole(error: BaseException) -> str:
    """Return the whole traceback."""
    return "".join(traceback.format_exception(error))


def _frames(error: BaseException | None) -> Iterator[traceback.FrameSummary]:
    """Walk the lines that an error passed, outermost first; then those of what caused it."""
    while error is not None:
        yield from traceback.extract_tb(error.__traceback__)
        error = error.__cause__ or error.__context__
