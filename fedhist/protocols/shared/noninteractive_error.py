"""Errors of what users of local privacy run today: naive means and frequency oracles.

Closed forms, written apart from the channels and the estimators. Those that take records are exact
for that population: they average over the reports' randomness only.

References
----------
.. [1] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018.
.. [2] Wang, Blocki, Li & Jha, "Locally differentially private protocols for frequency estimation",
   USENIX Security 2017, Table 1.
.. [3] Acharya, Sun & Zhang, "Hadamard response", AISTATS 2019.
.. [4] Ye & Barg, "Optimal schemes for discrete distribution estimation under locally differential
   privacy", IEEE Transactions on Information Theory, 2018.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.noise_law import NoiseLaw, excess

# -- means -----------------------------------------------------------------------------------------


def scalar_noise(kind: str, epsilon: float, u: float = 0.0) -> float:
    """Variance of one debiased report of u in [-1, 1], without the rounding to a lattice.

    Laplace 8 / epsilon^2, one bit coth^2(epsilon / 2) - u^2, piecewise u^2 / (t - 1) + (t + 3) /
    (3 (t - 1)^2) with t = e^(epsilon / 2).
    """
    if kind == "laplace":
        return 8 / epsilon / epsilon
    if kind == "onebit":
        coth = 1 / math.tanh(epsilon / 2)
        return coth * coth - u**2
    if kind == "piecewise":
        t = math.expm1(epsilon / 2) if epsilon < 1400 else math.inf
        return u**2 / t + (1 + 4 / t) / (3 * t) if t < 1e150 else 0.0
    raise ValueError(f"kind must be laplace, onebit or piecewise, got {kind!r}")


def sphere_length(dimension: int, epsilon: float) -> float:
    """Norm of a report for the unit ball: coth(epsilon / 2) sqrt(pi) G((d+1)/2) / G(d/2) [1]."""
    ratio = math.exp(gammaln((dimension + 1) / 2) - gammaln(dimension / 2))
    return math.sqrt(math.pi) * ratio / math.tanh(epsilon / 2)


def naive_mse(
    *,
    geometry: str,
    kind: str,
    epsilon: float,
    dimension: int,
    scale: float,
    n_reports: float,
    item_variance: float = 0.0,
) -> float:
    """Mean squared error of averaging n_reports reports at u = 0, all coordinates added.

    Parameters
    ----------
    geometry : {"linf", "l2"}
        One coordinate a report, d^2 noise / n; or the sphere, B^2 / n.
    kind : str
        Scalar channel; not used in "l2".
    epsilon : float
        Of one report: a user's, or an item's.
    dimension : int
    scale : float
        Half width of the range, or radius of the ball.
    n_reports : float
        Users for user-level privacy, all their items for item-level privacy.
    item_variance : float
        Variance of what is reported around the mean, in units of scale^2, per coordinate.

    Examples
    --------
    >>> common = dict(geometry="linf", kind="laplace", dimension=1, scale=1.0)
    >>> naive_mse(epsilon=1.0, n_reports=1000, **common)
    0.008
    """
    if geometry == "l2":
        # the norm of a report is constant: its spread holds that of the items
        length = scale * sphere_length(dimension, epsilon)
        return float(length * length / n_reports)
    one = scalar_noise(kind, epsilon)
    if kind != "onebit":
        one += item_variance  # a bit is as spread as it can be
    return float(dimension**2 * scale**2 * one / n_reports)


def fold_mse(n: Integers, means: Floats, variances: Floats, truth: Floats, empty: float) -> float:
    """Exact mean squared error of averaging reports by coordinate, all coordinates added.

    Parameters
    ----------
    n : (d,) int64
        Reports about each coordinate.
    means, variances : (d,) float64
        Of every debiased report, given the records, added up by coordinate.
    truth : (d,) float64
    empty : float
        What stands in for a coordinate without reports.
    """
    many = np.maximum(n, 1)
    mean = np.where(n > 0, means / many, empty)
    noise = variances / many.astype(np.float64) ** 2
    return float(noise.sum() + np.square(mean - truth).sum())


def sphere_mse(n: int, total: Floats, square: float, length: float, truth: Floats) -> float:
    """Exact mean squared error of averaging n reports on a sphere.

    They are unbiased for rows that add up to ``total``, (d,), and whose squared norms add up to
    ``square``. A report has the norm ``length`` whatever happens, so that its total variance is
    length^2 - |row|^2.
    """
    m = max(n, 1)
    noise = (n * length**2 - square) / m**2
    return noise + float(np.square(total / m - truth).sum())


# -- one vote a user -------------------------------------------------------------------------------


def unary_noise(epsilon: float) -> tuple[float, float]:
    """Coefficients (a, b) of optimized unary encoding: 4 e^epsilon / (e^epsilon - 1)^2 and 2 [2].

    The debiased report of a symbol, that a user votes for with probability p, has the variance
    a + b p - p^2.
    """
    if math.isinf(epsilon):
        return 0.0, 1.0
    return (1 / math.sinh(epsilon / 2) ** 2 if epsilon < 1400 else 0.0), 2.0


def hadamard_noise(epsilon: float) -> tuple[float, float]:
    """Coefficients (a, b) of Hadamard response: coth^2(epsilon / 2) and 0 [3].

    The debiased report is +-coth(epsilon / 2) with the mean p.
    """
    return (0.0, 1.0) if math.isinf(epsilon) else (1 / math.tanh(epsilon / 2) ** 2, 0.0)


def layered_noise(epsilon: float, size: int, chosen: int, overlap: int) -> tuple[float, float]:
    """Coefficients (a, b) of a symbol of ``size``, e^epsilon times likelier in a record's set.

    A report falls into its own set with probability p = c e / D, D = N + c (e - 1), and into
    another, which has o symbols in common with it, with q = (c + o (e - 1)) / D: the debiased
    indicator has the variance a + b f - f^2 with a = q (1 - q) / (p - q)^2 and
    b = (1 - 2 q) / (p - q).
    """
    s = math.exp(-epsilon)
    whole = size * s + chosen * (1 - s)
    return hit_noise(chosen / whole, (chosen * s + overlap * (1 - s)) / whole)


def subset_noise(epsilon: float, size: int, chosen: int) -> tuple[float, float]:
    """Coefficients (a, b) of a subset of ``chosen`` of ``size`` symbols [4]."""
    p = chosen / (chosen + (size - chosen) * math.exp(-epsilon))
    return hit_noise(p, (p * (chosen - 1) + (1 - p) * chosen) / (size - 1))


def hit_noise(p: float, q: float) -> tuple[float, float]:
    """Return q (1 - q) / (p - q)^2 and (1 - 2 q) / (p - q)."""
    return q * (1 - q) / (p - q) ** 2, (1 - 2 * q) / (p - q)


def oracle_mse(noise: tuple[float, float], n_users: int, k: int, p1: float, p2: float) -> float:
    """Exact expected squared l2 distance from the average of the users' shares.

    Parameters
    ----------
    noise : (a, b)
    n_users, k : int
    p1, p2 : float
        Sums over users and symbols of p and of p^2, p being a user's share of a symbol.
    """
    a, b = noise
    return (n_users * k * a + b * p1 - p2) / n_users**2


def oracle_stderr(noise: tuple[float, float], n_users: int, share: ArrayLike) -> Floats:
    """Bound the standard error of each entry, from the share itself.

    The average of p^2 over users is at least the square of the average of p.
    """
    p = np.clip(share, 0.0, 1.0)
    return np.asarray(np.sqrt((noise[0] + noise[1] * p - np.square(p)) / n_users))


def slot_l1(
    noise: tuple[float, float],
    n_users: int,
    sums: tuple[Floats, Floats, Floats],
    padding: int,
    nonneg: bool,
) -> float:
    """Compute the expected l1 distance of padded and sampled counts from the users' totals.

    A user with the counts N_j, N in all, votes for j with probability p_j = N_j / max(N, L), and
    the estimate L times the sum of the debiased reports has the mean sum of L p_j, the counts
    clipped to L, and the variance L^2 times the sum of a + b p_j - p_j^2. Mean and variance are
    exact; the sum is taken as normal.

    Parameters
    ----------
    noise : (a, b)
    n_users : int
    sums : three (d,) float64
        Over users: of N_j, p_j and p_j^2.
    padding : int
        L.
    nonneg : bool
        Whether the estimate is raised to at least zero.
    """
    truth, p1, p2 = sums
    a, b = noise
    variance = np.maximum(n_users * a + b * p1 - p2, 0.0)
    std = np.maximum(padding * np.sqrt(variance), 1e-9)  # rounding leaves less than that of 0
    unit = NoiseLaw("gaussian", 1.0)
    bias = np.maximum(truth - padding * p1, 0.0)
    error = bias + 2 * std * excess(unit, bias / std)
    if nonneg:
        error -= std * excess(unit, padding * p1 / std)
    return float(error.sum())
