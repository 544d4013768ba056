"""Predictions of central means: the steps' own laws, followed with the users' means. NOT PRIVATE.

Apart from the estimators: nothing here is asked, rounded or released.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedhist.base.arrays import Floats
from server.central_means.noise import COUNTED, Kind
from server.central_means.settling import settled

MOST_DRAWS, LEAST_DRAWS, DRAWN_NUMBERS = 1024, 16, 1 << 16
"""Draws of noise that a prediction settles; the fewer the more numbers each has: their length then
hardly differs."""


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

    def risk(self, centre: Floats, radius: float, std: float) -> float:
        """Predict the mean squared l2 error of one release with noise of ``std`` radii."""
        if not len(self.means):
            return 0.0
        away = self.clipped(centre, radius) - centre
        return release_risk(
            away, self.truth - centre, radius, std / self.divisor, hidden=self.hidden
        )


def shortened(away: Floats, radius: float) -> Floats:
    """Scale rows down to a radius: (n, d)."""
    size = np.linalg.norm(away, axis=1, keepdims=True)
    return np.asarray(away * (radius / np.maximum(size, radius)))


def release_risk(away: Floats, truth: Floats, radius: float, each: float, *, hidden: bool) -> float:
    """Predict the mean squared l2 error of a release: both means are measured from its centre.

    ``each`` is the noise in radii, over the number of users that sums are divided by.
    """
    noise = len(truth) * (radius * each) ** 2
    if hidden:  # the noise on the number of users moves the mean along its own length
        noise += float(np.square(away).sum()) * (each / COUNTED) ** 2
    return float(np.square(away - truth).sum()) + noise


@dataclass(frozen=True)
class Settling:
    """What settling a noisy mean changes of its expected squared l2 error.

    Attributes
    ----------
    kind : {"laplace", "gaussian"}
    dimension : int
    half : float
        Radius of the ball around the middle.
    """

    kind: Kind
    dimension: int
    half: float

    @cached_property
    def _noise(self) -> Floats:
        """Noise of standard deviation 1 in each coordinate: (draws, d)."""
        draws = min(max(DRAWN_NUMBERS // self.dimension, LEAST_DRAWS), MOST_DRAWS)
        return drawn_noise(np.random.default_rng(21), self.kind, (draws, self.dimension))

    def change(self, mean: Floats, truth: Floats, std: float, stated: float) -> float:
        """Predict it: 0 where no draw is moved.

        The error before is known: what the draws' own errors are off by is regressed out.

        Parameters
        ----------
        mean, truth : (d,) float64
            Of the noisy mean, and what it is of; from the middle.
        std, stated : float
            Of its noise in each coordinate, and that which it is settled with.
        """
        plain = mean + std * self._noise
        moved = settled(plain, stated, self.half)
        before, after = (np.square(x - truth).sum(axis=1) for x in (plain, moved))
        gain, off = after - before, before - before.mean()
        if not gain.any() or not off.any():
            return float(gain.mean())
        known = float(np.square(mean - truth).sum()) + self.dimension * std**2
        slope = float(off @ gain / (off @ off))
        return float(gain.mean()) + slope * (known - float(before.mean()))


def drawn_noise(rng: np.random.Generator, kind: Kind, shape: int | tuple[int, ...]) -> Floats:
    """Draw noise of standard deviation 1, as predictions follow it."""
    if kind == "gaussian":
        return rng.standard_normal(shape)
    return rng.laplace(scale=np.sqrt(0.5), size=shape)
