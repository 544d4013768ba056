"""Clipping thresholds by noisy descent: one scalar per user and round, for T rounds.

Each round asks for S(C), the sum of the cut slopes (or the number) of the users whose norm exceeds
the present C. The sum is linear, so secure aggregation can compute it. T of them with Gaussian
noise of std sqrt(T) x cost together what a single one with noise of std x costs.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Section 4.2, Corollary 4.4 and Section 7.1.
.. [2] Bassily, Smith & Thakurta, "Private empirical risk minimization", FOCS 2014, Algorithm 1.
.. [3] Andrew, Thakkar, McMahan & Ramaswamy, "Differentially private learning with adaptive
   clipping", NeurIPS 2021, Section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from fedhist.base.text import warned
from fedhist.model.query import Query, Summary
from fedhist.privacy.lattice_gaussian import discrete_gaussian_std
from fedhist.protocols.clip_choice.rule import (
    Choice,
    Search,
    ThresholdRule,
    ThresholdTask,
    at_the_ends,
)
from fedhist.protocols.shared.contributions import NormHistogram
from fedhist.session.curator import Curator
from server.histograms.clip_search import log_step

Move = Callable[[float, int, float], float]


def free_choice(task: ThresholdTask) -> Choice | None:
    """Answer where the release has no noise (M = 0): then the largest threshold is the best.

    G(C), the bias, falls with C and nothing counters it, whatever the data. Nobody is asked.
    """
    return Choice(task.c_max, at_the_ends(task.c_max, task)) if task.mass == 0 else None


def slope_radius(task: ThresholdTask) -> float:
    """Cut of the slopes in a NormHistogram; 0 (everybody weighs 1) for l1 norms."""
    return 0.0 if task.norm == 1 else task.radius


def drowned(noise: float, level: float) -> tuple[str, ...]:
    """Warn, from public numbers, where a choice's noise exceeds what it looks for."""
    if noise <= level:
        return ()
    return (mostly_noise(f"std {noise:.4g}, where it looks for the level {level:.4g}"),)


def mostly_noise(numbers: str) -> str:
    """Say that a choice is one of its noise."""
    return warned(
        f"the chosen clip is mostly noise ({numbers})",
        "it may be far from the best one, and the error as much larger",
        "raise epsilon_choice, or lower sparsity where slopes are summed",
    )


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
    answers: b = 0 gives -1/2, which from +1/2 is a change of 1. Were empty records to send 0
    instead, the sum would be off by half the number of the empty ones, which is private. So nothing
    is centred.
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

        Parameters
        ----------
        server : Curator
        label : str
            Name in the ledger.
        move : callable of (C, number of the step from 1, noisy S(C)) to the next C
        start : float
            First C; public.
        """
        release = server.gaussian_series(
            self.task.steps,
            epsilon=self.epsilon,
            delta=self.delta,
            discrete=self.task.secure,
            label=label,
        )
        clip, seen = start, []
        for number in range(1, self.task.steps + 1):
            query = NormHistogram(self.task.domain, (clip,), self.task.norm, self.radius)
            summary = yield query
            noisy = release(query.tails(summary), float(query.most))
            clip = move(clip, number, query.unit * float(noisy[0]))
            seen.append(clip)
        return seen


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

    seen = yield from series.clips(server, label, move, math.exp(sum(ends) / 2))
    half = seen[task.steps // 2 :]
    mean = math.exp(math.fsum(math.log(c) for c in half) / len(half))
    return min(max(mean, task.c_min), task.c_max)


def descend(task: ThresholdTask, server: Curator, level: float, radius: float, name: str) -> Search:
    """Run one descent on the whole budget of the choice."""
    free = free_choice(task)
    if free is not None:
        return free
    series = Series(task, radius, task.epsilon, task.delta)
    clip = yield from log_descent(series, server, level, name)
    warnings = at_the_ends(clip, task) + drowned(series.equivalent_std, level)
    return Choice(clip, warnings, {"tail_noise_std": series.noise_std})


def dp_sgd(task: ThresholdTask, server: Curator) -> Search:
    """Descend G by its noisy slope M - S(C), in log C.

    Corrected against the paper, whose Algorithm 1 of [2] takes n^2 steps on one user each (for
    6e5 users 3.6e11): T full-batch steps instead, in log C because thresholds span decades, of a
    length that does not depend on n.

    Privacy
    -------
    (epsilon', delta')-DP; see :class:`Series`.
    """
    return descend(task, server, task.mass, slope_radius(task), "dp-sgd")


DP_SGD = ThresholdRule(
    "dp-sgd",
    dp_sgd,
    "Liu et al. 2023, Section 4.2 (DP-SGD), full batches in log C",
    needs_delta=True,
    rounds=lambda task: task.steps,
    by_sums=slope_radius,
)
