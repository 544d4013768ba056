"""The Laplace channel on a lattice.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, eq. (30).
.. [2] Chen & Asau, "On generating random variates from an empirical distribution", AIIE
   Transactions 6, 1974 (the guide table).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numba import njit, uint64
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats, Words
from fedhist.channels.lattice import STEPS, LatticeChannel, round_at_random

_LONGEST_SCALE = 2**10
"""The lattice becomes coarser where the scale of the noise would be longer, in steps."""

_GUIDE_BITS = 15


@dataclass(frozen=True)
class LaplaceChannel(LatticeChannel):
    """Discrete Laplace noise, P(k) ~ e^{-r |k|}, r = epsilon / (2 G), clamped far out [1].

    G is 512, or as much less (a power of two, at least 1) as keeps the scale 1 / r within 2^10
    steps: the rounding, of variance 1 / (4 G^2) at most, stays negligible beside the noise.

    Notes
    -----
    The noise is drawn by inversion from one table of integers h(0), ..., h(R) of sum 2^63, and a
    sign: P(+-k) = h(k) / 2^64 for k > 0, P(0) = 2 h(0) / 2^64. For 0 < k < R, h(k) is
    max(c e^{-r' k}, w) rounded, r' = r (1 - margin), w = 2^14 / min(epsilon, 1): a floor, which
    is reached at k = K. The report x + k is clamped to [-B, B], B = G + K, so that R = B + G.
    The last entry stands for the geometric series that goes on from there, w t / (1 - t) with
    t = e^{-r'}, or w if that is more. h(0), about c / 2, is what remains.

    Clamping costs only in K <= |k| <= R, where h is flat: it takes exactly
    (2 G - 1) h(K) + 2 h(R) parts in 2^64 off the mean, whatever x is. ``gain`` is what is left,
    so that the debiased report is unbiased.

    Privacy
    -------
    epsilon-LDP, exactly. Before it is rounded, h changes by a factor of at most e^{r'} a step, as
    the larger of two such sequences, and so do its tail sums (of a series that goes on at that
    rate; if t < 1/2 the last two tails have ratio 2 < 1 / t). A report's probability is an entry,
    or a tail sum where it is clamped, and two inputs are at most 2 G steps apart: the ratio is at
    most e^{2 G r'} = e^{(1 - margin) epsilon}. Rounding changes entries k > 0 by a relative 1 / w
    at most and 2^-47 (from evaluating exp at arguments below 2^6), and P(0), which takes the sum
    of these errors, by 2^-29. A ratio grows by less than 1 + 2 / w + 2^-28 <= e^{margin epsilon}:
    margin epsilon = 2^-12 min(epsilon, 1) is 4 / w, and w is below 2^28. (Where epsilon is so
    large that doubles are coarser than the margin, no ratio exceeds 2^64 all the same.) The
    tests enumerate the ratio in integers.
    """

    kind: ClassVar[str] = "laplace"

    @cached_property
    def steps(self) -> int:
        """Lattice steps G per unit."""
        g = STEPS
        while g > 1 and 2 * g > _LONGEST_SCALE * self.epsilon:
            g //= 2
        return g

    @cached_property
    def _rate(self) -> float:
        """r': the noise falls by e^{-r'} a step."""
        margin = 2.0**-12 * min(1.0, 1.0 / self.epsilon)
        return self.epsilon * (1.0 - margin) / (2 * self.steps)

    @cached_property
    def _flat(self) -> int:
        """w: the floor, in units of 2^-64."""
        return math.ceil(2.0**14 / min(self.epsilon, 1.0))

    @cached_property
    def _rest(self) -> int:
        """h(R): the tail beyond the table."""
        t = math.exp(-self._rate)
        return max(self._flat, math.ceil(self._flat * (t / -math.expm1(-self._rate))))

    @cached_property
    def reach(self) -> int:
        """K: steps after which the noise is flat; c is at most 2^64 tanh(r' / 2)."""
        return math.ceil(math.log(2.0**64 * math.tanh(self._rate / 2) / self._flat) / self._rate)

    @property
    def most(self) -> int:
        """B: reports lie in {-B, ..., B}."""
        return self.steps + self.reach

    @property
    def gain(self) -> float:
        """Slope of the report's mean: G, less what clamping costs."""
        if not self.noisy:
            return 1.0
        lost = (2 * self.steps - 1) * self._flat + 2 * self._rest
        return self.steps * (1.0 - lost / 2**64)

    @cached_property
    def table(self) -> Words:
        """h(0), ..., h(R): (R + 1,) uint64 of sum 2^63."""
        self._needs_noise()
        r, n_flat = self._rate, 2 * self.steps
        t, gap = math.exp(-r), -math.expm1(-r)
        body = t * -math.expm1(-r * (self.reach - 1)) / gap  # t + ... + t^(K - 1)
        c = (2.0**64 - 2.0 * (n_flat * self._flat + self._rest)) / (1.0 + 2.0 * body)
        h = np.full(self.most + self.steps + 1, self._flat, dtype=np.uint64)
        falling = np.rint(c * np.exp(-r * np.arange(1, self.reach))).astype(np.uint64)
        h[1 : self.reach] = np.maximum(falling, h[1 : self.reach])
        h[-1] = self._rest
        h[0] = 2**63 - int(h[1:].sum())
        return h

    @cached_property
    def _search(self) -> tuple[Words, NDArray[np.int32]]:
        """Cumulative table, and the first entry for words of given leading bits [2]."""
        upto = np.cumsum(self.table)
        cells = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(63 - _GUIDE_BITS)
        first = np.searchsorted(upto, cells, side="right")
        return upto, np.append(first, len(upto) - 1).astype(np.int32)

    def _fill(self, u: Floats, words: Words, out: NDArray[Any]) -> None:
        laplace_reports(u, words, self.steps, self.most, *self._search, out)

    def weights(self, x: ArrayLike) -> Words:
        """2^64 times the probability of each report; see the base class."""
        h = self.table
        noise = np.concatenate((h[:0:-1], h[:1] * np.uint64(2), h[1:]))  # of -R, ..., R
        ends = 2 * self.steps
        rows = []
        for k in np.atleast_1d(x):
            # reports -B, ..., B are noise -B - k, ..., B - k
            first = self.steps - int(k)
            row = noise[first : first + 2 * self.most + 1].copy()
            row[0] += noise[:first].sum()
            row[-1] += noise[len(noise) - ends + first :].sum()
            rows.append(row)
        return np.stack(rows)

    @property
    def _noise(self) -> float:
        """Variance of the noise, in squared steps."""
        return 2.0 * math.exp(-self._rate) / math.expm1(-self._rate) ** 2 if self.noisy else 0.0

    def variance(self, u: ArrayLike) -> Floats:
        """Variance 8 / epsilon^2 (nearly), and that of the rounding."""
        return np.asarray((self._noise + self._rounding(u)) / self.gain**2)

    @property
    def v(self) -> float:
        """Planning variance over squared width: 2 / epsilon^2, and the rounding's average."""
        return (self._noise + self._mean_rounding) / self.gain**2 / 4

    @property
    def worst_v(self) -> float:
        """Upper bound of the variance over squared width."""
        return (self._noise + self._most_rounding) / self.gain**2 / 4


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def laplace_reports(
    u: Floats,
    words: Words,
    steps: int,
    most: int,
    upto: Words,
    guide: NDArray[np.int32],
    out: NDArray[Any],
) -> None:
    """Fill ``out`` with u in steps plus noise by inversion, clamped; see LaplaceChannel."""
    for i in range(u.shape[0]):
        x = round_at_random(u[i], words[i, 0], steps)
        word = words[i, 1] & uint64(0x7FFFFFFFFFFFFFFF)
        cell = word >> uint64(63 - _GUIDE_BITS)
        k, last = np.int64(guide[cell]), np.int64(guide[cell + uint64(1)])
        while k < last:
            middle = (k + last) >> 1
            if upto[middle] <= word:
                k = middle + 1
            else:
                last = middle
        z = x - k if words[i, 1] >> uint64(63) else x + k
        out[i] = min(max(z, -most), most)
