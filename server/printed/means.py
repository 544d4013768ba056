"""Means by localization as printed [1]_; epsilon-LDP, as the paper states.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Sections 3 and 4.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.means.queries import HashedVotes
from fedhist.model.query import Summary
from server.localize.choice import Plan, plan_paper
from server.means.mean import Mean
from server.means.mean_l2 import MeanL2
from server.means.mean_linf import MeanLinf
from server.means.sparse_mean import SparseMean, pick_support
from server.modes import Mode, register_printed
from server.printed.localize import FoldsAsPrinted


@register_printed
@dataclass(frozen=True)
class MeanAsPrinted(FoldsAsPrinted, Mean):
    """Section 3.1 to the letter."""

    mode: Mode = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.users != "may differ" or self.method not in ("auto", "vote"):
            raise ValueError(
                'mode "paper" votes and reports, whoever the users are: leave out users and '
                f"method, got {self.users!r} and {self.method!r}"
            )

    @property
    def chosen(self) -> str:
        """A vote, and clipped reports."""
        return "vote"


@register_printed
@dataclass(frozen=True)
class MeanLinfAsPrinted(FoldsAsPrinted, MeanLinf):
    """Section 3.2: Section 3.1 in every fold."""

    mode: Mode = "paper"


@register_printed
@dataclass(frozen=True)
class MeanL2AsPrinted(FoldsAsPrinted, MeanL2):
    """Section 3.3: range [-r, r] and delta = r sqrt(K log(n epsilon^2 T*) / (T* d2))."""

    mode: Mode = "paper"

    @property
    def half_range(self) -> float:
        """The radius."""
        return float(self.radius)

    @property
    def feasible(self) -> bool:
        """Whether the plan expects to beat the midpoint of the range."""
        return self.plan.feasible

    def fold_plan(self, n_users: float, half_range: float) -> Plan:
        """Plan a rotated coordinate by [1, eq. (34)]."""
        T = self.samples_per_user
        return plan_paper(n_users, T, self.scale, half_range, self.epsilon, self.n_folds)


@register_printed
@dataclass(frozen=True)
class SparseMeanAsPrinted(FoldsAsPrinted, SparseMean):
    """Section 4.1: the first T* samples, every vote counts, clipped sums with Laplace noise.

    Scores are taken from 1/2 on, and the first s of those; the means are those of Section 3.2.
    """

    mode: Mode = "paper"
    auto_vote: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        if self.vote == "sign":
            raise ValueError(f'mode "paper" reports sums with Laplace noise, got {self.vote!r}')
        if self.max_votes is not None:
            raise ValueError(f'in mode "paper" every vote counts, got max_votes = {self.max_votes}')
        super().__post_init__()

    @property
    def procedure(self) -> str:
        """Select where n epsilon^2 < d log d, the only rule that the paper's regimes allow."""
        if self.method != "vectors":
            return self.method
        strength, d = self.n_users * (self.epsilon * self.epsilon), self.dimension
        return "select" if not self.selects or strength < d * math.log(d) else "threshold"

    @property
    def vote_query(self) -> HashedVotes:
        """What the selecting users are asked [1, eq. (39), (40)]."""
        n, T, d, s = self.n_users, self.samples_per_user, self.dimension, self.sparsity
        least, items = paper_threshold(n, T, d, s, float(self.radius), self.epsilon)
        return replace(
            super().vote_query,
            threshold=least,
            max_votes=d,
            max_items=items,
            signed=False,
        )

    @property
    def votes(self) -> int:
        """What its noise is planned for: the sparsity."""
        return self.sparsity

    def select(self, query: HashedVotes, votes: Summary) -> NDArray[np.int64]:
        """Pick the first s coordinates whose score is 1/2 or more [1, eq. (41)]."""
        scores = query.scores(votes) * self.law.unit
        return pick_support(scores, self.sparsity, 0.5, first=True)

    def useless(self) -> str:
        """Never refuse."""
        return ""


def paper_threshold(
    n_users: float,
    samples_per_user: float,
    dimension: int,
    sparsity: int,
    radius: float,
    epsilon: float,
) -> tuple[float, int]:
    """Return (39), radius sqrt(K log(2 d) / T*), and how many first samples of a user count: T*.

    T* = min(T, exp(c n min(epsilon, epsilon^2) / s)), at least 1. For the paper's unnamed constants
    stand K = 2, with which a user casts one false vote at most in expectation, and c = 1/100.
    """
    power = 0.01 * n_users * min(epsilon, epsilon * epsilon) / sparsity
    items = max(1, math.floor(min(samples_per_user, math.exp(min(700.0, power)))))
    return radius * math.sqrt(2 * math.log(2 * dimension) / items), items
