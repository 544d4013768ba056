"""Densities on [0, 1] by their trigonometric series: level, shrinkage, projection, evaluation.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5, eq. (18)-(22), (49), (50).
.. [2] James & Stein, "Estimation with quadratic loss", Berkeley Symposium 1961; here for one
   coefficient at a time, keeping the positive part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats
from server.distributions.simplex import project_simplex
from server.means.localize import plan_univariate

GRID = 1024
"""Cells on which a density is published."""
_CHUNK = 1 << 18  # points of an evaluation, or samples, at a time
_PAPER_C = 0.01


@dataclass(frozen=True, eq=False)
class TrigonometricDensity:
    """The function sum_j theta_j phi_j on [0, 1], which may be negative where it is an estimate.

    phi_1 = 1, phi_2k(x) = sqrt(2) cos(2 pi k x), phi_{2k+1}(x) = sqrt(2) sin(2 pi k x)
    [1, eq. (18)].

    Parameters
    ----------
    coefficients : (J,) float64
        theta_1, ..., theta_J; theta_1 is the integral over [0, 1].

    Examples
    --------
    >>> f = TrigonometricDensity(np.array([1.0, 0.5]))
    >>> f.integrate(0.0, 1.0), round(f.integrate(0.0, 0.25), 6)
    (1.0, 0.36254)
    """

    coefficients: Floats

    def __post_init__(self) -> None:
        theta = np.asarray(self.coefficients, dtype=np.float64)
        if theta.ndim != 1 or not len(theta) or not np.isfinite(theta).all():
            raise ValueError(f"coefficients must be a finite (J,) vector, got {self.coefficients}")
        object.__setattr__(self, "coefficients", theta)

    @property
    def _waves(self) -> NDArray[np.complex128]:
        """c_k with f(x) = theta_1 + Re sum_k c_k exp(2 pi i k x), k = 1, 2, ..."""
        theta = self.coefficients[1:]
        theta = np.append(theta, np.zeros(len(theta) % 2))
        return np.asarray(math.sqrt(2) * (theta[::2] - 1j * theta[1::2]))

    def evaluate(self, x: ArrayLike) -> Floats:
        """Return the values at points of [0, 1]: float64 of the shape of ``x``."""
        points = np.asarray(x, dtype=np.float64)
        flat, out = points.ravel(), np.empty(points.size)
        for start in range(0, len(flat), _CHUNK):
            turn = np.exp(2j * np.pi * flat[start : start + _CHUNK])
            value = np.zeros(len(turn), dtype=np.complex128)
            for c in self._waves[::-1]:  # Horner
                value = (value + c) * turn
            out[start : start + _CHUNK] = self.coefficients[0] + value.real
        return out.reshape(points.shape)

    def integrate(self, a: float, b: float) -> float:
        """Integrate from a to b, 0 <= a <= b <= 1, in closed form."""
        _check_ends(a, b)
        k = np.arange(1, len(self._waves) + 1)
        part = (np.exp(2j * np.pi * k * b) - np.exp(2j * np.pi * k * a)) / (2j * np.pi * k)
        return float(self.coefficients[0] * (b - a) + (self._waves * part).real.sum())

    def on_grid(self, n_cells: int = GRID) -> Floats:
        """Return the values at the midpoints of n_cells equal cells: (n_cells,) float64."""
        return self.evaluate(midpoints(n_cells))


@dataclass(frozen=True, eq=False)
class GridDensity:
    """A function on [0, 1] that is constant on cells of equal width.

    Parameters
    ----------
    values : (n_cells,) float64
        Its value on each cell.

    Examples
    --------
    >>> f = GridDensity(np.array([0.5, 1.5]))
    >>> f.evaluate([0.0, 0.6, 1.0]).tolist(), f.integrate(0.25, 0.75)
    ([0.5, 1.5, 1.5], 0.5)
    """

    values: Floats

    def __post_init__(self) -> None:
        f = np.asarray(self.values, dtype=np.float64)
        if f.ndim != 1 or not len(f) or not np.isfinite(f).all():
            raise ValueError(f"values must be a finite vector, got shape {f.shape}: {f[:5]}")
        object.__setattr__(self, "values", f)

    def evaluate(self, x: ArrayLike) -> Floats:
        """Return the values at points of [0, 1]; on an edge that of the cell to its right."""
        points = np.asarray(x, dtype=np.float64)
        if points.size and not (points.min() >= 0 and points.max() <= 1):
            raise ValueError(f"points must lie in [0, 1], got {points.min()} to {points.max()}")
        n = len(self.values)
        return np.asarray(self.values[np.minimum((points * n).astype(np.int64), n - 1)])

    def integrate(self, a: float, b: float) -> float:
        """Integrate from a to b, 0 <= a <= b <= 1."""
        _check_ends(a, b)
        edges = np.arange(len(self.values) + 1) / len(self.values)
        below = np.concatenate(([0.0], np.cumsum(self.values))) / len(self.values)
        low, high = np.interp([a, b], edges, below)
        return float(high - low)


def midpoints(n_cells: int = GRID) -> Floats:
    """Return the midpoints of n_cells equal cells of [0, 1].

    Means over them are exact for products of two series of fewer than n_cells terms.
    """
    return (np.arange(n_cells) + 0.5) / n_cells


def standard_error(stderr: ArrayLike, n_cells: int = GRID) -> Floats:
    """Return the standard error of a series with independent coefficients on a grid.

    Parameters
    ----------
    stderr : (J,) float64
        Of theta_1, ..., theta_J.
    n_cells : int

    Returns
    -------
    (n_cells,) float64
        sqrt(sum_j se_j^2 phi_j^2); infinite everywhere if one of them is.
    """
    se = np.asarray(stderr, dtype=np.float64)
    if not np.isfinite(se).all():
        return np.full(n_cells, np.inf)
    x, total = midpoints(n_cells), np.full(n_cells, se[0] ** 2)
    for j in range(2, len(se) + 1):
        angle = 2 * np.pi * (j // 2) * x
        total += 2 * (se[j - 1] * (np.sin(angle) if j % 2 else np.cos(angle))) ** 2
    return np.asarray(np.sqrt(total))


def project_density(values: ArrayLike) -> Floats:
    """Return the density on a grid nearest in l2: non-negative, with mean 1.

    The projection onto a convex set that holds the true density: it never enlarges the
    integrated squared error.

    Parameters
    ----------
    values : (n_cells,) float64

    Examples
    --------
    >>> project_density([2.0, 1.0, -0.5])
    array([2., 1., 0.])
    """
    f = np.asarray(values, dtype=np.float64)
    return project_simplex(f / len(f)) * len(f)


def shrink(theta: ArrayLike, stderr: ArrayLike) -> Floats:
    """Shrink each coefficient to theta (1 - se^2 / theta^2)_+ [2]; 0 where the error is infinite.

    >>> shrink([2.0, 0.5, 0.3], [1.0, 1.0, np.inf])
    array([1.5, 0. , 0. ])
    """
    t, s = np.asarray(theta, dtype=np.float64), np.asarray(stderr, dtype=np.float64)
    kept = np.abs(t) > s
    safe = np.where(kept, t, 1.0)
    return np.where(kept, safe - np.where(kept, s, 0.0) ** 2 / safe, 0.0)


def tail_energy(level: int, smoothness: float, radius: float) -> float:
    """Bound the energy beyond J terms in the Sobolev ellipsoid: r^2 (J + 1)^(-2 beta)."""
    return float(radius**2 * (level + 1.0) ** (-2 * smoothness))


def coefficient_scale(samples: float) -> float:
    """Return the standard deviation to plan with for a user's mean of phi_j / sqrt(2).

    1 / sqrt(2 T). phi_2k^2 + phi_{2k+1}^2 = 2 everywhere, so that over the two coefficients of a
    frequency the variance of one sample of phi_j / sqrt(2) is at most 1/2 on average, whatever
    the density; that of one of them is at most 1.

    >>> coefficient_scale(50)
    0.1
    """
    return 1 / math.sqrt(2 * samples)


@lru_cache(maxsize=256)
def density_level(
    n_users: int,
    mean_scale: float,
    epsilon: float,
    kind: str = "auto",
    smoothness: float = 1.0,
    radius: float = 1.5,
    most: int = GRID - 1,
) -> int:
    """Choose the terms J of the series: odd, and of least predicted integrated squared error.

    2 (J - 1) risk(n / (J - 1)) + radius^2 (J + 1)^(-2 smoothness): the variance of the estimated
    coefficients, by the plan of a mean in [-1, 1], where phi_j / sqrt(2) lies, plus the largest
    energy of the others in the Sobolev ellipsoid [1, eq. (19)]. Levels whose plan is infeasible,
    worse than no estimate at all, do not count.

    Parameters
    ----------
    n_users : int
    mean_scale : float
        Standard deviation of a user's mean of phi_j / sqrt(2), see :func:`coefficient_scale`.
    epsilon : float
    kind : str
        Scalar channel.
    smoothness, radius : float
        beta and r of the ellipsoid sum_j j^(2 beta) theta_j^2 <= r^2.
    most : int
        Largest level to consider.

    Returns
    -------
    int
        The least of several equal ones; 1 says that the uniform density is the best guess.

    Examples
    --------
    >>> density_level(20_000, coefficient_scale(100), 1.0), density_level(500, 0.7, 0.1)
    (19, 1)
    """

    def variance(level: int) -> float:
        k = level - 1
        plan = plan_univariate(n_users / k, mean_scale, 1.0, epsilon, kind)
        return 2 * k * plan.risk if plan.feasible else math.inf

    return best_level(variance, smoothness, radius, most)


def best_level(
    variance: Callable[[int], float], smoothness: float, radius: float, most: int
) -> int:
    """Return the odd level of least variance plus :func:`tail_energy`; the least of equal ones.

    ``variance`` must not fall with the level.
    """
    best, least = 1, tail_energy(1, smoothness, radius)
    for level in range(3, most + 1, 2):
        spread = variance(level)
        if spread >= least:
            break
        total = spread + tail_energy(level, smoothness, radius)
        if total < least:
            best, least = level, total
    return best


def paper_level(
    n_users: int, samples: float, epsilon: float, smoothness: float, most: int = GRID - 1
) -> int:
    """Return the level of the paper [1, eq. (49)] with c = 1/100 for its unnamed constant.

    M = min((n T epsilon^2)^(1 / (2 beta + 2)), c n epsilon^2 / log(n epsilon^2)), rounded down, at
    least 1. The paper takes epsilon <= 1: a larger one counts as 1.

    >>> paper_level(10**6, 100, 1.0, 1.0), paper_level(1000, 100, 1.0, 1.0)
    (100, 1)
    """
    strength = n_users * min(epsilon, 1.0) ** 2
    polynomial = float((strength * samples) ** (1 / (2 * smoothness + 2)))
    exponential = _PAPER_C * strength / math.log(strength) if strength > math.e else 0.0
    return min(most, max(1, math.floor(min(polynomial, exponential) + 1e-9)))


def coefficients_of(x: ArrayLike, weights: ArrayLike, level: int) -> Floats:
    """Average the basis functions over weighted samples: (level,) float64.

    Parameters
    ----------
    x : (n,) float64
        In [0, 1].
    weights : (n,) float64
    level : int
        Number of coefficients J.

    Examples
    --------
    >>> coefficients_of([0.0, 0.25], [0.5, 0.5], 3).round(3)
    array([1.   , 0.707, 0.707])
    """
    points, w = np.asarray(x, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    theta = np.zeros(2 * (level // 2) + 1)
    theta[0] = w.sum()
    for start in range(0, len(points), _CHUNK):
        turn = np.exp(2j * np.pi * points[start : start + _CHUNK])
        power = w[start : start + _CHUNK].astype(np.complex128)
        for k in range(1, level // 2 + 1):
            power *= turn
            total = power.sum()
            theta[2 * k - 1] += math.sqrt(2) * total.real
            theta[2 * k] += math.sqrt(2) * total.imag
    return theta[:level]


def _check_ends(a: float, b: float) -> None:
    if not 0 <= a <= b <= 1:
        raise ValueError(f"need 0 <= a <= b <= 1, got [{a}, {b}]")
