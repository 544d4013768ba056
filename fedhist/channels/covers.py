"""Covers of parameter sets that can be written down: numbered balls, and the cells they leave.

A cover is a list of l_inf balls (cubes), each inside an l_2 ball of radius delta around its
centre; cell j is ball j minus the balls before it, so that every point of the set lies in exactly
one cell, at most delta from its centre in l_2. The proof of Theorem 1 in [1]_ asks no more. Volume
decides what can be written down: a vote has a bit for each of at most MAX_BITS cells.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 2, eq. (10), (12), (16), (19), Propositions
   3-5, eq. (57), (60), (63), (67).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.checks import check_scale, check_within
from fedhist.base.hashing import counter_words
from fedhist.channels.bits import MAX_BITS
from fedhist.model.part import Part
from fedhist.model.registry import register_part

_SLIVER = 1e-9
"""Relative: a cube that meets the set by less does not count."""


@dataclass(frozen=True)
class Cover(Part, ABC):
    """A numbered cover of a set of vectors, by cubes; everything about it is public.

    ``bound`` is the largest absolute value of a coordinate (half width, radius or largest Sobolev
    norm); a cube's side is the width of the set along its longest axis over ``per_axis``.
    ValueError for more than MAX_BITS cells.
    """

    dimension: int
    bound: float
    per_axis: int

    def __post_init__(self) -> None:
        check_within("dimension", self.dimension, 1, 1 << 16)
        check_scale("bound", self.bound)
        check_within("per_axis", self.per_axis, 1, MAX_BITS)

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
        """Move rows onto the set: (n, dimension). Entries may be infinite, but not NaN."""

    def cells(self, points: Floats) -> Integers:
        """Find the lowest-numbered cube that contains each point: (n,) int64, -1 for a NaN."""
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

    >>> grid = BoxGrid(2, 1.0, 2)
    >>> grid.cells(np.array([[-1.0, 0.0], [0.5, 1.0], [0.0, np.nan]]))
    array([ 0,  3, -1])
    >>> grid.centres(np.array([3]))
    array([[0.5, 0.5]])
    """

    wire_name: ClassVar[str] = "box-grid"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension * math.log(self.per_axis) > math.log(MAX_BITS) + 1e-9:
            raise ValueError(
                f"{self.per_axis}^{self.dimension} cells are more than the {MAX_BITS} of a vote"
            )

    @property
    def n_cells(self) -> int:
        """per_axis^d."""
        return int(self.per_axis**self.dimension)

    @property
    def radius(self) -> float:
        return math.sqrt(self.dimension) * self.bound / self.per_axis

    @property
    def diameter(self) -> float:
        return 2 * math.sqrt(self.dimension) * self.bound

    def project(self, points: Floats) -> Floats:
        return np.clip(points, -self.bound, self.bound)

    def _number(self, x: Floats) -> Integers:
        place = np.ceil((x + self.bound) * (self.per_axis / (2 * self.bound))) - 1
        return np.asarray(np.clip(place, 0, self.per_axis - 1).astype(np.int64) @ self._weights)

    @property
    def _weights(self) -> Integers:
        return np.asarray(self.per_axis ** np.arange(self.dimension - 1, -1, -1, dtype=np.int64))

    def centres(self, cells: Integers) -> Floats:
        place = cells[:, None] // self._weights % self.per_axis
        return np.asarray((2 * place + 1 - self.per_axis) * (self.bound / self.per_axis))


@dataclass(frozen=True)
class _Lattice(Cover):
    """Cubes around the points of an integer lattice through the origin, scaled to a spacing h.

    A point belongs to the cube around its nearest lattice point; on a face to the one nearer the
    origin, which has the lower number: cubes are numbered by the lexicographic order of their
    lattice points, where 0, 1, -1, 2, -2, ... is the order along an axis.

    A lattice point z is a member if its cube meets the interior of the set. Along one axis this
    costs it a part of a budget of 1, nothing at 0.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.n_cells

    @property
    @abstractmethod
    def semi_axes(self) -> Floats:
        """Largest absolute value of every coordinate: (dimension,), not increasing."""

    @abstractmethod
    def _costs(self, near: Floats) -> Floats:
        """Price values whose cubes begin at these shares of the semi-axis: rising."""

    @property
    def spacing(self) -> float:
        """Side of a cube: h."""
        return 2 * float(self.semi_axes[0]) / self.per_axis

    @property
    def n_cells(self) -> int:
        return len(_members(self)[0])

    def _number(self, x: Floats) -> Integers:
        members, order, keys = _members(self)
        z = np.copysign(np.ceil(np.abs(x) / self.spacing - 0.5), x)
        most = np.abs(members).max(axis=0)  # rounding may find a cube that meets nothing
        wanted = _keys(np.clip(z, -most, most).astype(np.int64))
        at = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
        return np.where(keys[order[at]] == wanted, order[at], -1)

    def centres(self, cells: Integers) -> Floats:
        return self.project(np.asarray(_members(self)[0][cells] * self.spacing, dtype=np.float64))


@lru_cache(maxsize=4)
def _members(cover: _Lattice) -> tuple[NDArray[np.int32], Integers, Words]:
    """Enumerate the members: (N, d) in order; and their keys, with what sorts them."""
    ends = cover.semi_axes / cover.spacing
    cost, steps = np.zeros(1), []
    for end in ends:
        reach = max(0, math.ceil(end * (1 - _SLIVER) - 0.5))  # (k - 1/2) h lies inside
        if reach > MAX_BITS:
            raise _too_many(cover)
        held = cover._costs((np.arange(reach) + 0.5) / end)
        many = 1 + 2 * np.searchsorted(held, 1 - cost)  # 0, and the values that can be paid for
        if many.sum() > MAX_BITS or many.sum() * len(ends) > 1 << 26:
            raise _too_many(cover)
        row = np.repeat(np.arange(len(cost)), many)
        at = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
        size = (at + 1) // 2
        steps.append((row.astype(np.int32), np.where(at % 2, size, -size).astype(np.int32)))
        cost = cost[row] + np.append(0.0, held)[size]
    members = np.empty((len(cost), len(ends)), dtype=np.int32)
    at = np.arange(len(cost))
    for j in range(len(ends) - 1, -1, -1):
        came, value = steps[j]
        members[:, j], at = value[at], came[at].astype(np.int64)
    keys = _keys(members)
    return members, np.argsort(keys), keys


def _keys(points: NDArray[np.signedinteger[Any]]) -> Words:
    """Hash lattice points: two of 2^16 have one key with probability 2^-33."""
    words = counter_words(np.zeros(1, dtype=np.uint64), points.shape[1])[0]
    return np.asarray(points.astype(np.int64).view(np.uint64) @ words)


def _too_many(cover: Cover) -> ValueError:
    return ValueError(f"{cover} has more than the {MAX_BITS} cells of a vote")


@dataclass(frozen=True)
class _Ellipsoid(_Lattice):
    """sum (x_j / a_j)^2 <= 1."""

    def _costs(self, near: Floats) -> Floats:
        """Squared distance of the cube's nearest face to 0 along the axis, in units of a_j."""
        return np.square(near) * (1 + _SLIVER)

    @property
    def radius(self) -> float:
        """sqrt(sup sum min(h^2 / 4, x_j^2)) over the ellipsoid: the longest axes take it all."""
        square = self.spacing**2 / 4
        costs = square / np.square(self.semi_axes)
        share = np.clip((1 - (np.cumsum(costs) - costs)) / costs, 0, 1)
        return math.sqrt(square * float(share.sum()))

    @property
    def diameter(self) -> float:
        return 2 * float(self.semi_axes[0])

    def project(self, points: Floats) -> Floats:
        a = self.semi_axes
        x = np.clip(points, -a, a)
        most = 1 - 2 * _SLIVER  # inside by more than rounding: every cell found is a member
        outside = np.flatnonzero(np.square(x / a).sum(axis=1) > most)
        if len(outside):
            u, b = x[outside] / a, np.square(a / a[0])
            # the nearest point is u_j b_j / (b_j + t) with t > 0; Newton's steps for the inverse
            # of its length, which is concave in t, rise to t and are exact for a ball. Errors
            # are squared in each. Their number is fixed: a row must not depend on the others
            t = np.zeros((len(u), 1))
            for _ in range(20):
                v = np.square(u * b / (b + t))
                square = v.sum(axis=1, keepdims=True)
                slope = (v / (b + t)).sum(axis=1, keepdims=True)
                t += square * np.maximum(np.sqrt(square) - 1, 0) / slope
            u = u * b / (b + t)
            length = np.square(u).sum(axis=1, keepdims=True)
            x[outside] = u * np.sqrt(np.minimum(1, most / length)) * a
        return np.asarray(x)


@register_part
@dataclass(frozen=True)
class BallLattice(_Ellipsoid):
    """The l_2 ball of radius ``bound``, by lattice cubes.

    >>> BallLattice(2, 1.0, 2).n_cells, BallLattice(2, 1.0, 2).radius < 0.71
    (9, True)
    """

    wire_name: ClassVar[str] = "ball-lattice"

    @property
    def semi_axes(self) -> Floats:
        return np.full(self.dimension, float(self.bound))


@register_part
@dataclass(frozen=True)
class SobolevLattice(_Ellipsoid):
    """Coefficients theta_2, ..., theta_{d+1} with sum j^{2 smoothness} theta_j^2 <= bound^2.

    theta_1 = 1 for every density in the trigonometric basis, so the vectors begin at theta_2.
    Coefficients whose range is below half the spacing have one cell: the cover truncates, and
    its radius counts what is cut off.

    >>> cover = SobolevLattice(50, 1.5, 5, smoothness=1.0)
    >>> cover.n_cells, cover.centres(np.arange(cover.n_cells)).any(axis=0).sum()
    (625, np.int64(8))
    """

    wire_name: ClassVar[str] = "sobolev-lattice"
    smoothness: float = 1.0

    def __post_init__(self) -> None:
        check_within("smoothness", self.smoothness, 0, 16, "(]")
        super().__post_init__()

    @property
    def semi_axes(self) -> Floats:
        """The bound over j^smoothness for j = 2, ..., d + 1."""
        return np.asarray(self.bound * np.arange(2.0, self.dimension + 2) ** -self.smoothness)


@register_part
@dataclass(frozen=True)
class SparseLattice(_Lattice):
    """Vectors of [-bound, bound]^d with at most ``sparsity`` coordinates that are not 0.

    A union of grids, one for every support, whose common cubes are counted once.

    >>> SparseLattice(6, 1.0, 3, sparsity=2).n_cells  # 1 + 6 * 2 + 15 * 4
    73
    """

    wire_name: ClassVar[str] = "sparse-lattice"
    sparsity: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.sparsity <= self.dimension:
            raise ValueError(
                f"sparsity must lie in [1, dimension = {self.dimension}], got {self.sparsity}"
            )
        super().__post_init__()

    @property
    def semi_axes(self) -> Floats:
        return np.full(self.dimension, float(self.bound))

    def _costs(self, near: Floats) -> Floats:
        """As much for any value but 0, so that the budget suffices for ``sparsity`` of them."""
        return np.full(len(near), 1 / (self.sparsity + 0.5))

    @property
    def radius(self) -> float:
        """sqrt(sparsity) times half a cube's side, or the bound."""
        return math.sqrt(self.sparsity) * min(self.spacing / 2, self.bound)

    @property
    def diameter(self) -> float:
        return 2 * math.sqrt(self.sparsity) * self.bound

    def project(self, points: Floats) -> Floats:
        x = np.clip(points, -self.bound, self.bound)
        others = np.argsort(-np.abs(x), axis=1, kind="stable")[:, self.sparsity :]
        np.put_along_axis(x, others, 0.0, axis=1)
        return np.asarray(x)
