"""One question for all thresholds: how much of every item clipping would leave, in expectation.

The sums serve any objective that depends on a threshold C through the users' sizes and the
expected clipped histogram; the objectives are in :mod:`fedhist.protocols.clip_choice.bound_scores`.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithm 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from clients.bounding.size_curves import SHARE, size_curves
from fedhist.base.arrays import Bounds
from fedhist.base.errors import WireError
from fedhist.model.query import Keyed, Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.shared.item_rows import intern_records, pack_records, parse_records
from fedhist.protocols.shared.ragged_rows import only_rows
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.columns import Items
from fedhist.users.streams import Streams

MOST_POINTS = 4096
MOST_SIZE = 1 << 31
ROUNDING = 1 + 1e-9
"""Room for the rounding of doubles when a sum of many integers is checked."""


@register_query
@dataclass(frozen=True)
class SizeCurves(Query):
    """Each user sends its whole histogram; only sums over the users by size are kept.

    Parameters
    ----------
    grid : tuple of int
        Thresholds C in tokens, positive and increasing.
    cohort : Cohort, optional

    Privacy
    -------
    Central trust: unfolded, a report is the user's histogram as it is. The sums are exact too, and
    min() over an item's sum is not a sum over users: secure aggregation cannot replace the trusted
    server here.

    Cost
    ----
    A summary takes 8 K bytes for every distinct item, K thresholds: 11 MB for 18,000 items and 75
    thresholds, 600 MB for a million items. Fewer thresholds make it smaller.
    """

    wire_name: ClassVar[str] = "size-curves"
    trust: ClassVar[Trust] = Trust.CENTRAL

    grid: tuple[int, ...]
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_grid(self.grid)

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send every item with its count; uses no randomness."""
        v = users.counts
        data, indptr = pack_records(v.vocabulary, v.indptr, v.item, v.count)
        return Report(users.ids, ragged={"records": data}, indptr=indptr)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Add up in one walk; integers, so bit-identical to folding the answers."""
        return self._add_up(len(users), users.counts)

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up: users and sizes by bin, (K,) int64; shares by item, (items, K) int64."""
        return self._add_up(report.n_users, _items(report))

    def _add_up(self, n_users: int, items: Items) -> Summary:
        keys, shares, users, sizes = size_curves(items, self.grid)
        values = shares if len(keys) else np.zeros(0, dtype=np.int64)  # as an empty merge
        return Summary(n_users, {"users": users, "sizes": sizes}, {"shares": Keyed(keys, values)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a histogram: distinct UTF-8 items, counts > 0."""
        only_rows(report, "records")
        count = _items(report).count
        if count.size and count.max() >= 1 << 62:
            raise WireError(f"'records' holds the count {count.max()}, not below 2^62")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound the bins by all users, and an item's shares by one whole share of everybody."""
        k = len(self.grid)
        return {
            "users": Bounds((k,), "i", 0, n_users),
            "sizes": Bounds((k,), "i", 0, n_users * self.grid[-1]),
            "shares": Bounds((None, k), "i", 0, n_users * SHARE, part="keyed"),
        }

    def check_summary(self, summary: Summary) -> None:
        """Compare the parts with each other as well: one bin and one whole share per user."""
        part = summary.keyed.get("shares")
        if part is not None and not len(part.keys) and part.values.shape == (0,):  # an empty merge
            part = Keyed(part.keys, part.values.reshape(0, len(self.grid)))
            summary = replace(summary, keyed={**summary.keyed, "shares": part})
        super().check_summary(summary)
        users, sizes = summary.sums["users"], summary.sums["sizes"]
        points = np.array((*self.grid, self.grid[-1]), dtype=np.int64)
        low, high = users * np.minimum(points[:-1] + 1, points[-1]), users * points[1:]
        bad = (sizes < low) | (sizes > high)
        if bad.any():
            k = int(np.argmax(bad))
            raise WireError(f"'sizes' holds {sizes[k]}, outside [{low[k]}, {high[k]}]")
        if users.sum() > summary.n_users:
            raise WireError(f"'users' adds up to {users.sum()}, more than {summary.n_users}")
        total = float(summary.keyed["shares"].values.sum(dtype=np.float64))
        if total > summary.n_users * SHARE * ROUNDING:
            most = summary.n_users
            raise WireError(f"'shares' adds up to {total / SHARE:g} users, more than {most}")


def check_grid(grid: tuple[int, ...]) -> None:
    """Raise ValueError unless the thresholds are positive, increasing and not too many."""
    whole = all(type(c) is int for c in grid)
    if not grid or not whole or grid[0] < 1 or any(a >= b for a, b in pairwise(grid)):
        raise ValueError(f"thresholds must be positive, increasing integers, got {grid[:8]}")
    if grid[-1] >= MOST_SIZE:
        raise ValueError(f"thresholds must lie below 2^31, got {grid[-1]}")
    if len(grid) > MOST_POINTS:
        raise ValueError(f"at most {MOST_POINTS} thresholds, got {len(grid)}")


def _items(report: Report) -> Items:
    """Read rows of records as users' items."""
    if report.indptr is None:
        raise WireError("rows of 'records' need their indptr")
    data = report.ragged["records"]
    indptr, starts, lengths, counts = parse_records(data, report.indptr)
    keys, item = intern_records(data, starts, lengths)
    return Items(keys, indptr, item.astype(np.uint32), counts)
