"""Optimized unary encoding: what happens to one symbol of a public domain that is told in bits.

A vote is a symbol of {0, ..., k - 1}, or none (-1) for a record without one. The law of a vote for
nothing is data-independent, and its expected contribution to every estimate is zero.

References
----------
.. [1] Wang, Blocki, Li & Jha, "Locally differentially private protocols for frequency estimation",
   USENIX Security 2017, Section 4.3 (optimized unary encoding).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats
from fedhist.channels.flips import RandomizedResponse
from fedhist.privacy.guarantee import check_budget

MAX_BITS = 1 << 16


@dataclass(frozen=True)
class OptimalUnaryChannel(RandomizedResponse):
    """k bits, one for each symbol: a true 1 stays with probability 1/2, a 0 turns with q [1].

    q, ``flip``, is 1 / (e^epsilon + 1). A vote for nothing is the zero vector. Without noise
    (epsilon = inf) the bits are sent as they are.

    Parameters
    ----------
    epsilon : float
    n_symbols : int
        k, at most 2^16.

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

    epsilon: float
    n_symbols: int

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        if not 1 <= self.n_symbols <= MAX_BITS:
            raise ValueError(f"the symbols must be 1 to {MAX_BITS}, got {self.n_symbols}")

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
