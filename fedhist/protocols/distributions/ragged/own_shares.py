"""Every user's own shares, in whole steps: the query behind the average of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import clip_rows, clipped_counts, domain_lookup
from clients.bounding.kernels import columns_of, user_norms
from clients.bounding.sampling import MOST_CLIP
from fedhist.base.arrays import Array, Bounds
from fedhist.base.errors import WireError
from fedhist.model.query import CHUNK, Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.protocols.shared.domains import check_domain
from fedhist.protocols.shared.entries import check_distinct, only_indptr, only_rows, row_sums
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams

STEPS = 1 << 24
"""Steps that a user's shares add up to: what rounding down takes is below 2^-24 a symbol."""


@register_query
@dataclass(frozen=True)
class OwnShares(Query):
    """Each user sends its counts over its own number of items, N / m_u, rounded down to steps.

    Parameters
    ----------
    domain : Keys
        The k public symbols; other items are dropped before m_u is counted.
    least : int
        Positive: the sum over the users with at least as many items is asked for as well.
    cohort : Cohort, optional

    Privacy
    -------
    Whatever its record, a user's row is non-negative and adds up to at most 2^24 steps, in
    integers; that of a user without items is zero. So the l1 norm of the sum's change is at most
    2^24 if a user is added, removed or emptied. Two rows x and y differ by ||x - y||_1 <= ||x||_1 +
    ||y||_1 <= 2^25 under replacement, which users of one symbol each attain; with a single symbol
    by 2^24. All this holds for the users with ``least`` items as well, and for both sums together:
    for 1 in one sum and a weight w on top of it in the other, max(1, |1 + w|) times as much.
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
        arrays = {"large": self._large(users).astype(np.uint8)} if self.least else {}
        return Report(users.ids, arrays, {"item": item, "steps": value}, indptr)

    def _large(self, users: Users) -> NDArray[np.bool_]:
        """Say who has at least ``least`` items of the domain."""
        size = np.empty(len(users), dtype=np.float64)
        lookup = domain_lookup(self.domain, users.counts.vocabulary)
        user_norms(columns_of(users.counts, lookup), 1, size)
        return np.asarray(size >= self.least)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Divide and add up in one walk; integers, so bit-identical to folding the answers."""
        sums = {"steps": self._sum(users)}
        if self.least:
            sums["large"] = self._sum(users.take(np.flatnonzero(self._large(users))))
        return Summary(len(users), sums)

    def _sum(self, users: Users) -> Array:
        items, k = users.counts, len(self.domain)
        lookup = domain_lookup(self.domain, items.vocabulary)
        return clipped_counts(items, lookup, k, 1.0, 1, 1 / STEPS, CHUNK)

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up by symbol: (k,) int64."""
        item, steps = report.ragged["item"], report.ragged["steps"].astype(np.int64)
        total = np.zeros((2, len(self.domain)), dtype=np.int64)
        np.add.at(total[0], item, steps)
        if not self.least:
            return Summary(report.n_users, {"steps": total[0]})
        large = np.repeat(report.arrays["large"] > 0, np.diff(only_indptr(report)))
        np.add.at(total[1], item[large], steps[large])
        return Summary(report.n_users, {"steps": total[0], "large": total[1]})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row holds distinct symbols and at most 2^24 steps."""
        only_rows(report, "item", "steps", arrays=("large",) if self.least else ())
        if self.least:
            Bounds((report.n_users,), "u", 0, 1).check("large", report.arrays["large"])
        check_distinct(report, report.ragged["item"], len(self.domain), "an item")
        steps = report.ragged["steps"]
        Bounds((None,), "iu", 0, STEPS).check("steps", steps)
        size = row_sums(report, steps)
        if (size > STEPS).any():
            raise WireError(f"a row adds up to {int(size.max())} steps, more than {STEPS}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound each total by everybody's whole row."""
        most = Bounds((len(self.domain),), "i", 0, n_users * STEPS)
        return {"steps": most, "large": most} if self.least else {"steps": most}

    def check_summary(self, summary: Summary) -> None:
        """Bound the sum over all symbols as well."""
        super().check_summary(summary)
        total = int(summary.sums["steps"].sum())
        if total > summary.n_users * STEPS:
            raise WireError(f"'steps' adds up to {total}, more than {summary.n_users} rows' worth")
        if self.least and (summary.sums["large"] > summary.sums["steps"]).any():
            raise WireError("some users have a larger sum than all")


def neighbours(adjacency: Adjacency, k: int) -> int:
    """Rows of own shares in which neighbouring populations differ, in l1: 2 if one is replaced."""
    return 2 if adjacency is Adjacency.REPLACE_USER and k > 1 else 1
