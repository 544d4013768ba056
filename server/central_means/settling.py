"""What a noisy vector is taken for: shrunk by what its noise adds to its length [1]_, [2]_.

References
----------
.. [1] James & Stein, "Estimation with quadratic loss", Berkeley Symposium 1961.
.. [2] Efron & Morris, "Stein's estimation rule and its competitors: an empirical Bayes approach",
   JASA 1973: the positive part.
.. [3] Donoho, Liu & MacGibbon, "Minimax risk over hyperrectangles, and implications", Annals of
   Statistics 1990: linear rules over bounded sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from fedhist.base.arrays import Floats
from server.central_means.noise import COUNTED, Kind
from server.central_means.two_looks import averaged

MOST_DRAWS, LEAST_DRAWS, DRAWN_NUMBERS = 1024, 16, 1 << 16
"""Draws of noise that a prediction settles; the fewer the more numbers each has: their length then
hardly differs."""


def settled(away: Floats, std: float | Floats, radius: float) -> Floats:
    """Shrink noisy vectors towards the origin, and into the ball that holds all means.

    With x a vector in d >= 3 dimensions and Gaussian noise of ``std`` in each coordinate,
    (1 - (d - 2) std^2 / |x|^2)_+ x has a smaller expected squared l2 error than x, whatever it is
    an unbiased estimate of [1, 2]. Of a mean no longer than R no multiple larger than
    R^2 / (R^2 + d std^2) is best [3], in any dimension: where noise is longer than R, what is left
    errs about as much as the origin. What lies in a ball is no farther from the nearest point of
    the ball than from x. Laplace noise is shrunk likewise.

    Parameters
    ----------
    away : (..., d) float64
        Released vectors, from the middle of the public range.
    std : float, or (..., 1) float64
    radius : float
        No user's vector is longer, nor is their mean.

    Privacy
    -------
    Reads released and public numbers only.

    Examples
    --------
    >>> [settled(np.array(x), s, 2.4).round(2) for x, s in (([3.0, 4.0, 0.0], 1.0), ([3.0], 9.0))]
    [array([1.44, 1.92, 0.  ]), array([0.2])]
    """
    size, d = np.maximum(np.linalg.norm(away, axis=-1, keepdims=True), 1e-300), away.shape[-1]
    kept = 1 - np.square(np.minimum(math.sqrt(max(d - 2, 0)) * std / size, 1.0))
    linear = 1 / (1 + d * (std / radius) ** 2)
    return np.asarray(away * np.minimum(np.minimum(kept, linear), radius / size))


@dataclass(frozen=True)
class Look:
    """A noisy mean around a centre, beside what was known before it.

    Attributes
    ----------
    centre : (d,) float64
    away : (d,) float64
        Average of the clipped vectors around it.
    radius, each : float
        Of the clip, and the noise in radii over the number of users.
    least : float
        Where that number is noisy too: the least, over the real one, that sums are divided by.
        0 where it is public.
    before : (d,) float64 or 0
        The mean found before.
    std : float
        Of the noise that is in it.
    """

    centre: Floats
    away: Floats
    radius: float
    each: float
    least: float = 0.0
    before: Floats | float = 0.0
    std: float = math.inf

    def found(self, noise: Floats, counted: Floats) -> tuple[Floats, Floats]:
        """Return means with their stated noise, from standard noise on sums and numbers of users.

        (..., d) and (..., 1) both times.
        """
        by = np.ones_like(counted)
        if self.least:
            by = np.maximum(1 + self.each / COUNTED * counted, self.least)
        weight, std = averaged(self.std, self.radius * self.each / by)
        mean = self.centre + (self.away + self.radius * self.each * noise) / by
        return weight * mean + (1 - weight) * self.before, std

    def drawn(self, noise: Floats) -> tuple[Floats, float]:
        """Return the mean and its stated noise, from standard noise on sum and number: (d + 1,)."""
        mean, std = self.found(noise[:-1], noise[-1:])
        return mean, float(std[0])

    def linear(self, noise: Floats, counted: Floats, truth: Floats) -> tuple[Floats, float]:
        """Return means that are linear in the noise, and their expected squared l2 error."""
        weight, _ = averaged(self.std, self.radius * self.each)
        mean = weight * (self.centre + self.away) + (1 - weight) * self.before
        along = weight * self.away * (self.each / COUNTED if self.least else 0.0)
        std = weight * self.radius * self.each
        squares = np.square(mean - truth).sum() + len(truth) * std**2 + np.square(along).sum()
        return mean + std * noise - counted * along, float(squares)


@dataclass(frozen=True)
class Settling:
    """The expected l2 error of a noisy mean that is settled, squared or not.

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
        """Noise of standard deviation 1 in each coordinate, and on a number: (draws, d + 1).

        The latter has its own quantiles, for ratios follow its tail.
        """
        draws = min(max(DRAWN_NUMBERS // self.dimension, LEAST_DRAWS), MOST_DRAWS)
        rng = np.random.default_rng(21)
        noise = drawn_noise(rng, self.kind, (draws, self.dimension))
        return np.column_stack([noise, spread_noise(rng, self.kind, (draws, 1))])

    def error(
        self,
        mean: Floats,
        truth: Floats,
        std: float,
        stated: float,
        before: float,
        *,
        power: int = 2,
    ) -> float:
        """Predict it: that of before, exactly, where no draw is moved.

        The error before is known: what the draws' own errors are off by is regressed out. Noise
        that is much longer than the ball says nothing of where it ends up, so that it is the draws'
        own error then, however long the noise.

        Parameters
        ----------
        mean, truth : (d,) float64
            Of the noisy mean, and what it is of; from the middle.
        std, stated : float
            Of its noise in each coordinate, and that which it is settled with.
        before : float
            Its expected error before.
        power : {1, 2}
            Of the error: 1 is of the expected l2 distance.
        """
        plain = mean + std * self._noise[:, :-1]
        return self._moved(plain, before, settled(plain, stated, self.half), truth, power)

    def look_error(self, look: Look, truth: Floats, middle: Floats | float = 0.0) -> float:
        """Predict the mean squared l2 error of what is settled after a last look.

        A noisy number of users makes a ratio of it. That is drawn as it is, and what is known is
        the error of its linear part.
        """
        noise, counted = self._noise[:, :-1], self._noise[:, -1:]
        plain, before = look.linear(noise, counted, truth)
        found, stated = look.found(noise, counted)
        moved = middle + settled(found - middle, stated, self.half)
        return self._moved(plain, before, moved, truth)

    def _moved(
        self, plain: Floats, before: float, moved: Floats, truth: Floats, power: int = 2
    ) -> float:
        old, new = (np.linalg.norm(x - truth, axis=1) ** power for x in (plain, moved))
        off = old - old.mean()
        if np.array_equal(old, new):
            return before
        if not off.any():
            return float(new.mean())
        return float(new.mean() + off @ new / (off @ off) * (before - old.mean()))


def drawn_noise(rng: np.random.Generator, kind: Kind, shape: int | tuple[int, ...]) -> Floats:
    """Draw noise of standard deviation 1, as predictions follow it."""
    if kind == "gaussian":
        return rng.standard_normal(shape)
    return rng.laplace(scale=np.sqrt(0.5), size=shape)


def spread_noise(rng: np.random.Generator, kind: Kind, shape: tuple[int, int]) -> Floats:
    """Return such noise whose every column holds its law's quantiles, in random order.

    A mean over few rows of what follows the tail of one number is then not made by chance.
    """
    order = np.argsort(rng.random(shape), axis=0)
    return quantiles(kind, (order + 0.5) / len(order))


def quantiles(kind: Kind, at: Floats) -> Floats:
    """Return those of that noise."""
    if kind == "gaussian":
        return np.asarray(ndtri(at))
    return np.asarray(-np.sign(at - 0.5) * np.log(1 - 2 * np.abs(at - 0.5)) * math.sqrt(0.5))
