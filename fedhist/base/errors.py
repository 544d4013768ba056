"""The few run-time failures that have a name of their own.

Bad parameters are ``ValueError`` at construction; these are what can go wrong later.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any


class FedhistError(Exception):
    """Base of the named run-time failures."""


class BudgetExceeded(FedhistError):
    """A release would spend more than the declared guarantee or the owner's cap."""


class PopulationError(FedhistError):
    """The users' data cannot be loaded or break an invariant (a user on two nodes, a NaN id)."""


class WireError(FedhistError):
    """A message is not ours: unknown name, wrong version, missing field, value out of bounds."""


class MissingReplies(FedhistError):
    """Fewer nodes answered than the run asks for.

    Parameters
    ----------
    expected : int
        Nodes that were asked.
    got : int
        Nodes that answered with a usable message.
    reasons : mapping of str to int
        Why the others are missing, with how often each reason occurred.
    quorum : int
        Fewest nodes whose shares of the noise are enough; 0 where nodes share none.
    """

    def __init__(
        self,
        expected: int,
        got: int,
        reasons: Mapping[str, int] | None = None,
        quorum: int = 0,
    ) -> None:
        self.expected, self.got, self.reasons = expected, got, dict(reasons or {})
        why = "".join(f"\n  {count} x {reason}" for reason, count in self.reasons.items())
        go_on = f"; min_replies = {got} goes on without them" if 0 < got < expected else ""
        if got < quorum:
            go_on = f"; tau_d promises noise for {quorum} nodes at least"
        told = f"{max(expected - got, 0)} of {expected} replies are missing ({got} came)"
        super().__init__(f"{told}{go_on}{why}")
        self._given = expected, got, self.reasons, quorum

    def __reduce__(self) -> tuple[type[MissingReplies], tuple[Any, ...]]:
        return type(self), self._given


class BatchWithheld(FedhistError):
    """A shuffler passes nothing on: ``withheld`` batches have fewer than ``least`` users."""

    def __init__(self, least: int, withheld: int, batches: int) -> None:
        self.least, self.withheld, self.batches = least, withheld, batches
        super().__init__(
            f"the shuffler withholds {withheld} of {batches} batches: each needs reports of "
            f"{least} users, and nothing was passed on"
        )


def nearest(name: str, existing: Iterable[str]) -> str:
    """Say which existing name a mistyped one may have meant.

    >>> nearest("usr", ["user", "item"])
    "; did you mean 'user'?"
    """
    names = list(existing)
    if close := closest(name, names):
        return close
    more = f", and {len(names) - 20} more" if len(names) > 20 else ""
    return f"; there are {', '.join(map(repr, names[:20]))}{more}" if names else ""


def closest(value: object, listed: Iterable[str]) -> str:
    """Say which name of those that an error lists was meant; nothing if none is near."""
    text = value if isinstance(value, str) else ""
    close = difflib.get_close_matches(text, list(listed), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


NARROWEST = 40
"""Columns that tables are written for at least; a narrower terminal breaks the lines by itself."""


def visible(text: str) -> str:
    r"""Write control characters as escapes: none of them reaches a terminal. Line ends stay.

    Of Unicode, the categories Cc (C0, DEL and C1), Cf (marks that turn the direction of writing
    and such), Cs, Zl and Zp.

    >>> visible("red \x1b[31m, bell \x07, C1 \x9b, tea"), visible("お茶")
    ('red \\x1b[31m, bell \\x07, C1 \\x9b, tea', 'お茶')
    """
    if text.isascii() and text.isprintable():
        return text
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return "".join(
        ascii(c)[1:-1] if unicodedata.category(c) in hidden and c != "\n" else c for c in text
    )


def warned(what: str, means: str, todo: str) -> str:
    """Put a warning together: what happened, what it means for the estimate, what to do."""
    return f"{what}: {means}; {todo}"


def one_line(text: str, most: int = 300) -> str:
    r"""Cut a stranger's text to one line of printable characters.

    >>> one_line("no\nline 2\x1b"), one_line("x" * 400)[-3:], len(one_line("x" * 400))
    ('no line 2\\x1b', 'xx…', 300)
    """
    line = visible(" ".join(text[: 4 * most].split()))
    return line if len(line) <= most else line[: most - 1] + "…"
