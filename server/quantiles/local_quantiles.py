"""Quantiles of the users' samples under local privacy: one pool of answers for all levels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.quantiles.queries import RankCells
from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.checks import check_within
from fedhist.base.errors import warned
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, check_budget
from fedhist.users.cohort import Cohort, salt_of_folds
from server.quantiles.quantile_target import QuantileTarget
from server.quantiles.rank_pool import (
    RankPool,
    answer_variances,
    best_groups,
    in_groups,
    level_variances,
)

if TYPE_CHECKING:
    from server.session.curator import Curator


@register_protocol
@dataclass(frozen=True)
class LocalQuantiles(QuantileTarget):
    """Quantiles of real samples, or of the users' own means, under local differential privacy.

    The value of each level is the middle of a public bin: integers in bins of width 1 are answered
    by integers. Each user answers once, about one of its samples or its mean.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    levels : tuple of float
        The levels asked, J of them, increasing in (0, 1): (0.25, 0.5, 0.75) for the quartiles.
    low, high : float
        Public range of the bins; what lies outside counts in the bin at that end.
    n_users : int
        Public planning value; where it is too small nobody is asked.
    n_bins : int
        K.
    of : {"samples", "user-means"}
        Quantiles of F(x) = (1/n) sum_u (share of user u's samples that are at most x), in which
        every user weighs the same; or of the users' own means.
    salt : int
        Public salt of the split into cohorts.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive, exact as drawn. A hash of
    public ids splits the users into groups. Each user answers one query, which depends on public
    numbers and earlier groups' answers. :meth:`rounds` has the proof.

    Error
    -----
    The largest rank error of the J quantiles: of order sqrt(J / n) / tanh(epsilon / 2) for small
    epsilon, 1 / sqrt(n) for large. A user without usable samples adds noise and draws no quantile
    away. The value +- 1.96 ``stderr`` holds the true quantile in nine runs of ten at least,
    whatever the data. Where a rank error above 0.25 is expected nobody is asked.

    Notes
    -----
    In each of ceil(log2 K) + 4 rounds, users say between which bins their number lies. The server
    computes how likely each bin is to hold a quantile, and asks next in the middle of what is
    likely: a binary search with noise [1].

    References
    ----------
    .. [1] Aamand et al., "Lightweight protocols for distributed private quantile estimation",
       ICML 2025: one user a step; the pool, the groups and the rounds: own.
    """

    name: ClassVar[str] = "local-quantiles"
    paper: ClassVar[str] = "Aamand et al., ICML 2025; rounds of pooled answers: own"
    revision: ClassVar[int] = 1

    epsilon: float
    levels: tuple[float, ...]
    low: float
    high: float
    n_users: int
    n_bins: int = 256
    of: str = "samples"
    salt: int = 1

    @property
    def overstates(self) -> str:
        return "the value +- 1.96 of it holds the true quantile, whatever the data are"

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        self.check_levels()
        check_within("salt", self.salt, 0, 1 << 63, "[)")

    @property
    def max_rounds(self) -> int:
        return (self.n_bins - 1).bit_length() + 4

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)

    @property
    def variances(self) -> Floats:
        """Variance of each level's rank, times the users: (J,); from public numbers only."""
        epsilon = float(self.epsilon)
        return level_variances(epsilon, self.positions, best_groups(epsilon, self.positions))

    @property
    def least_users(self) -> int:
        """Fewest users that are asked: a rank is off by 1/4, the median any of the middle half."""
        return math.ceil(min(16 * float(self.variances.max()), 1e300))

    def question(self, upto: Array, cohort: Cohort) -> RankCells:
        """Ask a cohort about one bin for each level, equal ones once."""
        bins, which = np.unique(upto, return_inverse=True)
        levels = np.bincount(which, self.levels) / np.bincount(which)
        groups = best_groups(float(self.epsilon), levels)
        return RankCells(
            self.low,
            self.high,
            self.n_bins,
            self.of,
            self.epsilon,
            in_groups(bins, groups),
            in_groups(levels, groups),
            cohort,
            salt_of_folds(self.salt),
        )

    def rounds(self, server: Curator) -> Script:
        """Ask cohort after cohort, invert the curve that fits all answers.

        Privacy
        -------
        Neighbours differ in one user's record: the answers before its own have the same law under
        both; its own has probabilities within e^epsilon, given these, whatever bins it is asked
        about; later answers depend on it through the transcript only. So every transcript has
        probabilities within e^epsilon, and the estimate is a function of it.
        """
        if self.n_users < self.least_users:
            return self.too_few(self.least_users)
        q, K, R = self.positions, self.n_bins, self.max_rounds
        pool, answered = RankPool(K), 0
        upto: Integers = np.maximum(np.arange(1, len(q) + 1) * K // (len(q) + 1) - 1, 0)
        for r in range(R):
            query = self.question(upto, Cohort(self.salt, r / R, (r + 1) / R))
            summary = yield query
            shares, users = query.shares(summary)
            once = np.diff(query.upto, axis=1, prepend=-1) > 0  # the last bin of a short group
            weights = users[:, None] / answer_variances(float(self.epsilon), query.levels) * once
            pool = pool.more(query.upto, shares, weights)
            upto, answered = pool.next_bins(q), answered + summary.n_users
        if not answered:
            return Estimate.failed("nobody answered")
        ranks = np.sqrt(self.variances / answered)
        bins, off, told = pool.quantile_bins(q, ranks), float(ranks.max()), list[str]()
        if off > 0.1:  # as one in three is
            what = f"with so few users a quantile's rank is off by {off:.2f} or so"
            means = f"what is shown for the level 0.5 may be that of {0.5 + off:.2f}"
            told = [warned(what, means, "ask for fewer levels, or more users")]
        reach = pool.reach(q, ranks, bins) + 0.5
        return Estimate.ok(
            self.grid.midpoints[bins],
            stderr=reach * ((self.high - self.low) / K / 1.96),
            public={"n_report": float(answered), "rank_stderr": off},
            warnings=tuple(told),
        )

    def resolution_of(self, facts: Facts) -> float:
        """Return the largest share in one bin, and the draw of a cohort. NOT PRIVATE."""
        each = int(facts["usable"][0]) / self.max_rounds
        drawn = math.sqrt(math.log(2e9) / 2 / max(each, 1.0))
        return self.largest_bin(facts) + drawn + 2 * math.sqrt(self.variances.max() / self.n_users)

    @classmethod
    def example(cls) -> Self:
        return cls(3.0, (0.25, 0.5, 0.75), 0.0, 1.0, n_users=800, n_bins=16)
