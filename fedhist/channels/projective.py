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

from fedhist.base.arrays import Floats, Integers
from fedhist.base.lazy import kernel
from fedhist.channels.hadamard import fwht

MOST_CELLS = 1 << 24
"""q^(t-1): cells that decoding transforms."""


@dataclass(frozen=True)
class ProjectiveSpace:
    """The points of F_q^t, q a prime, t at least 3: with t = 2 a point's set would be one point.

    >>> space = ProjectiveSpace(3, 3)
    >>> space.size, space.chosen, space.overlap
    (13, 4, 1)
    """

    q: int
    t: int

    def points(self, dimensions: int) -> int:
        """Count the points of F_q^dimensions."""
        return int((self.q**dimensions - 1) // (self.q - 1))

    @cached_property
    def size(self) -> int:
        """N: points."""
        return self.points(self.t)

    @cached_property
    def chosen(self) -> int:
        """c: points of a set."""
        return self.points(self.t - 1)

    @cached_property
    def overlap(self) -> int:
        """Points that two sets have in common."""
        return self.points(self.t - 2)

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

        O(q^(t-1) log q^(t-1)) time, for [1]'s O(q^t), and some 48 q^(t-1) bytes, of few reports
        half as many. ArithmeticError if a count is further than 1/4 from an integer.
        """
        q, (_, first, inverses) = self.q, self.tables
        if q == 2:
            return np.asarray((counts.sum() + fwht(np.append(0, counts))[1:]) / 2)
        # of 2^18 reports, single precision is off by 1/8 where all of them are of one point
        real = np.float32 if counts.sum() < 1 << 18 else np.float64
        sizes = np.zeros(1, real)  # the one point of F_q^1 is not in its own set
        half = q // 2 + 1  # of a line: D(-y) is the conjugate of D(y), as reports are real
        for place in range(1, self.t):
            below, end = first[place : place + 2]
            now, shape = np.empty(end, real), (q,) * place
            reports, own = counts[below:end].reshape(shape).astype(real), now[below:]
            transform = scipy.fft.rfftn(reports, axes=(*range(1, place), 0), workers=-1)
            own[0] = counts[:below].sum()
            for j in range(place):  # the lines through the points (1, w) of leading place j
                points = slice(first[j], first[j + 1])
                n_first = half if j == place - 1 else q
                D = transform.reshape(-1, n_first, q**j)[0]
                C = own.reshape(-1, q, q**j)[0]
                line = [D[a][_times(a, q, j)] for a in range(half)]
                values = scipy.fft.irfft(line, q, axis=0, workers=-1)
                whole = np.rint(values)
                values -= whole
                if not max(values.max(), -values.min()) < 1 / 4:
                    raise ArithmeticError("the transform lost the counts to rounding")
                whole += sizes[points]
                now[points] = whole[0]
                for s in range(1, q):
                    C[s][_times(s, q, j)] = whole[(q - inverses[s]) % q]
            sizes = now
        return sizes.astype(np.float64)


def _times(a: int, q: int, n: int) -> Integers:
    """Return the numbers of a times every vector of F_q^n: (q^n,) int64, in their order."""
    out = np.zeros(1, dtype=np.int64)
    for place in range(n):
        out = (np.arange(q) * a % q * q**place)[:, None] + out
        out = out.ravel()
    return out


@kernel()
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
    """Find member ``ranks[i]`` of the set of every point x.

    The rank-th point v of F_q^(t-1) gives all coordinates but that of x's leading place, m, which
    follows from <u, x> = 0. If it has become the leading one, the vector is divided by it.
    Places above m, where x is 0, keep their digits: u = (high of v) q^(m+1) + u_m q^m + (low of v).
    """
    digits = np.empty(t, dtype=np.int64)
    for i in range(points.shape[0]):
        x, rank, m, place = points[i], ranks[i], t - 1, t - 2
        while first[m] > x:
            m -= 1
        while first[place] > rank:
            place -= 1
        v = powers[place] + rank - first[place]
        high, low = v // powers[m], v % powers[m]
        a, b, product = x - first[m], low, 0  # a: x without its leading 1
        for j in range(m):
            digits[j] = b % q
            product += a % q * digits[j]
            a, b = a // q, b // q
        own = -product % q
        if high > 0 or own == 0:
            u = high * powers[m + 1] + own * powers[m] + low
            top = place + 1 if high > 0 else place
        else:
            u, top = powers[m], m
            for j in range(m):
                u += digits[j] * inverses[own] % q * powers[j]
        out[i] = u - powers[top] + first[top]
