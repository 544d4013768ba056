"""Counts clipped item by item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.bounding.contribution import domain_lookup
from fedhist.base.arrays import Array, Bounds
from fedhist.base.checks import check_within
from fedhist.model.query import Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.privacy.sensitivity import sqrt_up
from fedhist.protocols.shared.domains import check_domain
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams

MOST_CLIP = 1 << 30


@register_query
@dataclass(frozen=True)
class PerItemClip(Query):
    """Each user answers min(its count, ``clip``) for every item.

    Parameters
    ----------
    domain : Keys
        Public items, a few; others are dropped.
    clip : int
        C, in counts, for each item by itself.
    cohort : Cohort, optional

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
        check_within("clip", self.clip, 1, MOST_CLIP)

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
        """Send the clipped counts as (n, d) integers; uses no randomness."""
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
        """Add up by item: (d,) int64."""
        return Summary(report.n_users, {"counts": report.arrays["counts"].sum(axis=0)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every user sends integers in [0, clip]."""
        counts = only_array(report, "counts")
        Bounds((report.n_users, len(self.domain)), "i", 0, self.clip).check("counts", counts)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound each total by n_users times the clip."""
        return {"counts": Bounds((len(self.domain),), "i", 0, n_users * self.clip)}
