"""How much users contribute: histograms of their norms, and private quantiles of them.

These are the statistics from which a clipping threshold is chosen. They say nothing of which items
a user has: one user adds one bounded, non-negative number to one bin.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Section 4.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clients.bounding.contribution import domain_lookup
from clients.bounding.kernels import Columns, columns_of, norm_bins, user_norms
from fedhist.base.arrays import Bounds, Floats
from fedhist.base.checks import check_size, check_within
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.adjacency import ONE_COUNT
from fedhist.privacy.guarantee import Adjacency, Trust, check_budget
from fedhist.privacy.sensitivity import sqrt_up
from fedhist.protocols.shared.domains import check_domain
from fedhist.session.curator import Curator
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams
from server.histograms.clip_search import prefix_factor, squared_change

STEPS = 1 << 20
"""Steps per radius in which slopes are sent: integers, whose sums are exact in any order."""

MOST_CAP = 1 << 40


@register_query
@dataclass(frozen=True)
class NormHistogram(Query):
    """Each user adds its weight to the bin of its norm.

    Parameters
    ----------
    domain : Keys or None
        Public items, others are dropped before any norm is computed; None: all items.
    edges : tuple of float
        Increasing, non-negative, in counts. A user with norm v falls in bin k if edges[k] < v <=
        edges[k + 1], the last bin being open above; one with v <= edges[0] adds nothing.
    norm : {1, 2}
    radius : float
        0: everybody weighs 1. Positive: the weight is the slope ||N||_1 / ||N||_norm, cut to the
        radius and rounded down to a multiple of radius / 2^20.
    cohort : Cohort, optional

    Privacy
    -------
    The sum over all bins above an edge has sensitivity :attr:`most` whether a user is added,
    removed, zeroed out or replaced: with and without the change it lies in [0, most]. The whole
    vector of bins changes by at most one ``most`` in one bin, or, under replacement, in two.
    """

    wire_name: ClassVar[str] = "norm-histogram"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys | None
    edges: tuple[float, ...]
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
        return STEPS if self.radius else 1

    @property
    def unit(self) -> float:
        """Value of one step."""
        return self.radius / STEPS if self.radius else 1.0

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
        bins, weight = np.empty(len(users), np.int32), np.empty(len(users), np.int64)
        how = np.array(self.edges, dtype=np.float64), self.norm, float(self.radius), STEPS
        norm_bins(_columns(users, self.domain), *how, bins, weight)
        return Report(users.ids, {"bin": bins, "weight": weight})

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up the weights by bin: (K,) int64."""
        out = np.zeros(len(self.edges) + 1, dtype=np.int64)
        np.add.at(out, report.arrays["bin"], report.arrays["weight"])
        return Summary(report.n_users, {"weight": out[1:]})

    def check(self, report: Report) -> None:
        """Raise WireError unless every user names a bin and a weight that it may have."""
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
        """Bound each bin by everybody's largest weight."""
        return {"weight": Bounds((len(self.edges),), "i", 0, n_users * self.most)}

    def check_summary(self, summary: Summary) -> None:
        """Bound the whole sum as well: a user weighs in one bin only."""
        super().check_summary(summary)
        total, most = int(summary.sums["weight"].sum()), summary.n_users * self.most
        if total > most:
            raise WireError(f"'weight' adds up to {total}, more than {most}")


CODED_BITS = 9
"""Of the encoder of the bins where nodes send them coded: 2^20 steps of 2^32 users fit 2^63."""


@register_query
@dataclass(frozen=True)
class CodedNormHistogram(NormHistogram):
    """The same, and nodes send E x for the bins x from the last to the first, not x itself.

    For :mod:`fedhist.protocols.clip_choice.by_curve`, E being the encoder of prefix sums.

    Privacy
    -------
    None by itself. :meth:`integer_sensitivity` is that of E x in l2, exactly.
    """

    wire_name: ClassVar[str] = "coded-norm-histogram"

    @property
    def encoder(self) -> NDArray[np.int64]:
        """E, lower triangular with entries in [0, 2^9]: (K, K) int64."""
        return prefix_factor(len(self.edges), CODED_BITS)[0]

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return the l2 sensitivity of E x."""
        if norm != 2 or adjacency is Adjacency.REPLACE_ITEM:
            return Query.integer_sensitivity(self, norm, adjacency)
        return sqrt_up(self.most**2 * squared_change(self.encoder, adjacency))

    def fold(self, report: Report) -> Summary:
        """Add up the weights by bin, and encode: (K,) int64."""
        weight = super().fold(report).sums["weight"]
        return Summary(report.n_users, {"coded": self.encoder @ weight[::-1]})

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound each number by everybody's largest weight."""
        most = n_users * self.most << CODED_BITS
        return {"coded": Bounds((len(self.edges),), "i", 0, most)}

    def check_summary(self, summary: Summary) -> None:
        """Check the bounds; a user weighs in one bin only, and no entry of E is larger."""
        Query.check_summary(self, summary)


@register_query
@dataclass(frozen=True)
class TotalContribution(Query):
    """Each user adds the number of its items, at most ``cap``.

    Parameters
    ----------
    domain : Keys or None
        Public items; None: all.
    cap : int
        Sensitivity of the sum under every adjacency.
    cohort : Cohort, optional
    """

    wire_name: ClassVar[str] = "total-contribution"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys | None
    cap: int
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        if self.domain is not None:
            check_domain(self.domain)
        check_within("cap", self.cap, 1, MOST_CAP)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send min(m, cap); uses no randomness."""
        size = np.empty(len(users), dtype=np.float64)
        user_norms(_columns(users, self.domain), 1, size)
        return Report(users.ids, {"total": np.minimum(size, self.cap).astype(np.int64)})

    def fold(self, report: Report) -> Summary:
        """Add up: (1,) int64."""
        total = report.arrays["total"].sum(keepdims=True, dtype=np.int64)
        return Summary(report.n_users, {"total": total})

    def check(self, report: Report) -> None:
        """Raise WireError unless every user sends an integer in [0, cap]."""
        if report.arrays.keys() != {"total"} or report.ragged:
            raise WireError(f"'total' is expected, got {[*report.arrays]}")
        Bounds((report.n_users,), "i", 0, self.cap).check("total", report.arrays["total"])

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound the sum by everybody's cap."""
        return {"total": Bounds((1,), "i", 0, n_users * self.cap)}


def safe_rank(rank: float, n_edges: int, epsilon: float, beta: float = 0.02) -> float:
    """Raise a rank by the error that the exponential mechanism makes with probability beta.

    Below its own error the mechanism falls into the empty tail, where all edges score alike: the
    paper's rank 1 / epsilon with a tenth of the budget always does.

    >>> round(safe_rank(10.0, 41, 0.1), 1)
    162.5
    """
    check_budget(epsilon)
    return rank + (0.0 if math.isinf(epsilon) else 2 * math.log(n_edges / beta) / epsilon)


def tail_scores(
    tails: NDArray[np.int64], level: float, *, interval: bool = True
) -> NDArray[np.float64]:
    """Minus the distance of a level from what each threshold stands for, (K,): at most 0.

    Norms count as the last threshold at most, so that nobody is above that one. By intervals,
    threshold k stands for all levels from tails[k] to tails[k - 1], the first for all higher ones
    as well: some score is always 0, also where many users have equal norms and tails jump. By
    points, threshold k stands for tails[k] alone.

    Parameters
    ----------
    tails : (K,) int64
        Sums over the users above each of the increasing thresholds, :meth:`NormHistogram.tails`.
    level : float
        In the same steps; non-negative.
    interval : bool

    Privacy
    -------
    A score changes by at most what one user changes a tail: it is a maximum of such functions.
    NOT PRIVATE by itself.

    Examples
    --------
    >>> tail_scores(np.array([380, 73, 0, 0]), 153.0).tolist()
    [-227.0, 0.0, -80.0, -153.0]
    >>> tail_scores(np.array([380, 73, 0, 0]), 153.0, interval=False).tolist()
    [-227.0, -80.0, -153.0, -153.0]
    """
    low = np.append(tails[:-1], 0).astype(np.float64)
    if not interval:
        return np.asarray(-np.abs(low - level))
    high = np.append(np.inf, low[:-1])
    return np.asarray(np.minimum(np.minimum(level - low, high - level), 0.0))


def excess_scores(tails: NDArray[np.int64], level: float) -> NDArray[np.float64]:
    """Minus what each tail has beyond a level, (K,): at most 0, and 0 for the last threshold.

    With :func:`small_first` before any data: of the thresholds that few users exceed, small ones
    are the likely ones, and each user too many beyond one makes it less likely.

    Privacy
    -------
    One user moves the scores within a range of ``most``, that of
    :attr:`NormHistogram.most`: with weights w and w' at norms N > N' before and after (or the other
    way round), tails below N' move by w' - w, those from N' to below N by -w, and the others not at
    all. All of these lie within max(w, w') of each other and of 0, and what is beyond a level moves
    by as much at most, and the same way. Weights exp(epsilon score / most) then change by factors
    whose ratio is at most e^epsilon, and so do they over their sum: epsilon-DP, and of
    epsilon-bounded range, under every adjacency. Scores that move both ways need a factor of 2.
    NOT PRIVATE by itself.

    Examples
    --------
    >>> excess_scores(np.array([380, 73, 9, 2]), 20.0).tolist()
    [-360.0, -53.0, 0.0, 0.0]
    """
    low = np.append(tails[:-1], 0).astype(np.float64)
    return np.asarray(0.0 - np.maximum(low - level, 0.0))


def small_first(edges: ArrayLike, decay: float) -> Floats:
    """Log weights of thresholds before any data: -decay ln C, (K,).

    A threshold that is too large costs noise in proportion to C: there are many of them, whose
    users nobody counts. Weights are public; they change no privacy.
    """
    return -decay * np.log(np.asarray(edges, dtype=np.float64))


DECAYS = ((25.0, 2.0), (900.0, 3.0), (8000.0, 4.0), (math.inf, 6.0))


def decay_of(n_users: int | None, epsilon: float) -> float:
    """How fast weights shall fall with a threshold: from users and the epsilon of its choice.

    Weights that fall fast keep out of the thresholds that nobody exceeds, and take small ones where
    few users have much. Least regret over populations as of
    :data:`fedhist.protocols.clip_choice.budget.ITEM_SHARES`. Where their number is private 2.5:
    it errs up to 1.25 times as much as 4 among users who are alike, and down to a third as much
    where one in twenty has fifty times as many.

    >>> [decay_of(n, 0.4) for n in (None, 40, 1000, 10_000, 100_000)]
    [2.5, 2.0, 3.0, 4.0, 6.0]
    """
    if n_users is None:
        return 2.5
    return next(decay for bound, decay in DECAYS if n_users * epsilon <= bound)


def em_quantile(
    server: Curator,
    domain: Keys | None,
    norm: int,
    edges: tuple[float, ...],
    rank: float,
    epsilon: float,
    label: str = "em-quantile",
) -> Generator[Query, Summary, int]:
    """Choose the first edge that at most ``rank`` users exceed; one round.

    By the exponential mechanism on :func:`tail_scores`: epsilon-DP, since a tail count changes by
    at most 1 under every adjacency.

    Returns
    -------
    int
        Index into ``edges``.
    """
    query = NormHistogram(domain, edges, norm)
    summary = yield query
    scores = tail_scores(query.tails(summary), rank)
    return server.exponential(
        scores, sensitivity=1.0, epsilon=epsilon, label=label, moves=ONE_COUNT
    )


def _columns(users: Users, domain: Keys | None) -> Columns:
    items = users.counts
    return columns_of(items, None if domain is None else domain_lookup(domain, items.vocabulary))
