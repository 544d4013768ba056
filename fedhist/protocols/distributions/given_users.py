"""Expected l1 errors on known users, before the projection to the simplex and after. NOT PRIVATE.

For evaluation only. What the projection does is the closed form of
:mod:`fedhist.protocols.shared.projected_error`; presence and selection, whose estimates are no sums
with noise, enter it as the atoms of each symbol's estimate.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.protocols.distributions import theory
from fedhist.protocols.shared.projected_error import in_shares, projected, projected_l1

MOST_ATOMS = 1 << 24
"""Atoms of selections that are held at a time."""


QUANTILES = 64
"""Values that stand for the noise on a statistic."""


def noise_of(epsilon: float) -> list[float]:
    """Equally probable values of Lap(1 / epsilon).

    >>> round(sum(x > 0.7 for x in noise_of(1.0)) / 64, 2)  # exp(-0.7) / 2
    0.25
    """
    u = (np.arange(QUANTILES) + 0.5) / QUANTILES - 0.5
    return list(map(float, -np.sign(u) * np.log(1 - 2 * np.abs(u)) / epsilon))


def additive_l1(
    p: Floats, mean: Floats, variance: Floats, whole: float, law: NoiseLaw, project: bool
) -> float:
    """Predict the error of totals with noise, divided by ``whole``.

    Parameters
    ----------
    p : (k,) float64
        The truth.
    mean, variance : (k,) float64
        Of the totals over the users' own draws, before the noise.
    whole : float
        What the noisy totals are divided by.
    law : NoiseLaw
        Of the noise on each total.
    project : bool
        Whether the result is projected.
    """
    bias, std = mean / whole - p, np.sqrt(variance) / whole
    if not project or law.scale == 0:
        return float(theory.expected_absolute(whole * bias, whole * std, law).sum()) / whole
    return projected_l1(p, in_shares(law, whole), bias=bias, std=std)


def gaussian_l1(p: Floats, bias: Floats, deviation: float, project: bool) -> float:
    """Predict the error of estimates p + bias with Gaussian errors of one deviation."""
    law = NoiseLaw("gaussian", deviation)
    if project:
        return projected_l1(p, law, bias=bias)
    return float(theory.expected_absolute(bias, np.zeros_like(bias), law).sum())


def presence_l1(
    p: Floats,
    mean: Floats,
    std: Floats,
    m: int,
    n_users: int,
    law: NoiseLaw,
    cmax: float,
    project: bool,
) -> float:
    """Predict the error of probabilities read from presence totals of given moments."""
    if not project:
        return float(theory.presence_absolute(mean, std, p, m, n_users, law, cmax).sum())
    atoms = theory.presence_atoms(mean, std, m, n_users, law, cmax)

    def over(c: Floats) -> Floats:
        return np.asarray(np.maximum(atoms - c[:, None], 0.0).mean(axis=1))

    return min(projected(p, over), 2.0)


def chosen_with(scores: Floats, weight: float) -> Floats:
    """Chance of each point for each symbol, ~ exp(weight score): (k, d) float32.

    Without end, the best ones share it.
    """
    off = scores - scores.max(axis=1, keepdims=True)
    if math.isinf(weight):
        out = (off == 0).astype(np.float32)
    else:
        out = np.exp(np.multiply(off, weight, out=off)).astype(np.float32)
    out /= out.sum(axis=1, keepdims=True)
    return np.asarray(out)


def selection_l1(p: Floats, chances: Floats, points: Floats, project: bool) -> float:
    """Predict the error of one choice among ``points`` for every symbol.

    Parameters
    ----------
    p : (k,) float64
        The truth.
    chances : (k, d) floats
        With which each point is chosen for each symbol.
    points : (d,) float64
    project : bool
    """
    step = max(1, MOST_ATOMS // len(points))

    def rowwise(value: Floats, sign: float) -> Floats:
        """Average (x - value)^+, or |x - value| if the sign is -1."""
        out = np.empty(len(p))
        for i in range(0, len(p), step):
            off = points - value[i : i + step, None]
            kept = np.abs(off) if sign < 0 else np.maximum(off, 0.0)
            out[i : i + step] = np.einsum("kd,kd->k", chances[i : i + step], kept)
        return out

    if not project:
        return float(rowwise(p, -1.0).sum())

    def over(c: Floats) -> Floats:
        if c[0] == c[-1] and (c == c[0]).all():
            return np.asarray(chances @ np.maximum(points - c[0], 0.0))
        return rowwise(c, 1.0)

    return projected(p, over)
