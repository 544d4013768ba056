"""The piecewise channel on a lattice.

References
----------
.. [1] Wang et al., "Collecting and analyzing multidimensional data with local differential
   privacy", ICDE 2019, Algorithm 2.
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


@dataclass(frozen=True)
class PiecewiseChannel(LatticeChannel):
    """The piecewise mechanism: in a window around the input with high probability [1].

    The window has W points, x in its middle, and slides over {-M, ..., M}, M = G + (W - 1) / 2;
    2 G points lie outside. W is the odd number next to 2 G e^{-epsilon/2}, for which this is the
    mechanism of [1] on a lattice (C = M / G, up to the rounding of W).

    Notes
    -----
    A report inside has probability 2 G a / 2^64, one outside b / 2^64, where W a + b =
    2^64 / (2 G): integers that fill 2^64 without remainder. So the reports are exactly uniform in
    the window and outside it, and the mean is exactly linear in x, with slope (2 G a - b) W / 2^64.

    One word draws: its leading 54 bits say whether the report lies outside (below b) or else, as
    quotient by a, where in the window; its last 10 bits say where outside.

    Privacy
    -------
    The ratio is 2 G a / b <= e^epsilon, that is b >= 2^54 y / (1 + y), y = 2 G e^{-epsilon} / W:
    b is rounded up, after a margin for the four rounded operations behind it.
    """

    kind: ClassVar[str] = "piecewise"

    @cached_property
    def window(self) -> int:
        """W: points in the window."""
        return 2 * math.floor(STEPS * math.exp(-self.epsilon / 2)) + 1

    @cached_property
    def _each(self) -> tuple[int, int]:
        """a, b: 2^64 times the probability of a point inside over 2 G, and of one outside."""
        y = 2 * STEPS * math.exp(-self.epsilon) / self.window
        whole = 2**64 // (2 * STEPS)
        least = max(1, math.ceil(whole * (y / (1.0 + y)) * (1.0 + 2.0**-49)))
        a = (whole - least) // self.window
        return a, whole - a * self.window

    @property
    def most(self) -> int:
        """M: reports lie in {-M, ..., M}."""
        return STEPS + self.window // 2

    @property
    def gain(self) -> float:
        """Slope of the report's mean."""
        return STEPS * self._slope if self.noisy else 1.0

    @property
    def _excess(self) -> float:
        """Probability of a point inside, less that of one outside."""
        a, b = self._each
        return (2 * STEPS * a - b) / 2**64

    @property
    def _slope(self) -> float:
        return self._excess * self.window

    def _fill(self, u: Floats, words: Words, out: NDArray[Any]) -> None:
        a, b = self._each
        piecewise_reports(u, words, self.steps, self.window, np.uint64(a), np.uint64(b), out)

    def weights(self, x: ArrayLike) -> Words:
        """2^64 times the probability of each report; see the base class."""
        a, b = self._each
        inside = np.abs(self.alphabet() - np.atleast_1d(x)[:, None]) <= self.window // 2
        return np.where(inside, np.uint64(2 * STEPS * a), np.uint64(b))

    def _spread(self, square: Floats | float, rounding: Floats | float) -> Floats:
        """Variance of the debiased report, given u^2 and the variance of the rounding."""
        if not self.noisy:
            return np.zeros(np.shape(square))
        w, m, (_, b) = self.window, self.most, self._each
        y2 = np.multiply(square, float(STEPS**2))
        constant = b / 2**64 * (m * (m + 1) * (2 * m + 1) / 3) + self._slope * (w * w - 1) / 12
        z2 = constant + self._slope * (y2 * (1.0 - self._slope) + rounding)
        return np.asarray(z2 / self.gain / self.gain)

    def variance(self, u: ArrayLike) -> Floats:
        """Variance u^2 / (e^{epsilon/2} - 1) + (e^{epsilon/2} + 3) / (3 (e^{epsilon/2} - 1)^2).

        That is the limit of a fine lattice; this is the lattice's, and the rounding's.
        """
        return self._spread(np.square(np.asarray(u, dtype=np.float64)), self._rounding(u))

    @property
    def v(self) -> float:
        """Planning variance over squared width: that of u = 1/2, and the rounding's average."""
        return float(self._spread(0.25, self._mean_rounding)) / 4

    @property
    def worst_v(self) -> float:
        """Upper bound of the variance over squared width."""
        return float(self._spread(1.0, self._most_rounding)) / 4


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def piecewise_reports(
    u: Floats, words: Words, steps: int, window: int, a: Any, b: Any, out: NDArray[Any]
) -> None:
    """Fill ``out`` with a point of the window around u, or of the rest; see PiecewiseChannel."""
    for i in range(u.shape[0]):
        left = round_at_random(u[i], words[i, 0], steps) - window // 2
        chosen = words[i, 1] >> uint64(10)
        if chosen < b:
            z = np.int64(words[i, 1] & uint64(1023)) - steps - window // 2
            out[i] = z if z < left else z + window
        else:
            out[i] = left + np.int64((chosen - b) // a)
