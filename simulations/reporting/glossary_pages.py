"""The glossary in the documentation: its page, and the links to it from the first use of a word.

``python -m simulations.reporting.glossary_pages`` in a clone writes both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fedhist.base.files import whole_file
from simulations.reporting.glossary import Entry, glossary

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "glossary.md"
START = """# Glossary

What the words on these pages, in tables and in warnings mean; `fedhist explain WORD` prints one.
"""
# no text of a page: code, headings, comments, pictures
_HIDDEN = re.compile(
    r"^```.*?^```$|`[^`]+`|^#.*?$|<!--.*?-->|!\[[^\]]*\]\([^)]*\)", re.DOTALL | re.MULTILINE
)
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)]*)\)")
_OURS = re.compile(r"(?:.*/)?glossary\.md#(?P<slug>[\w-]+)")


class Use(NamedTuple):
    """The first use of a word in a text, and whether it is a link to its entry."""

    entry: Entry
    start: int
    end: int
    linked: bool


def page() -> str:
    """Write the page: a heading per word."""
    words = glossary()
    out = [START]
    for entry in words.values():
        links = [f"[{w}](#{words[w].slug})" for w in entry.see]
        see = f"See {', '.join(links)}; more on" if links else "More on"
        title = re.search(r"^# (.+)$", (PAGE.parent / entry.page).read_text("utf-8"), re.MULTILINE)
        name = title[1] if title else entry.page
        out.append(f"## {entry.word}\n\n{entry.means}\n\n{see} [{name}]({entry.page}).\n")
    return "\n".join(out)


def first_uses(text: str) -> list[Use]:
    """Find where a page uses each word first: outside code, headings and links to other places.

    Where one word is a part of another ("oracle", "frequency oracle"), the longer one counts.

    Examples
    --------
    >>> [(u.entry.word, u.linked) for u in first_uses("`fold` and a [fold](glossary.md#fold).")]
    [('fold', True)]
    """
    spots = sorted(_candidates(text), key=lambda u: (u.start, u.start - u.end))
    out: dict[str, Use] = {}
    reached = 0
    for use in spots:
        if use.start >= reached:  # else it is inside a longer word
            reached = use.end
            out.setdefault(use.entry.word, use)
    return list(out.values())


def linked(text: str, to: str) -> str:
    """Make the first use of each word a link to its entry on the page ``to``.

    >>> linked("Folds and folds", "glossary.md")
    '[Folds](glossary.md#fold) and folds'
    """
    for use in sorted(first_uses(text), key=lambda u: -u.start):
        if not use.linked:
            word = text[use.start : use.end]
            text = f"{text[: use.start]}[{word}]({to}#{use.entry.slug}){text[use.end :]}"
    return text


def hand_written() -> Iterator[tuple[Path, str]]:
    """Yield the pages that are written by hand, each with its way to the glossary."""
    for name in ("README.md", "CONTRIBUTING.md"):
        yield ROOT / name, "docs/glossary.md"
    for path in sorted((ROOT / "docs").glob("*.md")):
        if path != PAGE:
            yield path, "glossary.md"
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        yield path, "../glossary.md"


def _candidates(text: str) -> Iterator[Use]:
    """Yield every use of every word that is not hidden."""
    bare = _HIDDEN.sub(lambda m: "\0" * len(m[0]), text)
    links: list[tuple[int, int, str]] = []

    def opened(m: re.Match[str]) -> str:
        ours = _OURS.fullmatch(m["target"])
        if ours is None:
            return "\0" * len(m[0])
        links.append((*m.span("text"), ours["slug"]))
        return f"[{m['text']}".ljust(len(m[0]), "\0")

    bare = _LINK.sub(opened, bare)
    for entry in glossary().values():
        if entry.plain:
            continue
        for m in _pattern(entry).finditer(bare):
            slug = next((s for a, b, s in links if a <= m.start() < b), None)
            if slug in (None, entry.slug):
                yield Use(entry, *m.span(), slug is not None)


def _pattern(entry: Entry) -> re.Pattern[str]:
    forms = "|".join(
        re.escape(s).replace(r"\ ", r"\s+") for s in sorted(entry.spellings, key=len, reverse=True)
    )
    case = re.NOFLAG if entry.word.isupper() else re.IGNORECASE
    return re.compile(rf"(?<![\w.-])(?:{forms})(?![\w-]|\.\w)", case)


def write() -> None:
    """Write the glossary's page and the links to it."""
    whole_file(PAGE, page())
    for path, to in hand_written():
        text = path.read_text(encoding="utf-8")
        new = linked(text, to)
        if new != text:
            whole_file(path, new)


if __name__ == "__main__":
    write()
