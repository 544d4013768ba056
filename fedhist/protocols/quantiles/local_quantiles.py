"""Quantiles of the users' samples under local privacy, over public bins: votes, or a search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from fedhist.base.checks import check_within
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, check_budget
from fedhist.protocols.quantiles.choice import Choice, Method, planned
from fedhist.protocols.quantiles.quantile_target import QuantileTarget
from fedhist.protocols.quantiles.search import Search
from fedhist.users.cohort import MAX_SALT

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

LocalKind = Literal["auto", "votes", "search"]


@register_protocol
@dataclass(frozen=True)
class LocalQuantiles(QuantileTarget):
    """Quantiles of real samples, or of the users' own means, under local differential privacy.

    The value has an entry for each level: the middle of a public bin. Each user answers once, about
    one number: one of its samples, drawn uniformly, or its own mean.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    levels : tuple of float
        The levels asked, J of them, increasing in (0, 1): (0.25, 0.5, 0.75) for the quartiles.
    low, high : float
        Public range of the bins; what lies outside counts in the bin at that end.
    n_users : int
        Public planning value, of which the script decides how to ask, and whether at all.
    n_bins : int
        K.
    of : {"samples", "user-means"}
        Quantiles of F(x) = (1/n) sum_u (share of user u's samples that are at most x), in which
        every user weighs the same; or of the users' own means.
    kind : {"auto", "votes", "search"}
        votes: each user names, through a frequency oracle, the bin of its number, or the node of a
        tree of bins that holds it; a curve is fitted to all of them, made monotone and inverted
        [1]. search: a bisection for every level, in rounds of one-bit answers. auto: the one of
        least predicted error for users who lie evenly over the bins.
    salt : int
        Public salt of the split into cohorts.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the cohorts of one salt are disjoint, so that each user
    answers one epsilon-LDP query, which depends on other users' messages only; exact as drawn.

    Error
    -----
    The largest rank error of the J quantiles, as of ``quantiles``. search: of order
    sqrt(J / n) / tanh(epsilon / 2) for each of them. votes: of order log(K) / (sqrt(n)
    sinh(epsilon / 2)), however many levels there are. A user without usable samples is left out by
    votes; in a search it counts half below and half above every level. Where more than 0.1 is
    planned, from public numbers, the estimate comes with a warning.

    References
    ----------
    .. [1] Cormode, Kulkarni & Srivastava, "Answering range queries under local differential
       privacy", VLDB 2019.
    """

    name: ClassVar[str] = "local-quantiles"
    paper: ClassVar[str] = "Cormode, Kulkarni & Srivastava, VLDB 2019; the search: own"

    epsilon: float
    levels: tuple[float, ...]
    low: float
    high: float
    n_users: int
    n_bins: int = 256
    of: str = "samples"
    kind: LocalKind = "auto"
    salt: int = 1

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        self.check_levels()
        check_within("salt", self.salt, 0, MAX_SALT, "[)")

    @property
    def plan(self) -> Choice[Method]:
        """How users are asked; from public numbers only."""
        return planned(self.kind, self.n_users, float(self.epsilon), self.levels, self.n_bins)

    @property
    def max_rounds(self) -> int:
        """One to log2 K, rounded up."""
        return self.plan.method.n_rounds

    @property
    def guarantee(self) -> Guarantee:
        """epsilon-LDP for a user's whole record."""
        return Guarantee(self.epsilon, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)

    def rounds(self, server: Curator) -> Script:
        """Ask every user once; find a bin for each level."""
        plan = self.plan
        if self.n_users < plan.least_users:
            return self.too_few(plan.least_users, f" at epsilon {self.epsilon:g}")
        bins, answered = yield from plan.method.ask(self.grid, self.salt)
        if not answered:
            return Estimate.failed("nobody answered")
        public = {"n_report": float(answered), "rounds": float(plan.method.n_rounds)}
        warnings = self.warned(plan.error)
        return Estimate.ok(self.grid.midpoints[bins], public=public, warnings=warnings)

    def resolution_of(self, facts: Facts) -> float:
        """Return the largest share of the users in one bin, and the draw of a cohort. NOT PRIVATE.

        The empirical distribution function of so many users, of one number each, is farther off
        with probability 1e-9 only.
        """
        ranks, method = self.ranks(facts), self.plan.method
        least = 1 / method.n_rounds
        if isinstance(method, Search):
            least = float(method.weights.min()) / len(self.levels)
        drawn = math.sqrt(math.log(2e9) / 2 / max(ranks.n * least, 1.0))
        return float(np.diff(ranks.ends, prepend=0.0).max()) + drawn

    @classmethod
    def example(cls) -> Self:
        """Build a small instance: the quartiles over 16 bins."""
        return cls(3.0, (0.25, 0.5, 0.75), 0.0, 1.0, n_users=800, n_bins=16)
