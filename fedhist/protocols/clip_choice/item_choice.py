"""How the clip C of one item's counts is chosen: from the number of users above each threshold.

Clipping at C costs as much as noise where 1 / epsilon users exceed C, the "top 1 / epsilon count"
[1, appendix C.4], a rank below the error of any mechanism with a small budget: looked for as it
stands, it is found in the empty tail, at a C far above every count. There are two ways out.

"quantile" raises the rank by the error of the mechanism, 2 ln(K / 0.02) / epsilon'. It is the
paper's choice, made possible. So many users exceed C that clipping errs far more than noise does:
where counts are Poisson, debiasing repairs that; where a few users hold much, nothing does.

"excess" keeps the rank and counts users beyond it, with weights that fall with C before any data.
No law is the better one on all data. Of two populations that differ in k users, who have v counts
each where nobody else has more than C, an epsilon'-DP choice that stays at C with probability p on
the one does so with e^(-k epsilon') p at least on the other, and loses k (v - C) of its counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from fedhist.privacy.adjacency import ONE_COUNT
from fedhist.protocols.clip_choice.theory import em_probabilities, excess_probabilities
from fedhist.protocols.shared.contributions import (
    decay_of,
    excess_scores,
    safe_rank,
    small_first,
    tail_scores,
)
from fedhist.session.curator import Curator

CHOICES = ("excess", "quantile")

SLACK = math.log(100)
"""Logits by which more users above C than it looks for are unlikely to be left there."""


@dataclass(frozen=True)
class ItemChoice:
    """A choice of one of the thresholds, by the exponential mechanism: epsilon-DP.

    Attributes
    ----------
    rule : str
        One of :data:`CHOICES`.
    edges : tuple of float
        Increasing thresholds, in counts.
    rank : float
        Users above C at which clipping costs as much as noise.
    n_users : int
        Public number of users.
    epsilon : float
        Of the choice.
    """

    rule: str
    edges: tuple[float, ...]
    rank: float
    n_users: int
    epsilon: float

    @property
    def level(self) -> float:
        """Users above C that are looked for."""
        by_rank = self.rule == "quantile"
        return safe_rank(self.rank, len(self.edges), self.epsilon) if by_rank else self.rank

    @property
    def most_above(self) -> float:
        """Users above C of whom more are hardly left there."""
        return self.level + SLACK * (2 if self.rule == "quantile" else 1) / self.epsilon

    @property
    def _first(self) -> Floats:
        return small_first(self.edges, decay_of(self.n_users, self.epsilon))

    def draw(self, tails: NDArray[np.int64], server: Curator) -> int:
        """Draw a threshold, by its index, from the users above each one."""
        scores, size = tail_scores(tails, self.level), 1.0
        if self.rule == "excess":  # half the range of the changes: logits are scores times epsilon
            scores, size = excess_scores(tails, self.level) + self._first / self.epsilon, 0.5
        return server.exponential(
            scores, sensitivity=size, epsilon=self.epsilon, label="choice of C", moves=ONE_COUNT
        )

    def law(self, above: Floats) -> Floats:
        """Compute the exact law of :meth:`draw`, (K,), from the users above. NOT PRIVATE."""
        if self.rule == "excess":
            return excess_probabilities(above, self.level, 1.0, self.epsilon, self._first)
        return em_probabilities(above, self.level, 1.0, self.epsilon, interval=True)
