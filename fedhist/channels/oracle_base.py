"""Frequency oracles: how a user reports one symbol of a public domain, and how shares come back.

A user with symbol x owns a set of messages; a report falls into it with probability p, and into
that of any other symbol with probability q. The share of x is (count in its set / n - q) / (p - q).
A user without a symbol (no items, NaN, outside the domain) reports one more symbol, the null
symbol k, in the same way; its share is an output.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_integer
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.guarantee import check_budget


@dataclass(frozen=True)
class OracleChannel(ABC):
    """A report of one of k symbols, or of none.

    Parameters
    ----------
    epsilon : float
        inf switches noise off.
    n_symbols : int
        k, without the null symbol.
    """

    kind: ClassVar[str]
    most_symbols: ClassVar[int]
    epsilon: float
    n_symbols: int

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_integer("n_symbols", self.n_symbols, self.most_symbols)

    @property
    @abstractmethod
    def p(self) -> float:
        """P(report in the set of x | symbol x)."""

    @property
    @abstractmethod
    def q(self) -> float:
        """P(report in the set of x | another symbol)."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """Bits of a message."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Length of the counts that reports are folded into."""

    @abstractmethod
    def set_counts(self, counts: Integers) -> Floats:
        """Count the reports in the set of every symbol, null last: (k + 1,) float64."""

    @abstractmethod
    def law(self) -> FiniteChannel | None:
        """Return the exact law of a report for two symbols; None without noise."""

    @property
    def exact(self) -> bool:
        """Reports are drawn with integer thresholds."""
        return True

    def variance(self, share: ArrayLike) -> Floats:
        """N times the variance of a debiased share, given the users' symbols; broadcasts."""
        f = np.asarray(share, dtype=np.float64)
        p, q = self.p, self.q
        return np.asarray((f * p * (1 - p) + (1 - f) * q * (1 - q)) / (p - q) ** 2)

    @property
    def v(self) -> float:
        """N times the variance of the k shares, added up, for users who all have a symbol."""
        return summed_variance(self.p, self.q, self.n_symbols)

    @property
    def noise(self) -> tuple[float, float]:
        """(a, b): a debiased report of what is x in f of all cases has variance a + b f - f^2."""
        gain = self.p - self.q
        return self.q * (1 - self.q) / gain**2, (1 - 2 * self.q) / gain

    def debias(self, counts: Integers, n_users: int) -> Floats:
        """Turn folded reports into unbiased shares of the users: (k + 1,), the null share last.

        Parameters
        ----------
        counts : (size,) int64
        n_users : int
            Everybody who answered, erasures included.
        """
        return np.asarray((self.set_counts(counts) / n_users - self.q) / (self.p - self.q))


def summed_variance(p: float, q: float, k: int) -> float:
    """[p (1 - p) + (k - 1) q (1 - q)] / (p - q)^2: n times the summed variance over k symbols.

    Infinite where a report says nothing in doubles.
    """
    if (p - q) ** 2 == 0:
        return math.inf
    return (p * (1 - p) + (k - 1) * q * (1 - q)) / (p - q) ** 2
