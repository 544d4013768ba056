"""Undoing the bias of clipping where users' counts are Poisson [1]_.

A user whose count is X ~ Poi(rate) sends min(X, C). The mean h(rate) of that is increasing and
concave in the rate, with 0 <= h < C; its inverse turns the average of clipped counts into a rate.

The inverse multiplies noise by 1 / h', without bound as the average nears C, and adds what never
was where counts are less varied than Poisson's. So it is taken up to a public rate only, and the
clipped total is left as it is beyond: h' is a quarter there (:func:`steepest_rate`), or so many
users would exceed C that the choice of C had found another (:func:`fitting_rate`). That guard is
the project's own.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithm 5 and Appendix C.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from fedhist.base.arrays import Floats


def clipped_mean(rate: ArrayLike, clip: int) -> Floats:
    """h(rate) = E min(X, C) for X ~ Poi(rate): rate P(X <= C - 2) + C P(X >= C).

    >>> round(float(clipped_mean(1.0, 1)), 6)  # 1 - 1/e
    0.632121
    """
    x = np.asarray(rate, dtype=np.float64)
    return np.asarray(x * _below(x, clip - 1) + clip * gammainc(clip, x))


def clipped_mean_slope(rate: ArrayLike, clip: int) -> Floats:
    """h'(rate) = P(X <= C - 1), in (0, 1]."""
    return _below(np.asarray(rate, dtype=np.float64), clip)


def clipped_variance(rate: ArrayLike, clip: int) -> Floats:
    """Var min(X, C) for X ~ Poi(rate); accurate to about 1e-15 C^2 only."""
    x = np.asarray(rate, dtype=np.float64)
    square = x * x * _below(x, clip - 2) + x * _below(x, clip - 1) + clip**2 * gammainc(clip, x)
    return np.asarray(np.maximum(square - clipped_mean(x, clip) ** 2, 0.0))


def _below(rate: Floats, k: int) -> Floats:
    """P(X < k) for X ~ Poi(rate) and an integer k."""
    return np.asarray(gammaincc(k, rate)) if k > 0 else np.zeros_like(rate)


def most_rate(clip: int) -> float:
    """Cap on an inverted rate, 20 C + 50: h equals C there in double precision."""
    return 20.0 * clip + 50.0


def rate_of_mean(mean: ArrayLike, clip: int) -> Floats:
    """h^{-1}, extended to all reals: 0 at or below 0, :func:`most_rate` from C on.

    Newton's steps, halved where they leave the bracket.

    >>> rate_of_mean([-0.3, 1 - np.exp(-2.0), 1.0], 1).round(9).tolist()
    [0.0, 2.0, 70.0]
    """
    y = np.asarray(mean, dtype=np.float64)
    out = np.where(y > 0, most_rate(clip), 0.0)
    inside = (y > 0) & (y < clip)
    target = y[inside]
    low, high = target.copy(), np.full_like(target, most_rate(clip))
    x = low.copy()
    for _ in range(200):
        gap = clipped_mean(x, clip) - target
        low, high = np.where(gap <= 0, x, low), np.where(gap > 0, x, high)
        step = x - gap / np.maximum(clipped_mean_slope(x, clip), 1e-300)
        step = np.where((step >= low) & (step <= high), step, (low + high) / 2)
        done = np.abs(step - x) <= 2.0**-51 * step
        x = step
        if done.all():
            break
    out[inside] = x
    return out


def steepest_rate(clip: int) -> float:
    """Rate at which h' = P(X <= C - 1) has fallen to a quarter: noise grows fourfold there.

    >>> round(steepest_rate(1), 6)  # ln 4
    1.386294
    """
    return float(gammainccinv(clip, 0.25))


def fitting_rate(clip: int, share: float) -> float:
    """Rate at which a share P(X > C) of Poisson users exceeds C; infinite for a share of 1.

    >>> round(fitting_rate(1, 1 - 2 / np.e), 6)
    1.0
    """
    return float(gammaincinv(clip + 1, share)) if share < 1 else math.inf


def debiased(
    noisy: Floats, n_users: int, clip: int, most: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Estimate totals from noisy totals of clipped counts: n h^{-1}(y / n) [1, Algorithm 5]."""
    y = np.maximum(np.asarray(noisy, dtype=np.float64), 0.0)
    fits = y < n_users * float(clipped_mean(min(most, most_rate(clip)), clip))
    return np.where(fits, n_users * rate_of_mean(np.where(fits, y, 0.0) / n_users, clip), y), fits


def debiased_stderr(rate: Floats, n_users: int, clip: int, noise_std: float) -> Floats:
    """Compute the standard error of a debiased total, where all users share one rate.

    Around the users' own total, to first order: the error is (sum Y - n h + Z) / h' - (sum N - n
    rate) with Y = min(N, C). Because h' = Cov(Y, N) / rate, its variance is n (Var Y / h'^2 - rate)
    + Var Z / h'^2; infinite where h' vanishes.
    """
    slope = clipped_mean_slope(rate, clip)
    steep = np.where(slope > 2.0**-51, slope, 1.0)
    sampling = np.maximum(clipped_variance(rate, clip) / steep**2 - rate, 0.0)
    error = np.sqrt(n_users * sampling + (noise_std / steep) ** 2)
    return np.where(slope > 2.0**-51, error, np.inf)
