"""Covers of parameter sets that can be written down: numbered balls, and the cells they leave.

A cover is a list of l_inf balls (cubes), each inside an l_2 ball of radius delta around its
centre; cell j is ball j minus the balls before it, so that every point of the set lies in exactly
one cell, at most delta from its centre in l_2. The proof of Theorem 1 in [1]_ asks no more. The
covers of l_2 balls, sparse vectors and Sobolev ellipsoids: :mod:`fedhist.channels.lattice_covers`.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 2, eq. (10), (12), (16), (19).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_scale, check_within
from fedhist.model.part import Part
from fedhist.model.registry import register_part

MAX_CELLS = 1 << 22
"""Most cells of a cover: what a vote's totals are worked out for."""
MAX_DIMENSION = 65536


@dataclass(frozen=True)
class Cover(Part, ABC):
    """A numbered cover of a set of vectors, by cubes; everything about it is public.

    Parameters
    ----------
    dimension : int
    bound : float
        Largest absolute value of a coordinate (half width, radius or largest Sobolev norm).
    per_axis : int
        The side of a cube is the width of the set along its longest axis over ``per_axis``.

    Raises
    ------
    ValueError
        If the cover has more than MAX_CELLS cells.
    """

    dimension: int
    bound: float
    per_axis: int

    def __post_init__(self) -> None:
        check_within("dimension", self.dimension, 1, MAX_DIMENSION)
        check_scale("bound", self.bound)
        check_within("per_axis", self.per_axis, 1, MAX_CELLS)

    @property
    @abstractmethod
    def n_cells(self) -> int:
        """How many cells there are: N."""

    @property
    @abstractmethod
    def radius(self) -> float:
        """Largest l_2 distance of a point of the set to the centre of its cell: delta."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """Largest l_2 distance of two points of the set."""

    @abstractmethod
    def project(self, points: Floats) -> Floats:
        """Move rows onto the set: (n, dimension). Entries may be infinite, but not NaN.

        Points of the set stay, up to rounding.
        """

    def cells(self, points: Floats) -> Integers:
        """Find the lowest-numbered cube that contains each point.

        Parameters
        ----------
        points : (n, dimension) float64
            What lies outside the set is first moved onto it.

        Returns
        -------
        (n,) int64
            In [0, n_cells); -1 for a row with a NaN.
        """
        unusable = np.asarray(np.isnan(points).any(axis=1))
        at = self._number(self.project(np.where(unusable[:, None], 0.0, points)))
        return np.where(unusable, -1, at)

    @abstractmethod
    def _number(self, x: Floats) -> Integers:
        """Return the cells of points of the set: (n,) int64."""

    @abstractmethod
    def centres(self, cells: Integers) -> Floats:
        """Return the centres of cells, (k,) int64: (k, dimension) float64, in the set."""


@register_part
@dataclass(frozen=True)
class BoxGrid(Cover):
    """The cube [-bound, bound]^d, by a grid of per_axis^d equal cubes in row-major order.

    A point on a face belongs to the lower cube; the right end belongs to the last one.

    Examples
    --------
    >>> grid = BoxGrid(2, 1.0, 2)
    >>> grid.cells(np.array([[-1.0, 0.0], [0.5, 1.0], [0.0, np.nan]]))
    array([ 0,  3, -1])
    >>> grid.centres(np.array([3]))
    array([[0.5, 0.5]])
    """

    wire_name: ClassVar[str] = "box-grid"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension * math.log(self.per_axis) > math.log(MAX_CELLS) + 1e-9:
            raise ValueError(
                f"{self.per_axis}^{self.dimension} cells are more than the {MAX_CELLS} of a vote"
            )

    @property
    def n_cells(self) -> int:
        """per_axis^d."""
        return int(self.per_axis**self.dimension)

    @property
    def radius(self) -> float:
        """Half the diagonal of a cube."""
        return math.sqrt(self.dimension) * self.bound / self.per_axis

    @property
    def diameter(self) -> float:
        """The diagonal."""
        return 2 * math.sqrt(self.dimension) * self.bound

    def project(self, points: Floats) -> Floats:
        """Clip every coordinate."""
        return np.clip(points, -self.bound, self.bound)

    def cells(self, points: Floats) -> Integers:
        """Find the cell of each point in one walk."""
        at = np.empty(len(points), dtype=np.int64)
        bound = float(self.bound)
        _box_cells(points, bound, self.per_axis / (2 * bound), self.per_axis, at)
        return at

    def _number(self, x: Floats) -> Integers:
        return self.cells(x)

    @property
    def _weights(self) -> Integers:
        if self.per_axis == 1:  # no limit on d
            return np.zeros(self.dimension, dtype=np.int64)
        return np.asarray(self.per_axis ** np.arange(self.dimension - 1, -1, -1, dtype=np.int64))

    def centres(self, cells: Integers) -> Floats:
        """Return the middles of the cubes."""
        place = cells[:, None] // np.maximum(self._weights, 1) % self.per_axis
        return np.asarray((2 * place + 1 - self.per_axis) * (self.bound / self.per_axis))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _box_cells(points: Floats, bound: float, scale: float, m: int, at: Integers) -> None:
    """Clip each point to the box and number its cell; -1 for a row with a NaN."""
    for i in range(points.shape[0]):
        cell = 0
        for j in range(points.shape[1]):
            x = points[i, j]
            if np.isnan(x):
                cell = -1
                break
            x = bound if x > bound else -bound if x < -bound else x
            place = int(np.ceil((x + bound) * scale)) - 1
            place = m - 1 if place >= m else 0 if place < 0 else place
            cell = cell * m + place
        at[i] = cell
