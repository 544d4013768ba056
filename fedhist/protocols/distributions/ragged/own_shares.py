"""Every user's own shares, in whole steps: the query behind the average of users."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import clip_rows, clipped_counts, domain_lookup
from clients.bounding.kernels import columns_of, user_norms
from clients.bounding.sampling import MOST_CLIP
from fedhist.base.arrays import Array, Bounds, Integers
from fedhist.base.errors import WireError
from fedhist.model.query import CHUNK, Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.protocols.shared.domains import check_domain
from fedhist.protocols.shared.ragged_rows import check_distinct, only_indptr, only_rows, row_sums
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams

STEPS = 1 << 24
"""Steps that a user's shares add up to: what rounding down takes is below 2^-24 a symbol."""

LARGE = 2
"""What a large user says of itself; 1: it has items, 0: it has none."""


@register_query
@dataclass(frozen=True)
class OwnShares(Query):
    """Each user sends its counts over its own number of items, N / m_u, rounded down to steps.

    Parameters
    ----------
    domain : Keys
        The k public symbols; other items are dropped before m_u is counted.
    least : int
        Positive: the sum over the large users, with at least as many items, is asked for as well,
        and how many users have any items and how many are large.
    cohort : Cohort, optional

    Privacy
    -------
    Whatever its record, a user's row is non-negative and adds up to at most 2^24 steps, in
    integers; that of a user without items is zero. So the l1 norm of the sum's change is at most
    2^24 if a user is added, removed or emptied. Two rows x and y differ by ||x - y||_1 <= ||x||_1 +
    ||y||_1 <= 2^25 under replacement, which users of one symbol each attain; with a single symbol
    by 2^24. The gap of both sums is :func:`gap_steps`.
    """

    wire_name: ClassVar[str] = "own-shares"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys
    least: int = 0
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)
        if isinstance(self.least, bool) or not 0 <= self.least <= MOST_CLIP:
            raise ValueError(f"least must lie in [0, 2^31], got {self.least}")

    def l1_sensitivity(self, adjacency: Adjacency) -> int:
        """Of the sum, in steps."""
        return neighbours(adjacency, len(self.domain)) * STEPS

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send (symbol, steps); uses no randomness."""
        items = users.counts
        lookup = domain_lookup(self.domain, items.vocabulary)
        indptr, item, value = clip_rows(items, lookup, 1.0, 1, 1 / STEPS)
        arrays = {"held": self._held(users, lookup)} if self.least else {}
        return Report(users.ids, arrays, {"item": item, "steps": value}, indptr)

    def _held(self, users: Users, lookup: NDArray[np.int32] | None) -> NDArray[np.uint8]:
        """Say who has items of the domain (1), and at least ``least`` of them (2)."""
        size = np.empty(len(users), dtype=np.float64)
        user_norms(columns_of(users.counts, lookup), 1, size)
        return (size > 0).astype(np.uint8) + (size >= self.least).astype(np.uint8)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Divide and add up in one walk; integers, so bit-identical to folding the answers."""
        lookup = domain_lookup(self.domain, users.counts.vocabulary)
        sums = {"steps": self._sum(users, lookup)}
        if self.least:
            held = self._held(users, lookup)
            sums["large"] = self._sum(users.take(np.flatnonzero(held == LARGE)), lookup)
            sums["users"] = _users(held)
        return Summary(len(users), sums)

    def _sum(self, users: Users, lookup: NDArray[np.int32] | None) -> Array:
        return clipped_counts(users.counts, lookup, len(self.domain), 1.0, 1, 1 / STEPS, CHUNK)

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up by symbol: (k,) int64."""
        item, steps = report.ragged["item"], report.ragged["steps"].astype(np.int64)
        total = np.zeros((2, len(self.domain)), dtype=np.int64)
        np.add.at(total[0], item, steps)
        if not self.least:
            return Summary(report.n_users, {"steps": total[0]})
        held = report.arrays["held"]
        large = np.repeat(held == LARGE, np.diff(only_indptr(report)))
        np.add.at(total[1], item[large], steps[large])
        sums = {"steps": total[0], "large": total[1], "users": _users(held)}
        return Summary(report.n_users, sums)

    def check(self, report: Report) -> None:
        """Raise WireError unless every row holds distinct symbols and at most 2^24 steps."""
        only_rows(report, "item", "steps", arrays=("held",) if self.least else ())
        if self.least:
            Bounds((report.n_users,), "u", 0, LARGE).check("held", report.arrays["held"])
        check_distinct(report, report.ragged["item"], len(self.domain), "an item")
        steps = report.ragged["steps"]
        Bounds((None,), "iu", 0, STEPS).check("steps", steps)
        size = row_sums(report, steps)
        if (size > STEPS).any():
            raise WireError(f"a row adds up to {int(size.max())} steps, more than {STEPS}")
        if self.least and (size[report.arrays["held"] == 0] > 0).any():
            raise WireError("a user without items sends shares")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound each total by everybody's whole row."""
        most = Bounds((len(self.domain),), "i", 0, n_users * STEPS)
        if not self.least:
            return {"steps": most}
        return {"steps": most, "large": most, "users": Bounds((2,), "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        """Bound the sum over all symbols as well."""
        super().check_summary(summary)
        held, large = summary.sums["users"].tolist() if self.least else (summary.n_users, 0)
        for name, rows in (("steps", held), ("large", large)):
            total = int(summary.sums[name].sum()) if name in summary.sums else 0
            if total > rows * STEPS:
                raise WireError(f"{name!r} adds up to {total}, more than {rows} rows' worth")
        if self.least and (summary.sums["large"] > summary.sums["steps"]).any():
            raise WireError("some users have a larger sum than all")
        if self.least and summary.sums["users"][1] > summary.sums["users"][0]:
            raise WireError("more users are large than have items")


def neighbours(adjacency: Adjacency, k: int) -> int:
    """Rows of own shares in which neighbouring populations differ, in l1: 2 if one is replaced."""
    return 2 if adjacency is Adjacency.REPLACE_USER and k > 1 else 1


def _users(held: NDArray[np.uint8]) -> Integers:
    return np.array([np.count_nonzero(held), np.count_nonzero(held == LARGE)], dtype=np.int64)


def gap_steps(summary: Summary) -> int:
    """||s_L A - L||_1 in steps: s_L times the l1 distance of the large users' average from all's.

    A is the average of own shares over the users with items, L the sum over the s_L large ones.
    Rounded. NOT PRIVATE.

    Privacy
    -------
    Sensitivity 2 rows, see :func:`gap_sensitivity`, also where all numbers are exact. Let n users
    have items, a = s_L / n, and rows have l1 norm 1 at most. A row x in place of another y moves
    s_L A - L by (a - 1)(x - y) where both users are large and by a (x - y) where neither is. Where
    y was large, by - A + b x + (1 - b) y, b = (s_L - 1) / n; likewise the other way round. A user
    who is emptied, added or removed moves it by (1 - a) y and (1 - a) of the others' average if
    large, else by a y and a of it. No l1 norm of these exceeds 2.
    """
    held, large = (int(x) for x in summary.sums["users"])
    off = summary.sums["steps"] * (large / max(held, 1)) - summary.sums["large"]
    return round(float(np.abs(off).sum()))


def gap_sensitivity(n_users: int, k: int) -> int:
    """How far one user moves the gap: by 2 rows, and what doubles and integers round.

    In k terms of at most n 2^24 steps, a part 2^-52 of each.

    >>> gap_sensitivity(1000, 50) == 2 * STEPS + 3
    True
    """
    return 2 * STEPS + 2 + math.ceil(k * n_users * STEPS * 2.0**-51)
