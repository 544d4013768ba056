"""Signs at the centre: where a mean lies, from the shares of users above two points.

Where all users share one mean, their own means are normal around it. Two shares of users above
points on both sides of it tell the mean and the scale; an error in the scale enters multiplied by
the distance of the mean from the middle of the points, which is small. Less noise than that of an
average of clipped reports: a sign is 1 or -1, wherever the user's mean lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from fedhist.base.arrays import Floats

FIRST_SHARE = 0.25
"""Of the users not asked yet, who answer the first pair of signs."""
FIRST_STEP, SECOND_STEP = 0.75, 0.6
"""Distance of the points from their middle, in (planned, found) scales."""
FIRST_WEIGHT = 0.15
"""Of the first pair's estimate in the result."""
LEAST_SAMPLES = 30.0
MOST_EPSILON = 3.0
MOST_ERROR = 0.055
LEAST_SCALE, CLIP_SCALE, MOST_SCALE = 0.25, 0.45, 1.3
"""In planned scales; below the second, means may lie on a lattice or at an edge."""
_PROPORTIONS = 0.02, 0.98


@dataclass(frozen=True)
class Signs:
    """What two shares tell.

    Attributes
    ----------
    mean : float
    scale : float
        Standard deviation of a user's mean.
    variance : float
        Of ``mean``.
    """

    mean: float
    scale: float
    variance: float


def sign_worth(n_rest: float, samples: float, epsilon: float) -> bool:
    """Say, from public numbers, whether signs are better than clipped reports of n_rest users."""
    if samples < LEAST_SAMPLES or not epsilon < MOST_EPSILON or n_rest <= 0:
        return False
    half = n_rest * FIRST_SHARE / 2
    return 1 / (2 * math.tanh(epsilon / 2) * math.sqrt(half)) <= MOST_ERROR


def read_signs(
    shares: Floats, sizes: Floats, middle: float, step: float, scale: float, gain: float
) -> Signs:
    """Turn the shares of users above middle - step and above middle + step into a mean.

    Parameters
    ----------
    shares : (2,) float64
        Debiased.
    sizes : (2,) float64
        Users who told each share.
    middle, step : float
    scale : float
        Planned standard deviation of a user's mean.
    gain : float
        tanh(epsilon / 2).

    Returns
    -------
    Signs

    Error
    -----
    For a mean at the middle the variance is (pi / 2) s^2 e^{b^2 / s^2} / (gain^2 n) with the step
    b, the scale s and n users in all; the error of the scale is counted.

    Examples
    --------
    >>> both = ndtr(np.array([0.75 + 0.1, -0.75 + 0.1]))
    >>> found = read_signs(both, np.array([400.0, 400.0]), 3.0, 0.15, 0.2, 0.5)
    >>> round(found.mean, 9), round(found.scale, 9)
    (3.02, 0.2)
    """
    q = np.clip(shares, *_PROPORTIONS)
    z = ndtri(q)
    gap = float(z[0] - z[1])
    found = 2 * step / gap if gap > 0 else math.inf
    kept = min(max(found, LEAST_SCALE * scale), MOST_SCALE * scale)
    mean = middle + kept * float(z.sum()) / 2
    share_variance = (1 / (4 * gain * gain) - (q - 0.5) ** 2) / np.maximum(sizes, 1.0)
    z_variance = share_variance * 2 * math.pi * np.exp(z * z)
    slope = np.full(2, kept / 2)
    if kept == found:
        slope = 2 * step / gap**2 * np.array([-z[1], z[0]])
    return Signs(mean, kept, float((slope**2 * z_variance).sum()))


def sign_variance(n_rest: float, scale: float, gain: float) -> float:
    """Predict the variance of the two rounds of signs of n_rest users around their mean."""

    def of(share: float, step: float) -> float:
        q = float(ndtr(step))
        v = 1 / (4 * gain * gain) - (q - 0.5) ** 2
        return math.pi * scale**2 * math.exp(step**2) * 2 * v / (share * n_rest)

    first, second = of(FIRST_SHARE, FIRST_STEP), of(1 - FIRST_SHARE, SECOND_STEP)
    return float(FIRST_WEIGHT**2 * first + (1 - FIRST_WEIGHT) ** 2 * second)


def weighted(first: Signs, second: Signs) -> tuple[float, float]:
    """Combine the two pairs: mean and variance."""
    w = FIRST_WEIGHT
    mean = w * first.mean + (1 - w) * second.mean
    return mean, w**2 * first.variance + (1 - w) ** 2 * second.variance
