"""Orthonormal bases of functions on [0, 1] that densities are written in; phi_1 = 1.

Fourier: phi_2k = sqrt(2) cos(2 pi k x), phi_{2k+1} = sqrt(2) sin(2 pi k x), for densities that go
on periodically. Cosine: phi_{j+1} = sqrt(2) cos(pi j x), for any: the even extension of a density
is periodic without a jump. Both count terms the same way: the first L of them have frequencies
below about L / 2.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedhist.base.arrays import Floats
from server.densities.series import (
    GRID,
    TrigonometricDensity,
    coefficients_of,
    midpoints,
    standard_error,
)


class Basis(ABC):
    """Series theta_1, ..., theta_L in one of the bases.

    Class attributes
    ----------------
    step : int
        Terms that belong together: a cosine and its sine.
    """

    step: ClassVar[int] = 1

    @abstractmethod
    def on_grid(self, theta: ArrayLike, n_cells: int = GRID) -> Floats:
        """Return a series at the midpoints of equal cells; L is at most n_cells."""

    @abstractmethod
    def coefficients_of(self, x: Floats, weights: Floats, level: int) -> Floats:
        """Average phi_1, ..., phi_L over weighted samples in [0, 1]: (level,) float64."""

    @abstractmethod
    def standard_error(self, stderr: ArrayLike, n_cells: int = GRID) -> Floats:
        """Return sqrt(sum_j se_j^2 phi_j^2) at the midpoints of equal cells; inf if one is."""

    @abstractmethod
    def largest_norm(self, n_coefficients: int) -> float:
        """Return the largest l2 norm of (phi_2(x), phi_3(x), ...), so many of them."""

    def of_grid(self, values: Floats, level: int) -> Floats:
        """Return phi_1, ..., phi_L averaged against a function on equal cells: (level,)."""
        cells = len(values)
        return self.coefficients_of(midpoints(cells), np.asarray(values) / cells, level)

    def of_bins(self, n_bins: int, n_coefficients: int) -> Floats:
        """Return the matrix that makes coefficients of the masses of equal bins.

        Parameters
        ----------
        n_bins : int
            B, more than half of the terms.
        n_coefficients : int

        Returns
        -------
        (n_coefficients, B) float64
            Values at the bins' midpoints, over what averaging within a bin leaves of a wave: the
            coefficients come out exactly but for waves that look alike on the bins, in place of
            term L those of about 2 B - L.
        """
        unit = np.eye(n_bins) * n_bins
        rows = np.stack([self.of_grid(e, n_coefficients + 1)[1:] for e in unit], axis=1)
        turns = self.frequencies(n_coefficients) / n_bins
        return np.asarray(rows / np.sinc(turns)[:, None])

    @abstractmethod
    def frequencies(self, n_coefficients: int) -> Floats:
        """Return the whole turns of phi_2, phi_3, ... on [0, 1]: (n_coefficients,) float64."""


class FourierBasis(Basis):
    """Sines and cosines of whole turns; see :mod:`server.densities.series`."""

    step: ClassVar[int] = 2

    def on_grid(self, theta: ArrayLike, n_cells: int = GRID) -> Floats:
        """See the base class."""
        return TrigonometricDensity(np.asarray(theta, dtype=np.float64)).on_grid(n_cells)

    def coefficients_of(self, x: Floats, weights: Floats, level: int) -> Floats:
        """See the base class."""
        return coefficients_of(x, weights, level)

    def standard_error(self, stderr: ArrayLike, n_cells: int = GRID) -> Floats:
        """See the base class."""
        return standard_error(stderr, n_cells)

    def largest_norm(self, n_coefficients: int) -> float:
        """Return it: a cosine and its sine have the norm sqrt(2), wherever x is."""
        return math.sqrt(2 * ((n_coefficients + 1) // 2))

    def frequencies(self, n_coefficients: int) -> Floats:
        """Return 1, 1, 2, 2, ..."""
        return np.asarray(np.arange(2, n_coefficients + 2) // 2, dtype=np.float64)


class CosineBasis(Basis):
    """Cosines of half turns.

    Examples
    --------
    >>> basis = CosineBasis()
    >>> basis.on_grid([1.0, 0.5], 4).round(4)
    array([1.6533, 1.2706, 0.7294, 0.3467])
    >>> basis.of_grid(basis.on_grid([1.0, 0.5], 4), 3).round(4) + 0.0
    array([1. , 0.5, 0. ])
    """

    def on_grid(self, theta: ArrayLike, n_cells: int = GRID) -> Floats:
        """See the base class: a discrete cosine transform."""
        from scipy.fft import dct

        t = np.asarray(theta, dtype=np.float64)
        if len(t) > n_cells:
            raise ValueError(f"{len(t)} terms have no place on {n_cells} cells")
        padded = np.zeros(n_cells)
        padded[: len(t)] = t
        return np.asarray(dct(padded, type=3, norm="ortho") * math.sqrt(n_cells))

    def of_grid(self, values: Floats, level: int) -> Floats:
        """See the base class: the transform back."""
        from scipy.fft import dct

        f = np.asarray(values, dtype=np.float64)
        return np.asarray(dct(f, type=2, norm="ortho")[:level] / math.sqrt(len(f)))

    def coefficients_of(self, x: Floats, weights: Floats, level: int) -> Floats:
        """See the base class: cos((j + 1) t) = 2 cos t cos(j t) - cos((j - 1) t)."""
        theta = np.zeros(level)
        for start in range(0, len(x), 1 << 18):
            part = slice(start, start + (1 << 18))
            w = np.asarray(weights[part], dtype=np.float64)
            twice = 2 * np.cos(np.pi * np.asarray(x[part], dtype=np.float64))
            before, wave = twice / 2 * w, w
            for j in range(level):
                theta[j] += wave.sum() * (math.sqrt(2) if j else 1.0)
                before, wave = wave, twice * wave - before
        return theta

    def standard_error(self, stderr: ArrayLike, n_cells: int = GRID) -> Floats:
        """See the base class."""
        se = np.asarray(stderr, dtype=np.float64)
        if not np.isfinite(se).all():
            return np.full(n_cells, np.inf)
        x, total = midpoints(n_cells), np.full(n_cells, se[0] ** 2)
        for j in range(1, len(se)):
            total += 2 * np.square(se[j] * np.cos(np.pi * j * x))
        return np.asarray(np.sqrt(total))

    def largest_norm(self, n_coefficients: int) -> float:
        """Return it: at x = 0 all cosines are 1."""
        return math.sqrt(2 * n_coefficients)

    def frequencies(self, n_coefficients: int) -> Floats:
        """Return 1/2, 1, 3/2, ..."""
        return np.arange(1, n_coefficients + 1) / 2


BASES: Mapping[str, Basis] = MappingProxyType({"cosine": CosineBasis(), "fourier": FourierBasis()})
