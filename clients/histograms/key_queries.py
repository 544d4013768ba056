"""What users send where nobody lists the items: samples of tokens or keys, whole histograms [1]_.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Section 5 (rand-clip).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.sampling import MOST_TOKENS, cut_words, random_clip
from clients.bounding.size_curves import SHARE_PARTS, size_curves
from clients.records.item_rows import pack_records, read_records
from clients.records.ragged_rows import only_rows
from fedhist.base.arrays import Bounds, offsets
from fedhist.base.checks import check_integer
from fedhist.base.errors import WireError
from fedhist.model.query import CHUNK, Keyed, Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.shards import Items
from fedhist.users.streams import Streams

Rows = tuple[NDArray[np.int64], NDArray[np.unsignedinteger], NDArray[np.uint64]]

WEIGHT = 1 << 20
"""Steps of a user's whole l2 norm."""

MOST_KEYS = 1 << 20


def weight_of(n_keys: int) -> int:
    """Weight of each of a user's keys in steps, floor(2^20 / sqrt(t)), exactly.

    >>> weight_of(1), weight_of(4), weight_of(50)
    (1048576, 524288, 148291)
    """
    return math.isqrt(WEIGHT**2 // n_keys)


class RecordQuery(Query):
    """Each user sends items by name, with counts: a row of records of bytes."""

    trust: ClassVar[Trust] = Trust.CENTRAL
    least: ClassVar[int] = 1
    """Smallest count of an item."""
    total: ClassVar[str] = ""
    """Name of the sums by key."""

    def rows(self, items: Items, rng: Streams) -> Rows:
        """Return what users send: indptr, items, counts."""
        return items.indptr, items.item, items.count.astype(np.uint64)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Pack the rows."""
        items = users.counts
        data, indptr = pack_records(items.vocabulary, *self.rows(items, rng))
        return Report(users.ids, ragged={"records": data}, indptr=indptr)

    def values(self, rows: Rows) -> NDArray[np.int64]:
        """Return what each entry adds to its key: its count."""
        return rows[2].astype(np.int64)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Add up by vocabulary position; strings only for the items that are sent."""
        vocabulary = users.vocabulary
        total, sent = np.zeros(len(vocabulary), np.int64), np.zeros(len(vocabulary), np.bool_)
        for chunk in users.blocks(CHUNK):
            rows = self.rows(chunk.counts, rng(chunk))
            np.add.at(total, rows[1], self.values(rows))
            sent[rows[1]] = True
        order = vocabulary.byte_order
        at = order[sent[order]]
        return Summary(len(users), keyed={self.total: Keyed(vocabulary.take(at), total[at])})

    def fold(self, report: Report) -> Summary:
        keys, indptr, item, count = self.read(report)
        total = np.zeros(len(keys), dtype=np.int64)
        np.add.at(total, item, self.values((indptr, item, count)))
        return Summary(report.n_users, keyed={self.total: Keyed(keys, total)})

    def read(self, report: Report) -> tuple[Keys, *Rows]:
        """Read the rows; WireError unless each is a histogram: distinct items in UTF-8."""
        indptr, data = only_rows(report, "records"), report.ragged["records"]
        return read_records(data, indptr, self.least)


@register_query
@dataclass(frozen=True)
class RandomClip(RecordQuery):
    """Each user answers with min(m, clip) of its m tokens, a uniform sample without replacement.

    With ``raw_support`` the whole support leaves the user, as the printed algorithm needs it: items
    of which the sample holds none are named with count 0.

    Privacy
    -------
    A row is a histogram of l1 norm at most C, whatever the coins. It is exact: the server is
    trusted with it, strings included.
    """

    wire_name: ClassVar[str] = "random-clip"
    total: ClassVar[str] = "counts"

    clip: int  # C, in tokens
    raw_support: bool = False
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_integer("clip", self.clip, MOST_TOKENS)

    @property
    def least(self) -> int:  # type: ignore[override]
        """Zeros belong to the raw support only."""
        return int(not self.raw_support)

    # -- client half -----------------------------------------------------------------------------

    def rows(self, items: Items, rng: Streams) -> Rows:
        return random_clip(items, self.clip, cut_words(rng), keep_zeros=self.raw_support)

    # -- server half -----------------------------------------------------------------------------

    def check(self, report: Report) -> None:
        _, indptr, _, count = self.read(report)
        Bounds((None,), "u", 0, self.clip).check("records", count)
        before = offsets(count)
        size = before[indptr[1:]] - before[indptr[:-1]]
        if (size > self.clip).any():
            raise WireError(f"a row adds up to {int(size.max())}, more than clip = {self.clip}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        least = 0 if self.raw_support else 1
        return {"counts": Bounds((None,), "i", least, n_users * self.clip, part="keyed")}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        size = float(summary.keyed["counts"].values.sum(dtype=np.float64))
        if size > summary.n_users * self.clip * (1 + 1e-9):
            most = f"{summary.n_users} users of {self.clip} each"
            raise WireError(f"'counts' adds up to {size:.15g}, more than {most}")


@register_query
@dataclass(frozen=True)
class DistinctKeys(RecordQuery):
    """Each user names at most ``limit`` of its distinct items, a uniform sample.

    Privacy
    -------
    The server gives each of t items of a user the weight floor(2^20 / sqrt(t)): a row has l2 norm
    at most 2^20 whatever the coins. It is exact: the server is trusted with it, strings included.
    """

    wire_name: ClassVar[str] = "distinct-keys"
    total: ClassVar[str] = "weights"

    limit: int
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_integer("limit", self.limit, MOST_KEYS)

    # -- client half -----------------------------------------------------------------------------

    def rows(self, items: Items, rng: Streams) -> Rows:
        """Each item with count 1."""
        once = replace(items, count=np.ones_like(items.count))
        return random_clip(once, self.limit, rng.substream("distinct-keys").words(1)[:, 0])

    def values(self, rows: Rows) -> NDArray[np.int64]:
        """Weight of every entry."""
        sizes = np.diff(rows[0])
        table = [0, *(weight_of(t) for t in range(1, int(sizes.max(initial=0)) + 1))]
        return np.repeat(np.array(table, dtype=np.int64)[sizes], sizes)

    # -- server half -----------------------------------------------------------------------------

    def check(self, report: Report) -> None:
        _, indptr, _, count = self.read(report)
        Bounds((None,), "u", 1, 1).check("records", count)
        most = int(np.diff(indptr).max(initial=0))
        if most > self.limit:
            raise WireError(f"a row names {most} items, more than limit = {self.limit}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        least = weight_of(self.limit)
        return {"weights": Bounds((None,), "i", least, n_users * WEIGHT, part="keyed")}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        weights = summary.keyed["weights"].values.astype(np.float64) / WEIGHT
        n, room = summary.n_users, 1 + 1e-9
        if float(np.linalg.norm(weights)) > n * room or weights.sum() > n * self.limit**0.5 * room:
            raise WireError(
                f"'weights' has l2 norm {np.linalg.norm(weights):g} and l1 norm {weights.sum():g}, "
                f"more than {n} users of {self.limit} items each can have"
            )


@register_query
@dataclass(frozen=True)
class SizeCurves(RecordQuery):
    """Each user sends its whole histogram; only sums over the users by size are kept.

    A summary takes 8 K bytes for every distinct item, K thresholds: 11 MB for 18,000 items and 75
    thresholds, 600 MB for a million items. Fewer thresholds make it smaller.

    Privacy
    -------
    Central trust: unfolded, a report is the user's histogram as it is. The sums are exact too, and
    min() over an item's sum is not a sum over users: secure aggregation cannot replace the trusted
    server here.
    """

    wire_name: ClassVar[str] = "size-curves"

    grid: tuple[int, ...]  # thresholds C in tokens, increasing
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        grid = self.grid
        whole = all(type(c) is int for c in grid)
        if not grid or not whole or grid[0] < 1 or any(a >= b for a, b in pairwise(grid)):
            raise ValueError(f"thresholds must be positive, increasing integers, got {grid[:8]}")
        if grid[-1] >= MOST_TOKENS:
            raise ValueError(f"thresholds must lie below 2^31, got {grid[-1]}")
        if len(grid) > 4096:  # a summary has a number for each, and each item
            raise ValueError(f"at most 4096 thresholds, got {len(grid)}")

    # -- client half -----------------------------------------------------------------------------

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Add up in one walk; integers, so bit-identical to folding the answers."""
        return self._add_up(len(users), users.counts)

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        return self._add_up(report.n_users, Items(*self.read(report)))

    def _add_up(self, n_users: int, items: Items) -> Summary:
        keys, shares, users, sizes = size_curves(items, self.grid)
        values = shares if len(keys) else np.zeros(0, dtype=np.int64)  # as an empty merge
        return Summary(n_users, {"users": users, "sizes": sizes}, {"shares": Keyed(keys, values)})

    def check(self, report: Report) -> None:
        count = self.read(report)[3]
        if count.size and count.max() >= 1 << 62:
            raise WireError(f"'records' holds the count {count.max()}, not below 2^62")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        k = len(self.grid)
        return {
            "users": Bounds((k,), "i", 0, n_users),
            "sizes": Bounds((k,), "i", 0, n_users * self.grid[-1]),
            "shares": Bounds((None, k), "i", 0, n_users * SHARE_PARTS, part="keyed"),
        }

    def check_summary(self, summary: Summary) -> None:
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
        if total > summary.n_users * SHARE_PARTS * (1 + 1e-9):
            most = summary.n_users
            raise WireError(f"'shares' adds up to {total / SHARE_PARTS:g} users, more than {most}")
