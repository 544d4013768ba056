"""The channels of two frequency oracles: what happens to one symbol of a public domain.

A vote is a symbol of {0, ..., k - 1}, or none (-1) for a record without one. The law of a vote for
nothing is data-independent, and its expected contribution to every estimate is zero.

References
----------
.. [1] Wang, Blocki, Li & Jha, "Locally differentially private protocols for frequency estimation",
   USENIX Security 2017, Section 4.3 (optimized unary encoding).
.. [2] Acharya, Sun & Zhang, "Hadamard response: estimating distributions privately, efficiently,
   and with little communication", AISTATS 2019, Section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats
from fedhist.channels.flips import RandomizedResponse
from fedhist.channels.hadamard import fwht, hadamard_entry, next_power_of_two
from fedhist.privacy.guarantee import check_budget

MAX_BITS = 1 << 16
MAX_SYMBOLS = (1 << 24) - 1


@dataclass(frozen=True)
class SymbolChannel(RandomizedResponse):
    """A vote for one of k symbols, or for none.

    Parameters
    ----------
    epsilon : float
    n_symbols : int
        k, at most ``most_symbols``.
    """

    most_symbols: ClassVar[int]
    epsilon: float
    n_symbols: int

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        if not 1 <= self.n_symbols <= self.most_symbols:
            raise ValueError(f"the symbols must be 1 to {self.most_symbols}, got {self.n_symbols}")


@dataclass(frozen=True)
class OptimalUnaryChannel(SymbolChannel):
    """k bits, one for each symbol: a true 1 stays with probability 1/2, a 0 turns with q [1].

    q, ``flip``, is 1 / (e^epsilon + 1). A vote for nothing is the zero vector. Without noise
    (epsilon = inf) the bits are sent as they are.

    Privacy
    -------
    Two votes differ in two bits, and the ratio of an output's probabilities is at most
    (1/2) (1 - q) / (q (1 - 1/2)) = (1 - q) / q <= e^epsilon, since q is rounded towards 1/2 and
    1/2 is drawn exactly. A vote and none differ in one bit: the ratio is 1 / (2 q) or 2 (1 - q) or
    the inverse of one of them, and none is larger, as q <= 1/2 <= 1 - q.

    Examples
    --------
    >>> channel = OptimalUnaryChannel(1.0, 3)
    >>> round(channel.flip, 6) == round(1 / (math.e + 1), 6)
    True
    """

    most_symbols: ClassVar[int] = MAX_BITS

    @property
    def keep(self) -> float:
        """Probability that a one is reported as one: 1/2, or 1 without noise."""
        return 1.0 if math.isinf(self.epsilon) else 0.5

    @property
    def gain(self) -> float:
        """Keep minus q: tanh(epsilon / 2) / 2, or 1 without noise."""
        return 1.0 if math.isinf(self.epsilon) else self.tau / 2

    def debias(self, ones: ArrayLike, n_users: int) -> Floats:
        """Turn counts of reported ones into unbiased shares of the users: (k,)."""
        return np.asarray((np.asarray(ones) / n_users - self.flip) / self.gain)

    def weights(self) -> NDArray[np.object_]:
        """Enumerate the exact law, as integers (small k).

        Returns
        -------
        (k + 1, 2^k) object (Python int)
            2^(64 k) times the probability of the output whose bits are the column's, for the votes
            -1, 0, ..., k - 1.
        """
        k, q, one = self.n_symbols, self.flip_threshold, 1 << 64
        keep = one if math.isinf(self.epsilon) else one // 2
        out = np.empty((k + 1, 1 << k), dtype=object)
        for vote in range(-1, k):
            for z in range(1 << k):
                hits = [keep if j == vote else q for j in range(k)]
                out[vote + 1, z] = math.prod(
                    p if z >> j & 1 else one - p for j, p in enumerate(hits)
                )
        return out


@dataclass(frozen=True)
class HadamardChannel(SymbolChannel):
    """One index y of {0, ..., K - 1}; symbol x prefers the half where H[x + 1, y] = 1 [2].

    K is the next power of two above k and H the Hadamard matrix of that order. A user with symbol x
    reports a uniform element of C_x = {y: H[x + 1, y] = 1} with probability e^epsilon / (e^epsilon
    + 1), else one of its complement; each has K / 2 elements. A vote for nothing is row 0, whose
    half is everything: a uniform y. Without noise (epsilon = inf) the row's number is sent.

    Privacy
    -------
    With the drawn probability f (``flip``) of the complement, an index has the probability
    2 (1 - f) / K or 2 f / K, of ratio (1 - f) / f <= e^epsilon, or 1 / K, which is their mean. The
    constants are public, and f = t / 2^64 with an integer t.
    """

    most_symbols: ClassVar[int] = MAX_SYMBOLS

    @property
    def size(self) -> int:
        """K: the least power of two above k."""
        return next_power_of_two(self.n_symbols + 1)

    @property
    def gain(self) -> float:
        """E H[x + 1, y] for a vote for x: tanh(epsilon / 2); 0 for every other vote."""
        return self.tau

    def debias(self, counts: ArrayLike, n_users: int) -> Floats:
        """Turn counts of the indices, (K,), into unbiased shares of the users: (k,).

        The rows of H are orthogonal: the average of H[x + 1, y] is gain times the share of x.
        """
        found = np.asarray(counts, dtype=np.float64)
        if not math.isinf(self.epsilon):
            found = fwht(found) / self.gain
        return np.asarray(found[1 : self.n_symbols + 1] / n_users)

    def weights(self) -> NDArray[np.object_]:
        """Enumerate the exact law, as integers.

        Returns
        -------
        (k + 1, K) object (Python int)
            2^64 K / 2 times the probability of each index, for the votes -1, 0, ..., k - 1.
        """
        if math.isinf(self.epsilon):
            raise ValueError("epsilon is inf: without noise the vote itself is sent")
        t = self.flip_threshold
        rows = np.arange(self.n_symbols + 1)[:, None]
        inside = hadamard_entry(rows, np.arange(self.size)) > 0
        out = np.where(inside, np.array((1 << 64) - t, dtype=object), np.array(t, dtype=object))
        out[0] = 1 << 63
        return out
