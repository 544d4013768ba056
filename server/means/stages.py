"""A mean from too few users for a vote: stages of clipped reports, each interval around the last.

A vote asks which of many bins is the right one, and fails all at once where it has too few users.
A stage reports over an interval as wide as the estimate before it is uncertain: each one narrows
the next. The stages and their users are planned from public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from fedhist.base.arrays import Floats

MAX_STAGES = 6


@dataclass(frozen=True)
class Stage:
    """One round of clipped reports.

    Attributes
    ----------
    share : float
        Of all users.
    half_width : float
        Of the interval around the estimate before it; the half range in the first stage.
    user_variance : float
        What one report contributes: the variance of the stage's average, times its users.
    """

    share: float
    half_width: float
    user_variance: float


@dataclass(frozen=True)
class StagePlan:
    """The stages, and the mean squared error that they lead to, clipping included."""

    stages: tuple[Stage, ...]
    risk: float

    @property
    def n_rounds(self) -> int:
        """The stages."""
        return len(self.stages)


@lru_cache(maxsize=1024)
def plan_stages(n_users: float, mean_scale: float, half_range: float, v: float) -> StagePlan:
    """Choose one to six stages by least predicted variance; one more only for 3 percent less.

    A stage of share f and half width r = min(R, 1.85 sqrt(sigma^2 + 1/P)) adds f n / (4 v r^2 +
    sigma^2) to the precision P of the estimate so far, with sigma = ``mean_scale``, R =
    ``half_range`` and ``v`` the scalar channel's variance over squared width.

    Examples
    --------
    >>> [round(s.half_width, 2) for s in plan_stages(250.0, 500**-0.5, 1.0, 2.2).stages]
    [1.0, 0.78, 0.53, 0.36, 0.25, 0.18]
    """
    own = min(mean_scale, half_range) ** 2

    def stage(share: float, precision: float) -> Stage:
        spread = math.sqrt(own + 1 / precision) if precision else math.inf
        r = min(half_range, 1.85 * spread)
        return Stage(share, r, 4 * v * r * r + own)

    best: dict[int, tuple[float, tuple[Stage, ...]]] = {}

    def extend(before: tuple[Stage, ...], precision: float, left: float) -> None:
        last = stage(left, precision)
        variance = 1 / (precision + left * n_users / last.user_variance)
        k = len(before) + 1
        if k not in best or variance < best[k][0]:
            best[k] = variance, (*before, last)
        if k == MAX_STAGES:
            return
        for share in (0.1, 0.15, 0.2, 0.3, 0.4, 0.5):
            if left - share >= 0.2 - 1e-9:  # for the last stage
                more = stage(share, precision)
                gained = share * n_users / more.user_variance
                extend((*before, more), precision + gained, left - share)

    extend((), 0.0, 1.0)
    variance, chosen = best[1]
    for k in range(2, MAX_STAGES + 1):
        if best[k][0] < 0.97 ** (k - len(chosen)) * variance:
            variance, chosen = best[k]
    return StagePlan(chosen, stages_risk(chosen, n_users, mean_scale))


def stages_risk(stages: tuple[Stage, ...], n_users: float, mean_scale: float) -> float:
    """Follow the law of the estimate's error from stage to stage; return its mean square.

    The error of an average of reports is normal, and what is clipped pulls it towards the
    interval's centre. The ends of the range, which keep estimates inside, are left out: a bound.
    """
    first = stages[0].user_variance / (stages[0].share * n_users)
    grid = np.linspace(-6, 6, 801) * math.sqrt(first)
    weight = _phi(grid / math.sqrt(first))
    weight /= weight.sum()
    precision = 1 / first
    for s in stages[1:]:
        noise = s.user_variance / (s.share * n_users)
        part = 1 / noise / (precision + 1 / noise)
        told = grid + clipped_normal(-grid, mean_scale, s.half_width)
        moved = grid + part * (told - grid)
        spread = max(part * math.sqrt(noise), grid[1] - grid[0])
        z = (grid[:, None] - moved) / spread
        density = np.exp(np.maximum(z * z / -2, -300.0))  # denormal numbers are slow
        weight = density @ (weight / density.sum(axis=0))
        precision += 1 / noise
    return float(weight @ grid**2)


def clipped_normal(mean: Floats, scale: float, half_width: float) -> Floats:
    """Mean of a normal (mean, scale) clipped to [-half_width, half_width].

    >>> float(clipped_normal(np.array([0.0]), 1.0, 0.5)[0])
    0.0
    """
    low, high = (-half_width - mean) / scale, (half_width - mean) / scale
    below, above = ndtr(low), ndtr(-high)
    inside = mean * (1 - below - above) + scale * (_phi(low) - _phi(high))
    return np.asarray(inside + half_width * (above - below))


def _phi(x: Floats) -> Floats:
    return np.asarray(np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))
