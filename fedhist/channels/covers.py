"""Covers of parameter sets that can be written down: numbered balls, and the cells they leave.

A cover is a list of l_inf balls (cubes), each inside an l_2 ball of radius delta around its
centre; cell j is ball j minus the balls before it, so that every point of the set lies in exactly
one cell, at most delta from its centre in l_2. The proof of Theorem 1 in [1]_ asks no more. Volume
decides what can be written down: a vote has at most MAX_CELLS cells.

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
from typing import ClassVar

import numpy as np
from numba import njit

from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_scale, check_within
from fedhist.channels.catalogue import MAX_BITS
from fedhist.model.part import Part
from fedhist.model.registry import register_part

MAX_CELLS = MAX_BITS
"""Most cells of a cover: a vote has a bit for each."""
MOST_AXES = 65536
_SLIVER = 1e-9
"""Relative: a cube that meets the set by less does not count."""
_NEWTON_STEPS = 20
"""Their error is squared in every step: enough for doubles from any start."""


@dataclass(frozen=True)
class Cover(Part, ABC):
    """A numbered cover of a set of vectors, by cubes; everything about it is public.

    ``bound`` is the largest absolute value of a coordinate (half width, radius or largest Sobolev
    norm); a cube's side is the width of the set along its longest axis over ``per_axis``.
    ValueError for more than MAX_CELLS cells.
    """

    dimension: int
    bound: float
    per_axis: int

    def __post_init__(self) -> None:
        check_within("dimension", self.dimension, 1, MOST_AXES)
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
        """Move rows onto the set: (n, dimension). Entries may be infinite, but not NaN."""

    def cells(self, points: Floats) -> Integers:
        """Find the lowest-numbered cube that contains each point: (n,) int64, -1 for a NaN.

        What lies outside the set is first moved onto it.
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


@dataclass(frozen=True)
class _Lattice(Cover):
    """Cubes around the points of an integer lattice through the origin, scaled to a spacing h.

    A point belongs to the cube around its nearest lattice point; on a face to the one nearer the
    origin, which has the lower number: cubes are numbered by the lexicographic order of their
    lattice points, where 0, 1, -1, 2, -2, ... is the order along an axis.

    A lattice point z is a member if its cube meets the interior of the set. Along one axis this
    costs it a part of a budget of 1, nothing at 0. A lattice point has few coordinates that are not
    0, so its key lists those: digit k, in a base that numbers all (axis, value) pairs, stands for
    the k-th of them, and keys are in the order of the points.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.n_cells

    @property
    @abstractmethod
    def semi_axes(self) -> Floats:
        """Largest absolute value of every coordinate: (dimension,), not increasing."""

    @abstractmethod
    def _costs(self, reach: Integers) -> list[Floats]:
        """List, for every axis, what the values 1 to reach cost; at most those that cost < 1."""

    @property
    def spacing(self) -> float:
        """Side of a cube: h."""
        return 2 * float(self.semi_axes[0]) / self.per_axis

    @property
    def n_cells(self) -> int:
        """Number of members."""
        return len(_members(self).keys)

    def _reach(self) -> Integers:
        """Largest value along every axis: cube z meets the set's interior if (z - 1/2) h < a."""
        scaled = self.semi_axes * ((1 - _SLIVER) / self.spacing) - 0.5
        return np.maximum(np.ceil(scaled), 0).astype(np.int64)

    def _number(self, x: Floats) -> Integers:
        found = _members(self)
        size = np.ceil(np.abs(x) / self.spacing - 0.5)
        size = np.clip(size, 0, found.reach).astype(np.int64)
        row, axis = np.nonzero(size)
        starts = np.searchsorted(row, np.arange(len(x)))
        rank = np.minimum(np.arange(len(row)) - starts[row], len(found.powers) - 1)
        digit = found.first[axis] + 2 * (size[row, axis] - 1) + (x[row, axis] < 0)
        keys = np.zeros(len(x), dtype=np.int64)
        if len(row):
            np.add.at(keys, row, digit * found.powers[rank])
        at = np.minimum(np.searchsorted(found.keys, keys), len(found.keys) - 1)
        return np.where(found.keys[at] == keys, at, -1)

    def centres(self, cells: Integers) -> Floats:
        """Return the lattice points, moved onto the set where they lie outside."""
        found = _members(self)
        out = np.zeros((len(cells), self.dimension))
        axes = np.flatnonzero(found.reach)[::-1]  # in the order of their first digits
        for power in found.powers:
            digit = found.keys[cells] // power % found.base
            row = np.flatnonzero(digit)
            axis = axes[np.searchsorted(found.first[axes], digit[row], side="right") - 1]
            step = digit[row] - found.first[axis]
            out[row, axis] = (step // 2 + 1) * (1 - 2 * (step % 2)) * self.spacing
        return self.project(out)


@dataclass(frozen=True)
class _Members:
    """The member points of a lattice: sorted keys, and what it takes to read them."""

    keys: Integers
    base: int
    powers: Integers
    first: Integers
    reach: Integers


@lru_cache(maxsize=32)
def _members(cover: _Lattice) -> _Members:
    """Enumerate, axis by axis; ValueError for more than MAX_CELLS members."""
    reach = cover._reach()
    if (reach > MAX_CELLS).any():
        raise _too_many(cover)
    costs = cover._costs(reach)
    reach = np.array([len(c) for c in costs])
    first = 1 + np.cumsum(2 * reach[::-1])[::-1] - 2 * reach
    least = np.array([c[0] if len(c) else np.inf for c in costs])
    most = int(np.count_nonzero(np.cumsum(np.sort(least)) < 1 + _SLIVER))
    base = 1 + 2 * int(reach.sum())
    if most * math.log2(base) > 62:
        raise _too_many(cover)
    powers = base ** np.arange(most - 1, -1, -1, dtype=np.int64)
    later = np.append(np.minimum.accumulate(least[::-1])[::-1], np.inf)
    done: list[Integers] = []
    n_done = 0
    key, cost, held = (np.zeros(1, dtype=t) for t in (np.int64, np.float64, np.int64))
    for j in range(len(costs)):
        if not len(costs[j]):
            continue
        total = cost[:, None] + costs[j]
        row, value = np.nonzero(total < 1)
        if n_done + len(key) + 2 * len(row) > MAX_CELLS:
            raise _too_many(cover)
        digit = (first[j] + 2 * value)[None, :] + np.array([[0], [1]])
        longer = (key[row] + digit * powers[held[row]]).reshape(-1)
        key = np.concatenate([key, longer])
        cost = np.concatenate([cost, np.tile(total[row, value], 2)])
        held = np.concatenate([held, np.tile(held[row] + 1, 2)])
        open_ = cost + later[j + 1] < 1
        done.append(key[~open_])
        n_done += len(done[-1])
        key, cost, held = key[open_], cost[open_], held[open_]
    keys = np.sort(np.concatenate([*done, key]))
    return _Members(keys, base, powers, first, reach)


def _too_many(cover: Cover) -> ValueError:
    return ValueError(f"{cover} has more than the {MAX_CELLS} cells of a vote")


@dataclass(frozen=True)
class _Ellipsoid(_Lattice):
    """sum (x_j / a_j)^2 <= 1."""

    def _costs(self, reach: Integers) -> list[Floats]:
        """Squared distance of the cube's nearest face to 0 along the axis, in units of a_j."""
        out = []
        for a, k in zip(self.semi_axes, reach, strict=True):
            c = np.square((np.arange(k) + 0.5) * (self.spacing / a))
            out.append(c[c < 1 - _SLIVER] * (1 + _SLIVER))
        return out

    @property
    def radius(self) -> float:
        """sqrt(sup sum min(h^2 / 4, x_j^2)) over the ellipsoid: the longest axes take it all."""
        square = self.spacing**2 / 4
        costs = square / np.square(self.semi_axes)
        share = np.clip((1 - (np.cumsum(costs) - costs)) / costs, 0, 1)
        return math.sqrt(square * float(share.sum()))

    @property
    def diameter(self) -> float:
        """Twice the longest semi-axis."""
        return 2 * float(self.semi_axes[0])

    def project(self, points: Floats) -> Floats:
        """Clip every coordinate, then go to the nearest point of the ellipsoid."""
        a = self.semi_axes
        x = np.clip(points, -a, a)
        most = 1 - 2 * _SLIVER  # inside by more than rounding: every cell found is a member
        outside = np.flatnonzero(np.square(x / a).sum(axis=1) > most)
        if len(outside):
            u, b = x[outside] / a, np.square(a / a[0])
            # the nearest point is u_j b_j / (b_j + t) with t > 0; Newton's steps for the inverse
            # of its length, which is concave in t, rise to t and are exact for a ball. Their
            # number is fixed: a row must not depend on the others
            t = np.zeros((len(u), 1))
            for _ in range(_NEWTON_STEPS):
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

    Examples
    --------
    >>> BallLattice(2, 1.0, 2).n_cells, BallLattice(2, 1.0, 2).radius < 0.71
    (9, True)
    """

    wire_name: ClassVar[str] = "ball-lattice"

    @property
    def semi_axes(self) -> Floats:
        """All equal to the radius."""
        return np.full(self.dimension, float(self.bound))


@register_part
@dataclass(frozen=True)
class SobolevLattice(_Ellipsoid):
    """Coefficients theta_2, ..., theta_{d+1} with sum j^{2 smoothness} theta_j^2 <= bound^2.

    theta_1 = 1 for every density in the trigonometric basis, so the vectors begin at theta_2.
    Coefficients whose range is below half the spacing have one cell: the cover truncates, and
    its radius counts what is cut off.

    Examples
    --------
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

    Examples
    --------
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
        """All equal to the bound."""
        return np.full(self.dimension, float(self.bound))

    def _costs(self, reach: Integers) -> list[Floats]:
        """As much for any value but 0, so that the budget suffices for ``sparsity`` of them."""
        return [np.full(int(k), 1 / (self.sparsity + 0.5)) for k in reach]

    @property
    def radius(self) -> float:
        """sqrt(sparsity) times half a cube's side, or the bound."""
        return math.sqrt(self.sparsity) * min(self.spacing / 2, self.bound)

    @property
    def diameter(self) -> float:
        """Two opposite corners of one support."""
        return 2 * math.sqrt(self.sparsity) * self.bound

    def project(self, points: Floats) -> Floats:
        """Keep the largest coordinates, the earlier ones of equal ones, and clip them."""
        x = np.clip(points, -self.bound, self.bound)
        many = np.flatnonzero(np.count_nonzero(x, axis=1) > self.sparsity)
        if len(many):
            size = np.abs(x[many])
            least = np.partition(size, -self.sparsity, axis=1)[:, -self.sparsity, None]
            above, equal = size > least, size == least
            left = self.sparsity - np.count_nonzero(above, axis=1)[:, None]
            keep = above | (equal & (np.cumsum(equal, axis=1) <= left))
            x[many] = np.where(keep, x[many], 0.0)
        return np.asarray(x)
