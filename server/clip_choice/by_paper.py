"""The paper's rules for the clip: noisy descent, quantiles, output perturbation [1]_.

A descent asks in each of T rounds for S(C), the sum of the cut slopes (or the number) of the users
whose norm exceeds the present C. Output perturbation [4]_ reads the whole curve S(C) from one
histogram of norms, and releases the minimiser of a regularized objective with noise.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Section 4.2, Corollary 4.4, Algorithm 2, Appendix A and Section 7.1.
.. [2] Bassily, Smith & Thakurta, "Private empirical risk minimization", FOCS 2014, Algorithm 1.
.. [3] Andrew, Thakkar, McMahan & Ramaswamy, "Differentially private learning with adaptive
   clipping", NeurIPS 2021, Section 2.
.. [4] Chaudhuri, Monteleoni & Sarwate, "Differentially private empirical risk minimization",
   JMLR 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from clients.histograms.contributions import NormHistogram
from fedhist.base.arrays import Integers
from fedhist.model.query import Query, Summary
from fedhist.privacy.noise_law import discrete_gaussian_stds
from server.clip_choice.rule import (
    Choice,
    Search,
    ThresholdRule,
    ThresholdTask,
    at_the_ends,
    mostly_noise,
)
from server.session.curator import Curator

MOST_LEVEL = 1 << 60
"""No sum over users comes near; a public level beyond it acts as if it were infinite."""


def free_choice(task: ThresholdTask) -> Choice | None:
    """Answer where the release has no noise (M = 0): then the largest threshold is the best."""
    return Choice(task.c_max, at_the_ends(task.c_max, task)) if task.mass == 0 else None


# -- descent ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """T adaptive noisy values of S(C): their budget and their noise.

    Privacy
    -------
    S(C) has sensitivity R (1 for counts) under every adjacency: with and without the change of one
    user it lies in [x, x + R]. Each value gets Gaussian noise of multiplier sqrt(T) sigma(epsilon,
    delta), together (epsilon, delta)-DP. Andrew et al. [3] halve the sensitivity of a count by
    sending b - 1/2 for the indicator b. Here the empty record still answers -1/2, which from +1/2
    is a change of 1. So nothing is centred.
    """

    task: ThresholdTask  # its budget is that of all its ``steps`` values together
    radius: float  # cut of the slopes; 0: users are counted

    @property
    def noise_std(self) -> float:
        """Std of the noise on each of the T values, in the units of S."""
        task, times = self.task, math.sqrt(self.task.steps)
        if task.secure and task.trust is None and not self.radius:  # counts are no fine grid
            return min(discrete_gaussian_stds(1.0, task.epsilon, task.delta, times))
        return times * (self.radius or 1.0) * task.multiplier

    def clips(
        self, server: Curator, label: str, move: Callable[[float, int, float], float], start: float
    ) -> Generator[Query, Summary, list[float]]:
        """Ask at ``start``, move by C, the step from 1 and noisy S(C), and so on: T thresholds."""
        task = self.task
        release = server.gaussian_series(
            task.steps, epsilon=task.epsilon, delta=task.delta, discrete=task.secure, label=label
        )
        clip, path = start, []
        for number in range(1, task.steps + 1):
            query = NormHistogram(task.domain, (clip,), task.norm, self.radius)
            summary = yield query
            noisy = release(query.tails(summary), float(query.most))
            clip = move(clip, number, query.unit * float(noisy[0]))
            path.append(clip)
        return path

    def concluded(self, clip: float) -> Choice:
        """Warn where the noise of all T values together exceeds the level."""
        task, noise = self.task, self.noise_std / math.sqrt(self.task.steps)
        warnings = at_the_ends(clip, task)
        if noise > task.mass:
            numbers = f"std {noise:.4g}, where it looks for the level {task.mass:.4g}"
            warnings += (mostly_noise(numbers),)
        return Choice(clip, warnings, {"tail_noise_std": self.noise_std})


def log_step(x: float, number: int, gap: float, scale: float, ends: tuple[float, float]) -> float:
    """Take step t = ``number`` in x = log C: t^(-1/2) times the slope cut to [-1, 1], projected.

    >>> log_step(1.0, 4, gap=3.0, scale=2.0, ends=(0.0, 9.0))
    0.5
    """
    move = min(max(gap / scale, -1.0), 1.0) / math.sqrt(number)
    return min(max(x - move, ends[0]), ends[1])


def log_descent(series: Series, server: Curator, label: str) -> Generator[Query, Summary, float]:
    """Find C with S(C) = M by steps in log C of t^(-1/2) clamp((M - S) / scale, -1, 1)."""
    task = series.task
    ends = math.log(task.c_min), math.log(task.c_max)
    scale = max(task.mass, series.noise_std)

    def move(clip: float, number: int, tail: float) -> float:
        x = log_step(math.log(clip), number, task.mass - tail, scale, ends)
        return min(max(math.exp(x), task.c_min), task.c_max)

    path = yield from series.clips(server, label, move, math.exp(sum(ends) / 2))
    half = path[task.steps // 2 :]
    mean = math.exp(math.fsum(math.log(c) for c in half) / len(half))
    return min(max(mean, task.c_min), task.c_max)


def _descent(label: str, radius: Callable[[ThresholdTask], float]) -> ThresholdRule:
    """Make the rule that descends to the level M of sums of slopes, or of counts (radius 0)."""

    def search(task: ThresholdTask, server: Curator) -> Search:
        free = free_choice(task)
        if free is not None:
            return free
        series = Series(task, radius(task))
        return series.concluded((yield from log_descent(series, server, label)))

    return ThresholdRule(search, True, lambda task: task.steps, radius)


# -- output perturbation ---------------------------------------------------------------------------


def regularized_minimum(tails: Integers, lower: Integers, level: int) -> int:
    """Where C + level first reaches a non-increasing step function; all in the same integer steps.

    That is the minimiser over C >= 0 of G(C) + (Lambda / 2) C^2, whose slope is
    M + Lambda C - S(C): divide by Lambda. S = tails[k] from lower[k] on; lower increases from 0. It
    is the least over k of max(lower[k], tails[k] - level): every term is a solution, and the first
    solution is one of the terms. It changes by at most max |change of tails|, as minima and maxima
    do not expand differences: the sensitivity is R / Lambda in C, under every adjacency.

    >>> regularized_minimum(np.array([9, 5, 1]), np.array([0, 4, 8]), level=2)
    4
    """
    return int(np.minimum.reduce(np.maximum(lower, tails - min(level, MOST_LEVEL))))


def perturbed(
    task: ThresholdTask, server: Curator, strength: float, epsilon: float, looseness: int = 1
) -> Search:
    """Release argmin over C >= 0 of G_R(C) + (strength / 2) C^2 with Laplace noise.

    C is projected to [c_min, c_max]; the noise fits ``looseness`` times the exact sensitivity; a
    ``strength`` of 0 is for runs without noise.

    Privacy
    -------
    The minimiser solves M + Lambda C = S_R(C), and changes by at most R / Lambda with one user,
    under every adjacency: see :func:`regularized_minimum`. Binning keeps this true: a user's norm
    is rounded up to the next edge, and to 0 below c_min, before anything is added up.
    """
    edges = np.unique(np.geomspace(task.c_min, task.c_max, 4096))  # 0.17 % apart in ten octaves
    query = NormHistogram(task.domain, tuple(edges.tolist()), task.norm, task.slope_radius)
    summary = yield query
    tails = query.tails(summary)
    level = min(round(task.mass / query.unit), MOST_LEVEL)
    release = server.discrete_laplace if task.secure else server.laplace
    label = "output-perturbation"
    if strength == 0:  # without noise: the minimum of G itself, by the index of its edge
        best = int(np.searchsorted(-tails, -level))
        at = release(np.array(best), l1_sensitivity=1.0, epsilon=epsilon, label=label)
        clip, noise = float(edges[min(int(at), len(edges) - 1)]), 0.0
    else:
        step = query.unit / strength
        lower = np.rint(np.minimum(edges / step, MOST_LEVEL)).astype(np.int64)
        top = int(lower[-1])
        lower[0] = 0  # users below c_min weigh nothing: the first piece reaches down to 0
        best = min(regularized_minimum(tails, lower, level), top)
        sensitivity = float(looseness * query.most)
        noisy = release(np.array(best), l1_sensitivity=sensitivity, epsilon=epsilon, label=label)
        clip = min(max(step * float(noisy), task.c_min), task.c_max)
        noise = math.sqrt(2) * step * sensitivity / epsilon
    warnings = at_the_ends(clip, task)
    if noise > task.c_max / 10:
        warnings += (mostly_noise(f"its std is {noise:.4g}, and clip_max is {task.c_max:g}"),)
    return Choice(clip, warnings, {"clip_noise_std": noise})


def output_perturbation(task: ThresholdTask, server: Curator) -> Search:
    """Minimise G_R(C) + (Lambda / 2) C^2 with Lambda = M / c_max, and add Laplace noise.

    Corrected against the paper: the sensitivity is R / Lambda, four times below the printed one;
    the result is projected to [c_min, c_max]. Pure epsilon'-DP; see :func:`perturbed`.
    """
    free = free_choice(task)
    return free or (yield from perturbed(task, server, task.mass / task.c_max, task.epsilon))


RULES = {
    "dp-sgd": _descent("dp-sgd", lambda task: task.slope_radius),
    "adaptive-quantile": _descent("adaptive-quantile", lambda task: 0.0),
    "output-perturbation": ThresholdRule(output_perturbation),
}
"""DP-SGD [1, Section 4.2] descends G by its noisy slope M - S(C). Algorithm 1 of [2] takes n^2
steps on one user each: here T full-batch steps, in log C because thresholds span decades. The
quantile of [1, Section 7.1], [3] goes down to the M-th largest norm: for l1 norms that is the best
rank [1, Lemma 4.2]; for l2 norms nothing supports it, the paper compares with it."""
