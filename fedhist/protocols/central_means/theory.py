"""Predictions of central means: the steps' own laws, followed with the users' means. NOT PRIVATE.

Apart from the estimators: nothing here is asked, rounded or released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from fedhist.base.arrays import Floats
from server.central_means.noise import COUNTED, Kind, SumNoise
from server.central_means.settling import Look


@dataclass(frozen=True)
class Rows:
    """The users' own means, as predictions need them.

    Attributes
    ----------
    means : (n, d) float64
        Those that can be used.
    n_users : int
        The others included, who count as the centre unless ``hidden``.
    hidden : bool
        Whether sums are divided by a noisy number of users.
    times : float
        How many users one of the means stands for.
    """

    means: Floats
    n_users: int
    hidden: bool = False
    times: float = 1.0

    @property
    def truth(self) -> Floats:
        """The average: (d,)."""
        return np.asarray(self.means.mean(axis=0))

    @property
    def divisor(self) -> float:
        """By how many users sums are divided."""
        return max(1, len(self.means) * self.times if self.hidden else self.n_users)

    def clipped(self, centre: Floats, radius: float) -> Floats:
        """Clip to radii around a centre and average, without noise: (d,)."""
        away = shortened(self.means - centre, radius)
        return np.asarray(centre + away.sum(axis=0) * self.times / self.divisor)

    def look(
        self,
        centre: Floats,
        radius: float,
        std: float,
        before: tuple[Floats | float, float] = (0.0, math.inf),
    ) -> Look:
        """Return a look around a centre with noise of ``std`` radii, and what is known before it.

        ``before`` is a mean with the standard deviation of the noise in it.
        """
        away, n = self.clipped(centre, radius) - centre, self.divisor
        return Look(centre, away, radius, std / n, 1 / n if self.hidden else 0.0, *before)

    def risk(self, centre: Floats, radius: float, noise: SumNoise, share: float = 1.0) -> float:
        """Predict the mean squared l2 error of one release."""
        if not len(self.means):
            return 0.0
        away, truth = self.clipped(centre, radius) - centre, self.truth - centre
        each = noise.std(share) / self.divisor
        if self.hidden:
            return ratio_risk(away, truth, radius, each, noise.kind, 1 / self.divisor)
        return release_risk(away, truth, radius, each)


def shortened(away: Floats, radius: float) -> Floats:
    """Scale rows down to a radius: (n, d)."""
    size = np.linalg.norm(away, axis=1, keepdims=True)
    return np.asarray(away * (radius / np.maximum(size, radius)))


def release_risk(away: Floats, truth: Floats, radius: float, each: float) -> float:
    """Predict the mean squared l2 error of a release: both means are measured from its centre.

    ``each`` is the noise in radii, over the number of users that sums are divided by.
    """
    return float(np.square(away - truth).sum()) + len(truth) * (radius * each) ** 2


def ratio_risk(
    away: Floats, truth: Floats, radius: float, each: float, kind: Kind, least: float
) -> float:
    """Predict that of a sum over a noisy number of users, which is no less than ``least`` of n.

    Noise on the number is apart from that on the sum: the moments of its inverse are all it takes.
    """
    first, second = inverse_moments(kind, each / COUNTED, least)
    off, noise = away - truth, len(truth) * (radius * each) ** 2
    moved = second * (away @ away + noise) + 2 * first * (away @ off + noise)
    return float(off @ off + noise + moved)


@lru_cache
def inverse_moments(kind: Kind, std: float, least: float) -> tuple[float, float]:
    """Return E (1/N - 1) and E (1/N - 1)^2 of N = max(1 + noise of ``std``, least).

    By the noise's distribution function on a grid that is fine around 1, and where N is small.

    >>> [round(x, 4) for x in inverse_moments("gaussian", 0.1, 0.01)]
    [0.0103, 0.011]
    """
    grid = np.union1d(
        np.maximum(1 + std * np.linspace(-40, 40, 4001), least),
        np.geomspace(least, 1 + 40 * std, 4001),
    )
    chance = np.diff(noise_cdf(kind, (grid - 1) / std), prepend=0.0)
    inverse = 1 / np.sqrt(grid * np.append(grid[0], grid[:-1])) - 1
    return float(chance @ inverse), float(chance @ np.square(inverse))


def noise_cdf(kind: Kind, x: Floats) -> Floats:
    """Distribution function of noise of standard deviation 1."""
    if kind == "gaussian":
        return np.asarray(ndtr(x))
    half = np.exp(-math.sqrt(2) * np.abs(x)) / 2
    return np.where(x < 0, half, 1 - half)
