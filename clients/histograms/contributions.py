"""How much users contribute: a histogram of their norms, from which a threshold is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import columns_of, domain_lookup, user_norms
from fedhist.base.arrays import Bounds
from fedhist.base.checks import check_size
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust, sqrt_up
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys, check_domain
from fedhist.users.streams import Streams

NORM_STEPS = 1 << 20
"""Steps per radius, or per clip, in which numbers are sent: integers, whose sums are exact."""


@register_query
@dataclass(frozen=True)
class NormHistogram(Query):
    """Each user adds its weight to the bin of its norm.

    With a radius the weight is the slope ||N||_1 / ||N||_norm, cut to the radius and rounded down
    to a multiple of radius / 2^20; else it is 1.

    Privacy
    -------
    The sum over all bins above an edge has sensitivity :attr:`most` whether a user is added,
    removed, zeroed out or replaced: with and without the change it lies in [0, most]. The whole
    vector of bins changes by at most one ``most`` in one bin, or, under replacement, in two.
    """

    wire_name: ClassVar[str] = "norm-histogram"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys | None  # others are dropped before any norm is computed; None: all items
    edges: tuple[float, ...]  # bin k: edges[k] < norm <= edges[k + 1], the last is open
    norm: int
    radius: float = 0.0
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        if self.domain is not None:
            check_domain(self.domain)
        e = np.asarray(self.edges, dtype=np.float64)
        if not e.size or not np.isfinite(e).all() or e[0] < 0 or (e[1:] <= e[:-1]).any():
            raise ValueError(f"edges must be non-negative, finite, increasing; got {self.edges}")
        if self.norm not in (1, 2):
            raise ValueError(f"norm must be 1 or 2, got {self.norm}")
        check_size("radius", self.radius, zero=True)

    @property
    def most(self) -> int:
        """Largest weight of one user, in steps: the sensitivity of every tail."""
        return NORM_STEPS if self.radius else 1

    @property
    def unit(self) -> float:
        """Value of one step."""
        return self.radius / NORM_STEPS if self.radius else 1.0

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return that of the bins: a user weighs in one, and one who is replaced in two."""
        if adjacency is Adjacency.REPLACE_ITEM:
            return super().integer_sensitivity(norm, adjacency)
        if len(self.edges) == 1 or adjacency is not Adjacency.REPLACE_USER:
            return float(self.most)
        return 2.0 * self.most if norm == 1 else sqrt_up(2 * self.most**2)

    def tails(self, summary: Summary) -> NDArray[np.int64]:
        """Sum of the weights of users with norm > edges[k], in steps: (K,), non-increasing."""
        weight = summary.sums["weight"]
        return np.asarray(np.cumsum(weight[::-1])[::-1], dtype=np.int64)

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the bin (0: none) and the weight; uses no randomness."""
        items, domain = users.counts, self.domain
        lookup = None if domain is None else domain_lookup(domain, items.vocabulary)
        columns, size = columns_of(items, lookup), np.empty(len(users))
        user_norms(columns, self.norm, size)
        bins = np.searchsorted(np.array(self.edges, dtype=np.float64), size).astype(np.int32)
        weight = (bins > 0).astype(np.int64)
        if self.radius:
            l1 = np.empty(len(users))
            user_norms(columns, 1, l1)
            slope = np.divide(l1, size, out=np.zeros(len(users)), where=bins > 0)
            weight = np.floor(np.minimum(slope / self.radius, 1.0) * NORM_STEPS).astype(np.int64)
        return Report(users.ids, {"bin": bins, "weight": weight})

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        out = np.zeros(len(self.edges) + 1, dtype=np.int64)
        np.add.at(out, report.arrays["bin"], report.arrays["weight"])
        return Summary(report.n_users, {"weight": out[1:]})

    def check(self, report: Report) -> None:
        if report.arrays.keys() != {"bin", "weight"} or report.ragged:
            raise WireError(f"'bin' and 'weight' are expected, got {[*report.arrays]}")
        bins, weight = report.arrays["bin"], report.arrays["weight"]
        Bounds((report.n_users,), "i", 0, len(self.edges)).check("bin", bins)
        Bounds((report.n_users,), "i", 0, self.most).check("weight", weight)
        if (weight[bins == 0] != 0).any():
            raise WireError(f"a user in no bin has weight {weight[bins == 0].max()}")
        if not self.radius and (weight[bins > 0] != 1).any():
            raise WireError("a user in a bin has weight 0, expected 1")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {"weight": Bounds((len(self.edges),), "i", 0, n_users * self.most)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        total, most = int(summary.sums["weight"].sum()), summary.n_users * self.most
        if total > most:
            raise WireError(f"'weight' adds up to {total}, more than {most}")
