"""Frequency oracles whose report is a bit for every symbol.

References
----------
.. [1] Ye & Barg, "Optimal schemes for discrete distribution estimation under locally differential
   privacy", IEEE Transactions on Information Theory, 2018 (subset selection).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.channels.finite import optimal_unary_law
from fedhist.channels.layers import WORDS, odds_less_one
from fedhist.channels.oracle_base import OracleChannel, summed_variance
from fedhist.channels.votes import MAX_BITS, OptimalUnaryChannel
from fedhist.model.finite import FiniteChannel

LEAST_EPSILON = 1e-9


@dataclass(frozen=True)
class SubsetOracle(OracleChannel):
    """w of the k + 1 symbols, w about (k + 1) / (e^epsilon + 1), as packed bits [1].

    The symbol is in with probability t / 2^64; the others of the subset are uniform.

    Privacy
    -------
    A subset that holds the symbol has the probability (t / 2^64) / C(k, w - 1), one that does not
    (1 - t / 2^64) / C(k, w): the ratio is t (K - w) / ((2^64 - t) w), K = k + 1, and the integer t
    is the largest for which that is at most e <= e^epsilon, e rational.
    """

    kind: ClassVar[str] = "subset"
    most_symbols: ClassVar[int] = MAX_BITS

    def __post_init__(self) -> None:
        super().__post_init__()
        if math.isinf(self.epsilon):
            raise ValueError("epsilon is inf: without noise the symbol itself is sent")
        if self.epsilon < LEAST_EPSILON:
            raise ValueError(f"epsilon = {self.epsilon:g} is too small for 64-bit words")

    def _threshold(self, w: int) -> int:
        e = 1 + odds_less_one(self.epsilon)
        return math.floor(e * w * WORDS / (self.n_symbols + 1 - w + e * w))

    @cached_property
    def chosen(self) -> int:
        """w, of the two next to (k + 1) / (e^epsilon + 1) the one of less variance."""
        total = self.n_symbols + 1
        near = int(total * math.exp(-self.epsilon) / (1 + math.exp(-self.epsilon)))
        able = {min(max(w, 1), total // 2) for w in (near, near + 1)}

        def v(w: int) -> float:
            return summed_variance(*self._hits(self._threshold(w), w), self.n_symbols)

        return min(sorted(able), key=v)

    @cached_property
    def threshold(self) -> int:
        """T."""
        return self._threshold(self.chosen)

    def _hits(self, t: int, w: int) -> tuple[float, float]:
        p = t / WORDS
        return p, (p * (w - 1) + (1 - p) * w) / self.n_symbols

    @property
    def p(self) -> float:
        """T / 2^64."""
        return self.threshold / WORDS

    @property
    def q(self) -> float:
        """P (w - 1) / k + (1 - p) w / k."""
        return self._hits(self.threshold, self.chosen)[1]

    @property
    def bits(self) -> int:
        """K + 1."""
        return self.n_symbols + 1

    @property
    def size(self) -> int:
        """K + 1."""
        return self.n_symbols + 1

    def set_counts(self, counts: Integers) -> Floats:
        """Return the counts: a symbol's set is the subsets that hold it."""
        return counts.astype(np.float64)

    def law(self) -> FiniteChannel | None:
        """Two symbols, on whether both, one or none of them is in the subset."""
        t, w, others = self.threshold, self.chosen, self.n_symbols
        kept, left = t, WORDS - t
        row = [kept * (w - 1), kept * (others - w + 1), left * w, left * (others - w)]
        rows = [row, [row[0], row[2], row[1], row[3]]]
        labels = ["the first symbol", "the second symbol"]
        scope = "subsets with both symbols, the first, the second, none: alike within each class"
        return FiniteChannel.of(np.array(rows, dtype=object), labels, scope)


@dataclass(frozen=True)
class UnaryOracle(OracleChannel):
    """k bits: :class:`~fedhist.channels.votes.OptimalUnaryChannel`, whose null record is zero."""

    kind: ClassVar[str] = "unary"
    most_symbols: ClassVar[int] = MAX_BITS

    @property
    def channel(self) -> OptimalUnaryChannel:
        """The law of the bits."""
        return OptimalUnaryChannel(self.epsilon, self.n_symbols)

    @property
    def p(self) -> float:
        """1/2."""
        return self.channel.keep

    @property
    def q(self) -> float:
        """1 / (e^epsilon + 1)."""
        return self.channel.flip

    @property
    def bits(self) -> int:
        """K."""
        return self.n_symbols

    @property
    def size(self) -> int:
        """K."""
        return self.n_symbols

    def set_counts(self, counts: Integers) -> Floats:
        """Return the counts: the null symbol has no set."""
        return counts.astype(np.float64)

    def debias(self, counts: Integers, n_users: int) -> Floats:
        """Turn counts into shares; that of the null symbol is one less the others."""
        shares = self.channel.debias(counts, n_users)
        return np.append(shares, 1.0 - shares.sum())

    def law(self) -> FiniteChannel | None:
        """Two symbols and none, on two bits."""
        return optimal_unary_law(self.channel)
