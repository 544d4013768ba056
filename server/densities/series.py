"""Densities on [0, 1] as series: evaluation, coefficients, shrinkage, projection.

phi_1 = 1 and, in the "fourier" basis, phi_2k = sqrt(2) cos(2 pi k x) and phi_{2k+1} =
sqrt(2) sin(2 pi k x) [1, eq. (18)], for densities that go on periodically; in the "cosine" basis
phi_{j+1} = sqrt(2) cos(pi j x), for any: the even extension of a density is periodic without a
jump. Both count the same way: the first L have frequencies below about L / 2. ``theta`` are the
coefficients of phi_2, phi_3, ...; that of phi_1 is 1.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5, eq. (18)-(22).
.. [2] Efron & Morris, "Stein's estimation rule and its competitors: an empirical Bayes approach",
   JASA 1973. Own idea: a power law of the index as the prior.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from clients.records.functionals import BasisName
from fedhist.base.arrays import Floats
from server.targets.domains import project_simplex

GRID = 1024
"""Cells on which a density is published."""

NUMBERS_AT_A_TIME = 1 << 18  # numbers of a temporary array, or samples, at a time


def midpoints(n_cells: int = GRID) -> Floats:
    """Return the midpoints of n_cells equal cells of [0, 1]."""
    return (np.arange(n_cells) + 0.5) / n_cells


def frequencies(basis: BasisName, n: int) -> Floats:
    """Return the turns of phi_2, phi_3, ... on [0, 1], (n,): 1/2, 1, 3/2, ... or 1, 1, 2, 2, ..."""
    half = np.arange(1, n + 1) if basis == "cosine" else np.arange(2, n + 2) // 2 * 2
    return np.asarray(half / 2, dtype=np.float64)


def waves(basis: BasisName, x: Floats, n: int) -> Floats:
    """Evaluate phi_2, phi_3, ... at points: (n, points)."""
    angle = 2 * np.pi * np.multiply.outer(frequencies(basis, n), x)
    out = np.cos(angle)
    if basis == "fourier":
        out[1::2] = np.sin(angle[1::2])
    return np.asarray(math.sqrt(2) * out)


def series_at(basis: BasisName, theta: Floats, x: Floats) -> Floats:
    """Evaluate 1 + sum_j theta_j phi_j at points: (points,) float64."""
    out = np.ones(len(x))
    for part, values in _in_parts(basis, x, len(theta)):
        out[part] += theta @ values
    return out


def _in_parts(basis: BasisName, x: Floats, n: int) -> Iterator[tuple[slice, Floats]]:
    """Evaluate phi_2, phi_3, ... at some points at a time."""
    step = max(1, NUMBERS_AT_A_TIME // max(1, n))
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        yield part, waves(basis, x[part], n)


def series_stderr(basis: BasisName, stderr: Floats, n_cells: int = GRID) -> Floats:
    """Return sqrt(sum_j se_j^2 phi_j^2) at the midpoints of equal cells; inf if one is."""
    if not np.isfinite(stderr).all():
        return np.full(n_cells, np.inf)
    out = np.empty(n_cells)
    for part, values in _in_parts(basis, midpoints(n_cells), len(stderr)):
        out[part] = np.square(stderr) @ np.square(values)
    return np.asarray(np.sqrt(out))


def coefficients_of(basis: BasisName, x: Floats, weights: Floats, n: int) -> Floats:
    """Average phi_2, phi_3, ... over weighted samples in [0, 1]: (n,) float64.

    >>> coefficients_of("fourier", np.array([0.0, 0.25]), np.array([0.5, 0.5]), 2).round(3)
    array([0.707, 0.707])
    """
    turns = n if basis == "cosine" else (n + 1) // 2
    total = np.zeros(turns, dtype=np.complex128)
    for start in range(0, len(x), NUMBERS_AT_A_TIME):
        part = slice(start, start + NUMBERS_AT_A_TIME)
        turn = np.exp((1j if basis == "cosine" else 2j) * np.pi * x[part])
        power = weights[part].astype(np.complex128)
        for k in range(turns):
            power *= turn
            total[k] += power.sum()
    if basis == "cosine":
        return np.asarray(math.sqrt(2) * total.real)
    return math.sqrt(2) * np.stack((total.real, total.imag), axis=1).ravel()[:n]


def of_bins(basis: BasisName, n_bins: int, n: int) -> Floats:
    """Return the matrix that makes coefficients of the masses of equal bins: (n, n_bins)."""
    left = np.sinc(frequencies(basis, n) / n_bins)
    return np.asarray(waves(basis, midpoints(n_bins), n) / left[:, None])


def project_density(values: ArrayLike) -> Floats:
    """Return the density on a grid nearest in l2: non-negative, with mean 1.

    >>> project_density([2.0, 1.0, -0.5])
    array([2., 1., 0.])
    """
    f = np.asarray(values, dtype=np.float64)
    return project_simplex(f / len(f)) * len(f)


def nearest_density(basis: BasisName, theta: Floats) -> Floats:
    """Return the coefficients of the density nearest to a series, on some cells: (n,)."""
    cells = max(256, 2 * (len(theta) + 1))
    values = project_density(series_at(basis, theta, midpoints(cells)))
    return coefficients_of(basis, midpoints(cells), values / cells, len(theta))


def shrink_by_decay(theta: ArrayLike, stderr: ArrayLike) -> Floats:
    """Return the posterior mean of coefficients under a prior of power laws [2].

    theta_j ~ N(0, s^2 j^(-2 a)), j = 1, 2, ..., with five powers a, .5 to 3, and ten sizes s, .02
    to 3, each as likely as the other before; the estimates, normal around theta_j, say which are
    likely after. Infinite standard errors give 0.

    >>> shrink_by_decay([0.8, 0.2, 0.02, -0.1], [0.1] * 4).round(2)
    array([ 0.78,  0.14,  0.01, -0.02])
    """
    t, se = np.asarray(theta, dtype=np.float64), np.asarray(stderr, dtype=np.float64)
    known = np.isfinite(se)
    if not known.any() or not se[known].any():
        return np.where(known, t, 0.0)
    j = np.arange(1.0, len(t) + 1)[known]
    sizes = np.geomspace(0.02, 3.0, 10)
    prior = np.concatenate([np.outer(sizes**2, j ** (-2 * a)) for a in (0.5, 1, 1.5, 2, 3)])
    spread = prior + np.square(se[known])
    log = -0.5 * (np.square(t[known]) / spread + np.log(spread)).sum(axis=1)
    weight = np.exp(log - log.max())
    out = np.zeros(len(t))
    out[known] = (weight / weight.sum()) @ (prior / spread) * t[known]
    return out
