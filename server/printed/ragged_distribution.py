"""Appendix E as printed: zero indicators, and the printed budget of each symbol [1]_.

For many symbols it spends more than epsilon. Its exp(S / (2 epsilon)) is read as
exp(epsilon S / 2) also here.

m-hat is found as in Lemma 10: Laplace noise on every dyadic class of sizes, and the largest class
from which on the noisy counts still add up to s / 2 - B. Corrected: the slack B follows from the
sum of the noise (which grows with the root of the number of classes, not with the number); the
classes double from the second one on (b_i = 2 b_{i - 1} for i >= 2). It needs s >= 8 B: below that
B is not small beside s / 2, and the rule runs off the end of the classes, where all sums are noise.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E.
.. [2] Chan, Shi & Song, "Private and continual release of statistics", ACM TISSEC 2011, Lemma 2.8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Array
from fedhist.privacy.guarantee import Adjacency, Guarantee, Release, Trust, bounded_range, pure
from fedhist.privacy.ledger import Entry, spent
from fedhist.privacy.noise_law import NoiseLaw
from server.distributions.median_size import (
    Median,
    MedianSearch,
    MedianTask,
    RaggedTask,
    class_counts,
    size_query,
)
from server.distributions.ragged_distribution import AVERAGES, RaggedDistribution
from server.modes import Mode, register_printed
from server.printed.claims import AsPrinted
from server.session.curator import Curator


def dyadic_slack(task: MedianTask) -> float:
    """B: bound on the noise of every sum of the classes' counts at once, with 1 - beta [2].

    (2 / epsilon) min(v L, sqrt(8 v L) if L <= v else 4 L) with L = ln(2 v / beta).
    """
    v = task.classes
    log = math.log(2 * v / task.beta)
    spread = math.sqrt(8 * v * log) if log <= v else 4 * log
    return 2 / task.epsilon * min(v * log, spread)


def dyadic_search(task: MedianTask, server: Curator) -> MedianSearch:
    """Put noise on the classes, then take the last one from which on they hold s / 2 - B users.

    Privacy
    -------
    epsilon-DP: the counts of the classes have l1 sensitivity 2 under replacement; everything else
    is post-processing.
    """
    summary = yield size_query(task.domain, task.m_max)
    noisy = server.discrete_laplace(
        class_counts(summary), l1_sensitivity=2, epsilon=task.epsilon, label="classes of sizes"
    )
    return dyadic_median(noisy, task)


def dyadic_median(noisy: NDArray[np.int64], task: MedianTask) -> Median:
    """Find m-hat and s-hat from noisy counts of the classes; post-processing."""
    from_on = np.cumsum(noisy[::-1])[::-1].astype(np.float64)
    enough = np.flatnonzero(from_on >= task.n_users / 2 - dyadic_slack(task))
    last = int(enough[-1]) if len(enough) else 0
    if last == 0:
        return Median(0, 0.0, "more than half of the users seem to have no samples in the domain")
    if from_on[last] < 1:
        return Median(0, 0.0, "the noise exceeds the number of users with many samples")
    return Median(1 << (last - 1), float(from_on[last]))


def zero_indicators_touched(k: int, size: int) -> int:
    """Most sums of zero indicators that one replaced user changes: max(k - 1, min(k, 2 m-hat)).

    A user with m-hat samples of one symbol, replaced by one with fewer samples, takes k - 1 ones
    away. The paper has min(k, m-hat) (Theorem 15).

    >>> zero_indicators_touched(50, 5), zero_indicators_touched(50, 32)
    (49, 50)
    """
    return max(1, k - 1, min(k, 2 * size))


@dataclass(frozen=True)
class RaggedTaskAsPrinted(RaggedTask):
    """Public and released numbers of the printed second half."""

    def touched_by(self, step: str) -> int:
        """Most symbols whose statistics one user changes in a step.

        A user who is no longer kept takes a 1 away from all sums of N_i <= t but those of the
        symbols it has more than t of, which for t > 0 may be none.
        """
        k = len(self.domain)
        return zero_indicators_touched(k, self.size) if step == "presence" else k

    @property
    def epsilon_each(self) -> float:
        """Budget of one symbol's selection, and of its Laplace noise [1, Theorems 14 and 15].

        epsilon / (8 sqrt((k + 1) ln(2 / delta))) where k <= m-hat; otherwise half of epsilon over
        8 sqrt(min(k, m-hat) ln(2 / delta)).
        """
        k, log = len(self.domain), math.log(2 / self.delta)
        if k <= self.size:
            return self.epsilon / (8 * math.sqrt((k + 1) * log))
        return self.epsilon / 2 / (8 * math.sqrt(self.size * log))

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
        releases = []
        for step in steps:
            q = self.touched_by(step)
            select = Release(q * each, 0.0, q * bounded_range(each).rho)
            releases.append(pure(q * each) if step == "presence" else select)
        return releases

    def total(self, kept: int, users: float) -> int:
        """Return the exact number of the users with m-hat samples."""
        return kept

    def present(
        self, server: Curator, present: NDArray[np.int64], kept: int, users: float
    ) -> Array:
        """Release the numbers of users that have each symbol not, and take them from s-hat."""
        q = self.touched_by("presence")
        lacking = server.discrete_laplace(
            kept - present, l1_sensitivity=q, epsilon=q * self.epsilon_each, label="zeros"
        )
        return np.asarray(users - lacking)


@register_printed
@dataclass(frozen=True)
class RaggedDistributionAsPrinted(AsPrinted, RaggedDistribution):
    """Half of epsilon for the median, and the printed budgets per symbol in the other half."""

    mode: Mode = "paper"

    def __post_init__(self) -> None:
        if not self.delta:
            raise ValueError(f'mode "paper" needs delta > 0, got {self.delta}')
        if self.mechanism in AVERAGES:
            raise ValueError(f'mode "paper" has no mechanism {self.mechanism!r}')
        super().__post_init__()

    @property
    def unspent(self) -> str:
        return "the guarantee is for the size that costs most, and the size is found in private"

    @property
    def least_users(self) -> float:
        """Fewest users for which m-hat can be found: 8 B."""
        return 8 * dyadic_slack(self.median_task)

    def search_median(self, server: Curator) -> MedianSearch:
        """Find m-hat and s-hat by the classes."""
        return dyadic_search(self.median_task, server)

    @property
    def averages(self) -> bool:
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
