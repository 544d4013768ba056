"""Clipping thresholds by noisy descent: one scalar per user and round, for T rounds.

Each round asks for S(C), the sum of the cut slopes (or the number) of the users whose norm exceeds
the present C. The sum is linear, so secure aggregation can compute it. T of them with Gaussian
noise of std sqrt(T) x cost together what a single one with noise of std x costs.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Section 4.2, Corollary 4.4 and Section 7.1.
.. [2] Bassily, Smith & Thakurta, "Private empirical risk minimization", FOCS 2014, Algorithm 1.
.. [3] Andrew, Thakkar, McMahan & Ramaswamy, "Differentially private learning with adaptive
   clipping", NeurIPS 2021, Section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from fedhist.model.query import Query, Summary
from fedhist.privacy.lattice_gaussian import discrete_gaussian_std
from fedhist.protocols.clip_choice.rule import (
    Choice,
    Search,
    ThresholdRule,
    ThresholdTask,
    at_the_ends,
    drowned,
    free_choice,
)
from fedhist.protocols.shared.contributions import NormHistogram
from fedhist.session.curator import Curator

Move = Callable[[float, int, float], float]


@dataclass(frozen=True)
class Series:
    """T adaptive noisy values of S(C): their budget and their noise.

    Attributes
    ----------
    task : ThresholdTask
        Public numbers; its ``steps`` is T.
    radius : float
        Cut of the slopes; 0: users are counted.
    epsilon, delta : float
        For all T values together.

    Privacy
    -------
    S(C) has sensitivity R (1 for counts) under every adjacency: with and without the change of one
    user it lies in [x, x + R]. Each value gets Gaussian noise of multiplier sqrt(T) sigma(epsilon,
    delta), together (epsilon, delta)-DP, and discrete ones as a series of their own
    (:class:`~fedhist.privacy.lattice_gaussian.DiscreteSeries`).

    Andrew et al. [3] halve the sensitivity of a count by sending b - 1/2 for the indicator b. That
    is right where a user appears or vanishes. Here it is zeroed out, and the empty record still
    answers: b = 0 gives -1/2, which from +1/2 is a change of 1. So nothing is centred.
    """

    task: ThresholdTask
    radius: float
    epsilon: float
    delta: float

    @property
    def equivalent_std(self) -> float:
        """Noise std of one release that costs as much as all T."""
        return self.noise_std / math.sqrt(self.task.steps)

    @property
    def noise_std(self) -> float:
        """Std of the noise on each of the T values, in the units of S."""
        task, times = self.task, math.sqrt(self.task.steps)
        if task.secure and task.trust is None and not self.radius:  # counts are no fine grid
            return discrete_gaussian_std(1.0, self.epsilon, self.delta, times)[0]
        budget = replace(task, epsilon=self.epsilon, delta=self.delta)
        return times * (self.radius or 1.0) * budget.multiplier

    def clips(
        self, server: Curator, label: str, move: Move, start: float
    ) -> Generator[Query, Summary, list[float]]:
        """Ask at ``start``, move, ask there, and so on; returns the T thresholds moved to.

        ``move`` takes C, the number of the step from 1, and the noisy S(C) to the next C; ``label``
        is the name in the ledger.
        """
        release = server.gaussian_series(
            self.task.steps,
            epsilon=self.epsilon,
            delta=self.delta,
            discrete=self.task.secure,
            label=label,
        )
        clip, path = start, []
        for number in range(1, self.task.steps + 1):
            query = NormHistogram(self.task.domain, (clip,), self.task.norm, self.radius)
            summary = yield query
            noisy = release(query.tails(summary), float(query.most))
            clip = move(clip, number, query.unit * float(noisy[0]))
            path.append(clip)
        return path


def log_step(x: float, number: int, gap: float, scale: float, ends: tuple[float, float]) -> float:
    """Take step t = ``number`` in x = log C: t^(-1/2) times the slope cut to [-1, 1], projected.

    >>> log_step(1.0, 4, gap=3.0, scale=2.0, ends=(0.0, 9.0))
    0.5
    """
    move = min(max(gap / scale, -1.0), 1.0) / math.sqrt(number)
    return min(max(x - move, ends[0]), ends[1])


def log_descent(
    series: Series, server: Curator, level: float, label: str
) -> Generator[Query, Summary, float]:
    """Find C with S(C) = level by steps in log C of t^(-1/2) clamp((level - S) / scale, -1, 1).

    The scale is the level, or the noise where that is larger. Starts at the geometric middle of
    the range; returns the geometric mean of the second half of the iterates.
    """
    task = series.task
    ends = math.log(task.c_min), math.log(task.c_max)
    scale = max(level, series.noise_std)

    def move(clip: float, number: int, tail: float) -> float:
        x = log_step(math.log(clip), number, level - tail, scale, ends)
        return min(max(math.exp(x), task.c_min), task.c_max)

    path = yield from series.clips(server, label, move, math.exp(sum(ends) / 2))
    half = path[task.steps // 2 :]
    mean = math.exp(math.fsum(math.log(c) for c in half) / len(half))
    return min(max(mean, task.c_min), task.c_max)


def descent_rule(name: str, radius: Callable[[ThresholdTask], float], source: str) -> ThresholdRule:
    """Make the rule that descends to the level M of sums of slopes, or of counts (radius 0)."""

    def search(task: ThresholdTask, server: Curator) -> Search:
        free = free_choice(task)
        if free is not None:
            return free
        series = Series(task, radius(task), task.epsilon, task.delta)
        clip = yield from log_descent(series, server, task.mass, name)
        warnings = at_the_ends(clip, task) + drowned(series.equivalent_std, task.mass)
        return Choice(clip, warnings, {"tail_noise_std": series.noise_std})

    return ThresholdRule(
        name, search, source, needs_delta=True, rounds=lambda task: task.steps, by_sums=radius
    )


DP_SGD = descent_rule(
    "dp-sgd",
    lambda task: task.slope_radius,
    "Liu et al. 2023, Section 4.2 (DP-SGD), full batches in log C",
)
"""G is descended by its noisy slope M - S(C). The paper's Algorithm 1 of [2] takes n^2 steps on one
user each: here T full-batch steps, in log C because thresholds span decades."""

ADAPTIVE_QUANTILE = descent_rule(
    "adaptive-quantile",
    lambda task: 0.0,
    "Liu et al. 2023, Section 7.1 (DP-M-quantile); Andrew et al. 2021, Section 2",
)
"""Down to the M-th largest norm. For l1 norms M = k1 d / epsilon is the best rank [1, Lemma 4.2];
for l2 norms nothing supports it: the paper compares with it."""
