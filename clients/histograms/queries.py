"""Counts that users send of the items of a public domain: clipped to a ball, or item by item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.bounding.contribution import clip_rows, clipped_counts, domain_lookup, grid_limit
from clients.records.ragged_rows import check_distinct, only_rows
from fedhist.base.arrays import ROUNDING, Array, Bounds
from fedhist.base.checks import check_scale, check_size, check_within
from fedhist.base.errors import WireError
from fedhist.model.query import CHUNK, Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust, sensitivity_multipliers, sqrt_up
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys, check_domain
from fedhist.users.streams import Streams

MOST_ITEM_CLIP = 1 << 30


@register_query
@dataclass(frozen=True)
class ClippedCounts(Query):
    """Each user answers its in-domain counts, scaled into a norm ball of radius ``clip``."""

    wire_name: ClassVar[str] = "clipped-counts"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys  # others are dropped before any norm is computed
    clip: float  # C, in counts
    norm: int  # 1 or 2
    grid: float = 0.0  # 0: real values; else rounded down to it, sent as integers
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_size("clip", self.clip, zero=True)
        if self.clip:
            check_scale("clip", self.clip)
        if self.norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {self.norm}")
        if not self.grid >= 0 or (self.clip > 0 and self.grid > self.clip):
            raise ValueError(f"grid must lie in [0, clip = {self.clip}], got {self.grid}")
        if self.grid:
            grid_limit(self.clip, self.grid, self.norm)

    @property
    def limit(self) -> float:
        """Largest norm of one user's answer, in the units that are sent; exact on a grid."""
        if not self.grid:
            return self.clip
        limit = grid_limit(self.clip, self.grid, self.norm)
        return float(limit) if self.norm == 1 else sqrt_up(limit)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """Sensitivity of the sum in this norm, in the units that are sent (counts or steps)."""
        k1, k2 = sensitivity_multipliers(adjacency, len(self.domain))
        if not self.grid or self.norm == 1:
            return (k1 if self.norm == 1 else k2) * self.limit
        return sqrt_up(round(k2**2) * grid_limit(self.clip, self.grid, 2))

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return the sensitivity in grid steps; none in the other norm, or without a grid."""
        if not self.grid or norm != self.norm:
            return super().integer_sensitivity(norm, adjacency)
        return self.sensitivity(adjacency)

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        items = users.counts
        lookup = domain_lookup(self.domain, items.vocabulary)
        indptr, item, value = clip_rows(items, lookup, self.clip, self.norm, self.grid)
        return Report(users.ids, ragged={"item": item, "value": value}, indptr=indptr)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Clip and add up in one walk, bit-identical to folding the answers chunk by chunk."""
        items = users.counts
        lookup = domain_lookup(self.domain, items.vocabulary)
        d = len(self.domain)
        total = clipped_counts(items, lookup, d, self.clip, self.norm, self.grid, CHUNK)
        return Summary(len(users), sums={"counts": total})

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        d = len(self.domain)
        item, value = report.ragged["item"], report.ragged["value"]
        if self.grid:
            total = np.zeros(d, dtype=np.int64)
            np.add.at(total, item, value)
        else:
            # of nothing at all, bincount returns integers even where it is given weights
            total = np.bincount(item, weights=value, minlength=d).astype(np.float64)
        return Summary(report.n_users, sums={"counts": total})

    def check(self, report: Report) -> None:
        user = np.repeat(np.arange(report.n_users), np.diff(only_rows(report, "item", "value")))
        item, value = report.ragged["item"], report.ragged["value"]
        check_distinct(report, item, len(self.domain), "an item")
        Bounds((None,), "iu" if self.grid else "f", 0, self.limit * ROUNDING).check("value", value)
        size = np.bincount(user, value.astype(np.float64) ** self.norm, report.n_users)
        if self.grid and (size < 2.0**62).all():  # then integers cannot overflow: compare exactly
            size = np.zeros(report.n_users, dtype=np.int64)
            np.add.at(size, user, value.astype(np.int64) ** self.norm)
            most: float = grid_limit(self.clip, self.grid, self.norm)
        else:
            most = self.limit**self.norm * ROUNDING
        if (size > most).any():
            worst = size.max() ** (1 / self.norm)
            raise WireError(f"a row has l{self.norm} norm {worst}, outside [0, {self.limit}]")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        high = n_users * self.limit * ROUNDING
        return {"counts": Bounds((len(self.domain),), "i" if self.grid else "f", 0, high)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        size = float(np.linalg.norm(summary.sums["counts"].astype(np.float64), self.norm))
        if size > summary.n_users * self.limit * ROUNDING:
            most = f"{summary.n_users} users of {self.limit:g} each"
            raise WireError(f"'counts' has l{self.norm} norm {size:g}, more than {most}")


@register_query
@dataclass(frozen=True)
class PerItemClip(Query):
    """Each user answers min(its count, ``clip``) for every item, of a few.

    Privacy
    -------
    A user's answer lies in the box [0, C]^d. Adding, removing or zeroing out a user changes the
    sum by a point of the box, replacing one by a difference of two, in [-C, C]^d: all have the l1
    sensitivity d C and the l2 sensitivity sqrt(d) C, attained by a user with C of everything.
    """

    wire_name: ClassVar[str] = "per-item-clip"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys
    clip: int
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_within("clip", self.clip, 1, MOST_ITEM_CLIP)

    @property
    def l1_sensitivity(self) -> float:
        """Return d C, under every adjacency."""
        return float(len(self.domain) * self.clip)

    @property
    def l2_sensitivity(self) -> float:
        """Return sqrt(d) C, under every adjacency; rounded up."""
        return sqrt_up(len(self.domain) * self.clip**2)

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return the sensitivity for a user; sqrt 2 or 2 where one record is replaced by another.

        A record that becomes another takes 1 from one count and adds 1 to another, or less where
        a count is cut.
        """
        if adjacency is Adjacency.REPLACE_ITEM:
            return 2.0 if norm == 1 else sqrt_up(2)
        return self.l1_sensitivity if norm == 1 else self.l2_sensitivity

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        position, value = self._entries(users)
        owner = np.repeat(np.arange(len(users)), users.n_items())
        out = np.zeros((len(users), len(self.domain)), dtype=np.int64)
        inside = position >= 0
        out[owner[inside], position[inside]] = value[inside]
        return Report(users.ids, {"counts": out})

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Clip and add up in one walk; integers, so bit-identical to folding the answers."""
        position, value = self._entries(users)
        total = np.zeros(len(self.domain) + 1, dtype=np.int64)
        np.add.at(total, position, value)  # position -1, outside the domain, is the last entry
        return Summary(len(users), {"counts": total[:-1].copy()})

    def _entries(self, users: Users) -> tuple[Array, Array]:
        """Domain position (-1: outside) and clipped count of each entry of the users' records."""
        items = users.counts
        lookup = domain_lookup(self.domain, items.vocabulary)
        position = items.item if lookup is None else lookup[items.item]
        value = np.minimum(items.count, self.clip).astype(np.int64)
        return position.astype(np.int64), value

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        return Summary(report.n_users, {"counts": report.arrays["counts"].sum(axis=0)})

    def check(self, report: Report) -> None:
        counts = only_array(report, "counts")
        Bounds((report.n_users, len(self.domain)), "i", 0, self.clip).check("counts", counts)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {"counts": Bounds((len(self.domain),), "i", 0, n_users * self.clip)}
