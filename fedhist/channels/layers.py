"""Layers: the one integer law behind every report that is a symbol of a finite alphabet.

A record owns a set of exactly c of N symbols. One uniform 64-bit word decides: a lower layer gives
every symbol the same weight B, an upper layer gives every symbol of the record's set X more, and
the few words that are left say nothing. k-ary randomized response (c = 1), Hadamard response
(c = N / 2), projective geometry response [1]_ and the ranks of a vector among public points are
this law with differing sets; how a set is computed has no part in the privacy, only its size.

References
----------
.. [1] Feldman, Nelson, Nguyen & Talwar, "Private frequency estimation via projective geometry",
   ICML 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Integers, Words
from fedhist.base.checks import check_within
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.guarantee import check_budget

WORD_VALUES = 1 << 64


def odds_less_one(epsilon: float) -> Fraction:
    """Return a rational e - 1 just below e^epsilon - 1; larger odds than e^64 have no room."""
    # expm1 errs by less than an ulp, and so does the product
    return Fraction(math.expm1(min(epsilon, 64.0))) * (1 - Fraction(1, 1 << 50))


@dataclass(frozen=True)
class Layers:
    """The law of a symbol of N, given a set of c symbols that is the record's.

    ``size`` is N, 2 to 2^30; ``chosen`` is c, below N: the size of EVERY record's set. Without
    noise (epsilon = inf) symbols of the set only are sent.

    Privacy
    -------
    epsilon-LDP exactly as drawn. A symbol has the probability (B + X) / 2^64 inside the set and
    B / 2^64 outside it, and the erasure has the same probability for every record, because c is.
    (B + X) / B <= e^epsilon in integers: X <= B (e - 1) for a rational e that is no larger than
    e^epsilon. Nothing is assumed about how a set was found: floating-point error there costs
    accuracy only.

    Error
    -----
    The erasure has a probability below (N + c e^epsilon) / 2^64, and 2^-10 at most. Where epsilon
    is so large that this takes it, or that B would be 0, X is what the words have room for, which
    is more private than asked.

    >>> law = Layers(math.log(3), size=4, chosen=2)
    >>> round(law.hit(2), 6), round(law.gain, 6), law.erased < 1e-18
    (0.75, 0.5, True)
    """

    epsilon: float
    size: int
    chosen: int

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_within("size", self.size, 2, 1 << 30)
        check_within("chosen", self.chosen, 1, self.size - 1)
        if self.upper == 0:
            raise ValueError(
                f"epsilon = {self.epsilon:g} is too small for {self.size} symbols in 64-bit words"
            )

    @cached_property
    def levels(self) -> tuple[int, int]:
        """B and X: weight of every symbol, and the additional weight of those in the set."""
        n, c = self.size, self.chosen
        if math.isinf(self.epsilon):
            return 0, (WORD_VALUES - 1) // c
        more = odds_less_one(self.epsilon)
        # the largest B >= 1 with N B + c floor(B (e - 1)) < 2^64: this one or the next
        low = max(math.floor((WORD_VALUES - 1) / (n + c * more)), 1)
        low += n * (low + 1) + c * math.floor((low + 1) * more) < WORD_VALUES
        high = min(math.floor(low * more), (WORD_VALUES - 1 - n * low) // c)
        if WORD_VALUES - n * low - c * high > WORD_VALUES >> 10:
            # levels are few and coarse: with B one larger, as much X as the words have room for
            # is below B (e - 1), because B was the largest
            low, high = low + 1, (WORD_VALUES - 1 - n * (low + 1)) // c
        return low, high

    @property
    def lower(self) -> int:
        """B."""
        return self.levels[0]

    @property
    def upper(self) -> int:
        """X."""
        return self.levels[1]

    @property
    def erased(self) -> float:
        """Probability that a report says nothing."""
        return (WORD_VALUES - self.size * self.lower - self.chosen * self.upper) / WORD_VALUES

    @property
    def gain(self) -> float:
        """a: probability that the upper layer speaks, a uniform symbol of the set."""
        return self.chosen * self.upper / WORD_VALUES

    @property
    def bits(self) -> int:
        """Bits of a message: ceil(log2(N + 1))."""
        return self.size.bit_length()

    def hit(self, overlap: int) -> float:
        """P(report in S | record's set has ``overlap`` symbols in common with S), |S| = c."""
        return (self.chosen * self.lower + overlap * self.upper) / WORD_VALUES

    def weights(self, sets: Integers) -> NDArray[np.object_]:
        """Enumerate the law for sets (r, c): (r, N + 1) integers over 2^64, the erasure last."""
        out = np.full((len(sets), self.size + 1), self.lower, dtype=object)
        out[np.arange(len(sets))[:, None], sets] = self.lower + self.upper
        out[:, self.size] = WORD_VALUES - self.size * self.lower - self.chosen * self.upper
        return out

    def law(self) -> FiniteChannel | None:
        """Two records whose sets differ; None without noise.

        A ratio depends on whether a symbol is in either set; where it is in both or in none, or is
        the erasure, it is 1.
        """
        if math.isinf(self.epsilon):
            return None
        in_set, out_of_set = self.lower + self.upper, self.lower
        rest = WORD_VALUES - in_set - out_of_set
        rows = [[in_set, out_of_set, rest], [out_of_set, in_set, rest]]
        labels = ["the set that holds the first symbol", "the set that holds the second"]
        scope = "a symbol of one set only, one of the other only, and all else, which is alike"
        return FiniteChannel.of(np.array(rows, dtype=object), labels, scope)


def draw_layers(words: Words, law: Layers) -> Integers:
    """Turn uniform private words into symbols, or into ranks of members of the record's set.

    (n,) int64: a symbol in [0, N), the erasure N, or -1 - r for member r in [0, c) of the set.

    >>> law = Layers(math.inf, size=4, chosen=2)
    >>> draw_layers(np.array([0, 1 << 63], dtype=np.uint64), law).tolist()
    [-1, -2]
    """
    floor = np.uint64(law.size * law.lower)
    out = np.asarray(words // np.uint64(max(law.lower, 1))).astype(np.int64)
    rest = words - floor
    rank = (rest // np.uint64(law.upper)).astype(np.int64)
    spoken = np.where(rest < np.uint64(law.chosen * law.upper), ~rank, law.size)
    return np.where(words < floor, out, spoken)
