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

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.fft
from numba import njit
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers
from fedhist.channels.hadamard import fwht

MOST_CELLS = 1 << 24
"""q^(t-1): cells that decoding transforms."""
_LINES = 1 << 22
"""Values on lines that are held at once."""
_ROUNDING = 0.25


@dataclass(frozen=True)
class ProjectiveSpace:
    """The points of F_q^t, q a prime, t at least 3: with t = 2 a point's set would be one point.

    Examples
    --------
    >>> space = ProjectiveSpace(3, 3)
    >>> space.size, space.chosen, space.overlap
    (13, 4, 1)
    """

    q: int
    t: int

    def __post_init__(self) -> None:
        if self.q < 2 or any(self.q % p == 0 for p in range(2, math.isqrt(self.q) + 1)):
            raise ValueError(f"q must be a prime, got {self.q}")
        if self.t < 3 or self.q ** (self.t - 1) > MOST_CELLS:
            raise ValueError(
                f"t must be at least 3 and q^(t-1) at most 2^24, got q = {self.q}, t = {self.t}"
            )

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

    def hit(self, common: int, epsilon: float) -> float:
        """P(report in a set | record's set has ``common`` points in common with it)."""
        low = math.exp(-epsilon)
        weight = self.chosen * low + common * (1 - low)
        return weight / (self.size * low + self.chosen * (1 - low))

    @cached_property
    def tables(self) -> tuple[Integers, Integers, Integers]:
        """Powers q^l, first ranks of the leading places l = 0, ..., t, and inverses modulo q."""
        places = range(self.t + 1)
        powers = np.array([self.q**j for j in places], dtype=np.int64)
        first = np.array([self.points(j) for j in places], dtype=np.int64)
        inverses = np.array([0, *(pow(a, -1, self.q) for a in range(1, self.q))], dtype=np.int64)
        return powers, first, inverses

    def members(self, points: Integers, ranks: Integers) -> Integers:
        """Name member ``ranks``, in [0, c), of each point's set: (n,) int64; one-to-one in it."""
        out = np.empty(len(points), dtype=np.int64)
        _members(points, ranks, self.q, self.t, *self.tables, out)
        return out

    def set_counts(self, counts: Integers) -> Floats:
        """Count the reports in the set of every point, from those of each point: (N,) float64.

        Place by place, from the lowest. Let D be the Fourier transform of the reports (1, u) of
        one leading place, over the l lower coordinates. On a line through y it is, in turn, the
        transform of R_b(y), the number of reports with <u, y> = b. With L(y), the count of the
        reports of lower leading places in the set of y, the counts are

            C(0, y) = L(y) + R_0(y),    C(1, s y) = L(y) + R_b(y) for b = -1 / s.

        O(q^(t-1) log q^(t-1)) time, for [1]'s O(q^t), and 40 q^(t-1) bytes. ArithmeticError if a
        count is further than 1/4 from an integer.
        """
        powers, first, inverses = self.tables
        found = np.zeros(1)  # the one point of F_q^1 is not in its own set
        for place in range(1, self.t):
            below, own = int(first[place]), slice(first[place], first[place + 1])
            half = self._transform(counts[own].astype(np.float64), place)
            now = np.empty(own.stop)
            now[below] = counts[:below].sum()
            step = max(_LINES // self.q, 1)
            for start in range(0, below, step):
                rows = slice(start, min(start + step, below))
                line = np.empty((rows.stop - start, self.q // 2 + 1), dtype=np.complex128)
                _along_lines(half, start, self.q, powers, first, line)
                values = scipy.fft.irfft(line, self.q, axis=1, overwrite_x=True)
                whole = np.rint(values)
                if not np.abs(values - whole).max() < _ROUNDING:
                    raise ArithmeticError("the transform lost the counts to rounding")
                whole += found[rows, None]
                now[rows] = whole[:, 0]
                _onto_points(whole, start, self.q, powers, first, inverses, now[below:])
            found = now
        return found

    def _transform(self, x: Floats, place: int) -> NDArray[np.complex128]:
        """Transform in ``place`` coordinates: (rows, q / 2 + 1), half of the lowest one."""
        if self.q == 2:
            return fwht(x).reshape(-1, 2).astype(np.complex128)
        shape = (self.q,) * place
        return np.asarray(scipy.fft.rfftn(x.reshape(shape))).reshape(-1, self.q // 2 + 1)


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def member_of(
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
        # a + .5 keeps the quotient away from integers: exact for what is below 2^40
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
        out[i] = member_of(points[i], ranks[i], q, t, powers, first, inverses, digits)


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _digits(rank: Any, q: Any, first: Any, digits: Any) -> Any:
    """Write out the digits of a point; return how many there are."""
    top = 0
    while first[top + 1] <= rank:
        top += 1
    rest = rank - first[top]
    for j in range(top):
        digits[j] = rest % q
        rest //= q
    digits[top] = 1
    return top + 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _along_lines(
    half: Any, start: int, q: int, powers: Integers, first: Integers, out: Any
) -> None:
    """Read a transform at the multiples a y, a = 0, ..., q / 2, of points y in a row."""
    digits, times = np.empty(len(powers), np.int64), np.empty(len(powers), np.int64)
    columns = half.shape[1]
    for i in range(out.shape[0]):
        n_digits = _digits(start + i, q, first, digits)
        times[:n_digits] = 0
        out[i, 0] = half[0, 0]
        for a in range(1, columns):
            row, opposite = 0, 0
            for j in range(n_digits):
                times[j] += digits[j]
                if times[j] >= q:
                    times[j] -= q
                if j > 0 and times[j] > 0:
                    row += times[j] * powers[j - 1]
                    opposite += (q - times[j]) * powers[j - 1]
            if times[0] < columns:
                out[i, a] = half[row, times[0]]
            else:  # a real array's transform at -y is the conjugate
                out[i, a] = np.conj(half[opposite, q - times[0]])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _onto_points(
    values: Floats, start: int, q: int, powers: Integers, first: Integers, inverses: Any, out: Any
) -> None:
    """Hand value -1 / s of a line through y to the point (1, s y), s = 1, ..., q - 1."""
    digits, times = np.empty(len(powers), np.int64), np.empty(len(powers), np.int64)
    for i in range(values.shape[0]):
        n_digits = _digits(start + i, q, first, digits)
        times[:n_digits] = 0
        for s in range(1, q):
            code = 0
            for j in range(n_digits):
                times[j] += digits[j]
                if times[j] >= q:
                    times[j] -= q
                code += times[j] * powers[j]
            out[code] = values[i, (q - inverses[s]) % q]
