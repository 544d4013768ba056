"""Appendix E as printed: zero indicators, and the printed budget of each symbol [1]_.

For many symbols it spends more than epsilon. Its exp(S / (2 epsilon)) is read as
exp(epsilon S / 2) also here.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Array
from fedhist.model.modes import Mode
from fedhist.model.registry import register_printed
from fedhist.privacy.guarantee import Adjacency, Guarantee, Release, Trust, bounded_range, pure
from fedhist.privacy.ledger import Entry, spent
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.protocols.distributions.ragged import theory
from fedhist.protocols.distributions.ragged.ragged_distribution import AVERAGES, RaggedDistribution
from fedhist.protocols.distributions.ragged.release import RaggedTask
from fedhist.protocols.printed.claims import AsPrinted
from fedhist.session.curator import Curator


@dataclass(frozen=True)
class RaggedTaskAsPrinted(RaggedTask):
    """Public and released numbers of the printed second half."""

    strict: ClassVar[bool] = False
    counts_kept: ClassVar[bool] = True

    def touched_by(self, step: str) -> int:
        """Most symbols whose statistics one user changes in a step.

        A user who is no longer kept takes a 1 away from all sums of N_i <= t but those of the
        symbols it has more than t of, which for t > 0 may be none.
        """
        k = len(self.domain)
        return theory.zero_indicators_touched(k, self.size) if step == "presence" else k

    @property
    def epsilon_each(self) -> float:
        """Budget of one symbol's selection, and of its Laplace noise."""
        k = len(self.domain)
        return theory.printed_epsilon_each(k, self.size, self.epsilon, self.delta)

    @property
    def law(self) -> NoiseLaw:
        """Noise on every number of users that have a symbol not."""
        return NoiseLaw("discrete-laplace", 1 / self.epsilon_each)

    def best_steps(self, users: float) -> tuple[str, ...]:
        """Select where k <= m-hat, and do both otherwise."""
        return ("phs",) if len(self.domain) <= self.size else ("phs", "presence")

    def costs(self, steps: tuple[str, ...]) -> list[Release]:
        """Charge what the steps really cost, one entry each."""
        each = self.epsilon_each
        found = []
        for step in steps:
            q = self.touched_by(step)
            select = Release(q * each, 0.0, q * bounded_range(each).rho)
            found.append(pure(q * each) if step == "presence" else select)
        return found

    def present(
        self, server: Curator, present: NDArray[np.int64], total: int, users: float
    ) -> Array:
        """Release the numbers of users that have each symbol not, and take them from s-hat."""
        q = self.touched_by("presence")
        lacking = server.discrete_laplace(
            total - present, l1_sensitivity=q, epsilon=q * self.epsilon_each, label="zeros"
        )
        return np.asarray(users - lacking)


@register_printed
@dataclass(frozen=True)
class RaggedDistributionAsPrinted(AsPrinted, RaggedDistribution):
    """Half of epsilon for "dyadic", and the printed budgets per symbol in the other half."""

    source: ClassVar[str] = "a bound: Liu et al. 2020, App. E, presence or selection alone"
    mode: Mode = "paper"

    def __post_init__(self) -> None:
        if self.median != "dyadic" or not self.delta:
            raise ValueError(
                'mode "paper" needs median = "dyadic" and delta > 0, '
                f"got {self.median!r} and {self.delta}"
            )
        if self.adjacency != Adjacency.REPLACE_USER.value:
            raise ValueError(f'mode "paper" is for "replace-user", got {self.adjacency!r}')
        if self.mechanism in AVERAGES:
            raise ValueError(f'mode "paper" has no mechanism {self.mechanism!r}')
        super().__post_init__()

    @property
    def averages(self) -> bool:
        """Never: "auto" is what the paper runs."""
        return False

    @property
    def guarantee(self) -> Guarantee:
        """What is provable at the worst m-hat, with all symbols that one user may change.

        By basic composition or zCDP, Laplace noise on sums of zero indicators being
        (q epsilon_1)-DP.
        """
        if math.isinf(self.epsilon):
            return self.claimed
        tasks = (self.release_task(1 << j) for j in range(self.m_max.bit_length()))
        costs = ([pure(self.epsilon / 2), *t.costs(t.steps(0.0))] for t in tasks)
        totals = (spent([Entry("", c) for c in some], self.delta).epsilon for some in costs)
        return Guarantee(max(1e-12, *totals), self.delta, Trust.CENTRAL, Adjacency.REPLACE_USER)

    def release_task(self, size: int) -> RaggedTaskAsPrinted:
        """Collect what the second half needs to know, given m-hat."""
        return RaggedTaskAsPrinted(**vars(super().release_task(size)))

    @property
    def budgets(self) -> tuple[float, float]:
        """Half of epsilon each for the median and for the rest."""
        return self.epsilon / 2, self.epsilon / 2
