"""Points of a projective space by arithmetic, and how many reports each point's set holds.

A point of F_q^t is a vector whose leading coordinate, the non-zero one of the highest place, is 1.
As a number, sum_j u_j q^j, a point with leading place l lies in [q^l, 2 q^l); points are ranked by
their numbers. The set of a point x are the points u with <u, x> = 0: (q^(t-1) - 1) / (q - 1) of
them, and any two sets have (q^(t-2) - 1) / (q - 1) in common [1]_.

References
----------
.. [1] Feldman, Nelson, Nguyen & Talwar, "Private frequency estimation via projective geometry",
   ICML 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.fft
from numba import njit
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers
from fedhist.channels.hadamard import fwht

MOST_CELLS = 1 << 25
"""q^(t-1): cells that decoding transforms."""
MOST_VECTORS = 1 << 30
"""q^t: additions that decoding takes if every point was reported."""
_ROUNDING = 0.25


def decodable(q: int, t: int) -> bool:
    """Say whether decoding is small enough."""
    return bool(q ** (t - 1) <= MOST_CELLS and q**t <= MOST_VECTORS)


@dataclass(frozen=True)
class ProjectiveSpace:
    """The points of F_q^t.

    Parameters
    ----------
    q : int
        A prime.
    t : int
        3 at least: with t = 2 a point's set would be one point.

    Examples
    --------
    >>> space = ProjectiveSpace(3, 3)
    >>> space.size, space.chosen, space.overlap
    (13, 4, 1)
    """

    q: int
    t: int

    def __post_init__(self) -> None:
        if self.q < 2 or any(self.q % p == 0 for p in range(2, int(self.q**0.5) + 1)):
            raise ValueError(f"q must be a prime, got {self.q}")
        if self.t < 3 or not decodable(self.q, self.t):
            most = "at least 3, q^(t-1) at most 2^25 and q^t at most 2^30"
            raise ValueError(f"t must be {most}, got q = {self.q}, t = {self.t}")

    def points(self, dimensions: int) -> int:
        """Count the points of F_q^dimensions."""
        return int((self.q**dimensions - 1) // (self.q - 1))

    @property
    def size(self) -> int:
        """N: points."""
        return self.points(self.t)

    @property
    def chosen(self) -> int:
        """c: points of a set."""
        return self.points(self.t - 1)

    @property
    def overlap(self) -> int:
        """Points that two sets have in common."""
        return self.points(self.t - 2)

    @cached_property
    def roots(self) -> NDArray[np.complex128]:
        """Powers of omega = e^(-2 pi i / q)."""
        return np.asarray(np.exp(-2j * np.pi * np.arange(self.q) / self.q))

    @cached_property
    def tables(self) -> tuple[Integers, Integers, Integers]:
        """Powers q^l, first ranks of the leading places l = 0, ..., t, and inverses modulo q."""
        places = range(self.t + 1)
        powers = np.array([self.q**j for j in places], dtype=np.int64)
        first = np.array([self.points(j) for j in places], dtype=np.int64)
        inverses = np.array([0, *(pow(a, -1, self.q) for a in range(1, self.q))], dtype=np.int64)
        return powers, first, inverses

    def members(self, points: Integers, ranks: Integers) -> Integers:
        """Name members of sets: member ``ranks``, in [0, c), of the set of each point; (n,) int64.

        One-to-one in the rank, for every point.
        """
        out = np.empty(len(points), dtype=np.int64)
        _members(points, ranks, self.q, self.t, *self.tables, out)
        return out

    def _transform(self, half: NDArray[np.complex128], place: int) -> Floats:
        """Transform a Hermitian array, given by half of its last axis, in ``place`` coordinates."""
        if place == 0:
            return half.real[:1]
        if self.q == 2:  # then it is real, and there is no other half
            return fwht(half.real)
        shape = (self.q,) * place
        found = scipy.fft.hfftn(half.reshape(*shape[:-1], -1), shape, overwrite_x=True)
        return np.asarray(found.ravel())

    def set_counts(self, counts: Integers, n_points: int) -> Floats:
        """Count the reports in the sets of the first n_points points: (n_points,) float64, whole.

        Parameters
        ----------
        counts : (N,) int64
            Reports of each point.
        n_points : int

        Notes
        -----
        The characters of all multiples of u at x add up to q - 1 if <u, x> = 0 and to -1 otherwise.
        With every report on its multiples, the transform F of F_q^t is therefore
        F(x) = q C(x) - n. Points have a leading 1: F(1, x') is a real transform in t - 1
        coordinates, for what lies on (a, w) goes to w with the factor omega^a. For the points of a
        lower leading place the top coordinate is summed out, and so on. A cube of q^t is never
        made: O(q^t) additions at most, O(q^(t-1) log) time for transforms, 16 q^(t-1) bytes.

        Raises
        ------
        ArithmeticError
            If a count is further than 1/4 from an integer.
        """
        powers, first, _ = self.tables
        received, constant = int(counts.sum()), 0
        sums = np.empty(self.size)
        rest = np.ascontiguousarray(counts, dtype=np.int64)
        for place in range(self.t - 1, -1, -1):
            below = rest[: first[place]].copy()
            own = slice(first[place], first[place + 1])
            if own.start < n_points:
                half = np.zeros(
                    (powers[place] // self.q + (place == 0)) * (self.q // 2 + 1), complex
                )
                _spread(rest, self.q, place, powers, first, self.roots, half)
                sums[own] = self._transform(half, place) + constant
            constant += (self.q - 1) * int(rest[own.start])
            _sum_out(rest, self.q, place, powers, first, below)
            rest = below
        sums = (sums[:n_points] + received) / self.q
        whole = np.rint(sums)
        if n_points and not np.abs(sums - whole).max() < _ROUNDING:
            raise ArithmeticError("the transform lost the counts to rounding")
        return np.asarray(whole)


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _member(
    x: Any, rank: Any, q: Any, t: Any, powers: Any, first: Any, inverses: Any, digits: Any
) -> Any:
    """Return the rank of member ``rank`` of the set of point x; ``digits`` is scratch, (t,).

    The rank-th point v of F_q^(t-1) gives all coordinates but that of x's leading place, m, which
    follows from <u, x> = 0. If it has become the leading one, the vector is divided by it.
    Places above m, where x is 0, keep their digits: u = (high of v) q^(m+1) + u_m q^m + (low of v).
    """
    m = t - 1
    while first[m] > x:
        m -= 1
    place = t - 2
    while first[place] > rank:
        place -= 1
    v = powers[place] + rank - first[place]
    high = v // powers[m]
    low = v - high * powers[m]
    a, b, product = x - first[m], low, 0  # a: x without its leading 1
    for j in range(m):
        # a + .5 keeps the quotient away from integers: exact for what is below 2^30
        next_a = np.int64((a + 0.5) / q)
        next_b = np.int64((b + 0.5) / q)
        digits[j] = b - next_b * q
        product += (a - next_a * q) * digits[j]
        a, b = next_a, next_b
    own = (q - product % q) % q
    if high > 0 or own == 0:
        u = high * powers[m + 1] + own * powers[m] + low
        top = place + 1 if high > 0 else place
    else:
        u, top, scale = powers[m], m, inverses[own]
        for j in range(m):
            u += digits[j] * scale % q * powers[j]
    return u - powers[top] + first[top]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _members(
    points: Integers,
    ranks: Integers,
    q: int,
    t: int,
    powers: Any,
    first: Any,
    inverses: Any,
    out: Integers,
) -> None:
    digits = np.empty(t, dtype=np.int64)
    for i in range(points.shape[0]):
        out[i] = _member(points[i], ranks[i], q, t, powers, first, inverses, digits)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _spread(
    counts: Integers, q: int, place: int, powers: Integers, first: Integers, roots: Any, half: Any
) -> None:
    """Put every report on its multiples (a, w), and those to w, for w of low digit <= q / 2."""
    columns = q // 2 + 1
    level = 0
    for rank in range(first[place + 1]):
        if rank == first[level + 1]:
            level += 1
        count = counts[rank]
        if count == 0:
            continue
        if level == place:
            tail, n_digits = rank - first[level], place
        else:
            tail, n_digits = powers[level] + rank - first[level], level + 1
        if tail == 0:  # all multiples go to 0, and the roots but 1 add up to -1
            half[0] -= count
            continue
        for a in range(1, q):
            rest = np.int64((tail + 0.5) / q)
            low = a * (tail - rest * q) % q
            if low >= columns:
                continue
            row = 0
            for j in range(1, n_digits):
                after = np.int64((rest + 0.5) / q)
                row += a * (rest - after * q) % q * powers[j - 1]
                rest = after
            if level == place:
                half[row * columns + low] += roots[a] * count
            else:
                half[row * columns + low] += count


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _sum_out(
    counts: Integers, q: int, place: int, powers: Integers, first: Integers, below: Integers
) -> None:
    """Add the reports of points (1, w) to the points on which w lies."""
    for rank in range(first[place] + 1, first[place + 1]):
        count, w = counts[rank], rank - first[place]
        if count == 0:
            continue
        top = place - 1
        while powers[top] > w:
            top -= 1
        lead = w // powers[top]
        scale = 1
        while scale * lead % q != 1:
            scale += 1
        code = powers[top]
        for j in range(top):
            code += w // powers[j] % q * scale % q * powers[j]
        below[code - powers[top] + first[top]] += count
