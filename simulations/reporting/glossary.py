"""The glossary: what the words of fedhist mean, from one file of data."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedhist.base.errors import nearest

FILE = Path(__file__).with_name("glossary.toml")


@dataclass(frozen=True)
class Entry:
    """A word.

    Attributes
    ----------
    word, means : str
    page : str
        The page of the documentation that says more.
    forms : tuple of str
        What else is the word where it stands in a text; its plural with "s" is understood.
    see : tuple of str
        Other words.
    plain : bool
        Whether it is too common to be looked for in texts.
    """

    word: str
    means: str
    page: str
    forms: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    plain: bool = False

    @property
    def slug(self) -> str:
        """The anchor of its heading.

        >>> Entry("NOT PRIVATE", "", "").slug
        'not-private'
        """
        return re.sub(r"[^\w\- ]", "", self.word.lower()).replace(" ", "-")

    @property
    def spellings(self) -> tuple[str, ...]:
        """All that it is called."""
        return (self.word, f"{self.word}s", *self.forms)


@cache
def glossary() -> Mapping[str, Entry]:
    """Read the file: entries by word, in its order."""
    found = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {
        word: Entry(
            word,
            about["means"],
            about["page"],
            tuple(about.get("forms", ())),
            tuple(about.get("see", ())),
            about.get("plain", False),
        )
        for word, about in found.items()
    }


def find(word: str, *others: str) -> Entry:
    """Find a word by any of its spellings, whatever its case, its hyphens and its blanks.

    Parameters
    ----------
    word : str
    *others : str
        What else may have been meant.

    Raises
    ------
    ValueError
        If it is none of ours; the nearest one is named.

    Examples
    --------
    >>> find("zcdp").word, find("Null_record").word
    ('zCDP', 'null record')
    """
    named = {plain(s): e for e in glossary().values() for s in e.spellings}
    if plain(word) in named:
        return named[plain(word)]
    known = [*others, *(s for e in glossary().values() for s in (e.word, *e.forms))]
    raise ValueError(f"the glossary has no word {word!r}{nearest(word, known)}")


def plain(word: str) -> str:
    """Reduce a spelling to what is compared.

    >>> plain("Zero_out  user")
    'zero-out-user'
    """
    return re.sub(r"[\s_-]+", "-", word.strip().lower())
