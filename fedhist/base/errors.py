"""The few run-time failures that have a name of their own.

Bad parameters are ``ValueError`` at construction; these are what can go wrong later.
"""

from __future__ import annotations

import difflib
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
