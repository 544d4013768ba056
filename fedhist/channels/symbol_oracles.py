"""Frequency oracles whose report is one symbol of N, by one integer law.

References
----------
.. [1] Kairouz, Bonawitz & Ramage, "Discrete distribution estimation under local privacy",
   ICML 2016 (k-ary randomized response).
.. [2] Acharya, Sun & Zhang, "Hadamard response: estimating distributions privately, efficiently,
   and with little communication", AISTATS 2019.
.. [3] Feldman, Nelson, Nguyen & Talwar, "Private frequency estimation via projective geometry",
   ICML 2022.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numba import njit

from fedhist.base.arrays import Floats, Integers
from fedhist.channels.hadamard import fwht, next_power_of_two
from fedhist.channels.layers import MAX_ALPHABET, WORDS, Layers
from fedhist.channels.oracle_base import OracleChannel
from fedhist.channels.projective import ProjectiveSpace
from fedhist.model.finite import FiniteChannel

MAX_SYMBOLS = (1 << 24) - 2
MAX_DECODED = 1 << 22
"""Domains beyond are reported by k-ary randomized response, which needs no transform."""


@dataclass(frozen=True)
class SymbolOracle(OracleChannel):
    """A report of one symbol of N, by :class:`~fedhist.channels.layers.Layers`.

    Folded reports are counts of the N symbols, and of erasures.

    Privacy
    -------
    epsilon-LDP, exactly as drawn: see the law. Every symbol's set has the same size.
    """

    @property
    @abstractmethod
    def layers(self) -> Layers:
        """The integer law of a report."""

    @property
    @abstractmethod
    def overlap(self) -> int:
        """Messages that the sets of two symbols have in common."""

    @abstractmethod
    def members(self, symbols: Integers, ranks: Integers) -> Integers:
        """Name the members, by ranks in [0, c), of the symbols' sets; symbols in [0, k]."""

    @property
    def p(self) -> float:
        """P(report in the set of x | symbol x)."""
        return self.layers.hit(self.layers.chosen)

    @property
    def q(self) -> float:
        """P(report in the set of x | another symbol)."""
        return self.layers.hit(self.overlap)

    @property
    def bits(self) -> int:
        """ceil(log2(N + 1))."""
        return self.layers.bits

    @property
    def size(self) -> int:
        """N + 1: the symbols and the erasure."""
        return self.layers.size + 1

    def law(self) -> FiniteChannel | None:
        """Two symbols, null or not, on which of their sets holds the report."""
        if math.isinf(self.epsilon):
            return None
        law, both = self.layers, self.overlap
        one = law.chosen - both
        high, low = law.lower + law.upper, law.lower
        row = [both * high, one * high, one * low]
        row.append(WORDS - sum(row))
        rows = [row, [row[0], row[2], row[1], row[3]]]
        labels = ["the first symbol", "the second symbol"]
        scope = "reports in both sets, the first, the second, neither: alike within each class"
        return FiniteChannel.of(np.array(rows, dtype=object), labels, scope)


@dataclass(frozen=True)
class KrrOracle(SymbolOracle):
    """The symbol itself, or any other [1]: N = k + 1.

    Examples
    --------
    >>> KrrOracle(math.inf, 3).debias(np.array([1, 0, 2, 1, 0]), 4).tolist()
    [0.25, 0.0, 0.5, 0.25]
    """

    kind: ClassVar[str] = "krr"
    most_symbols: ClassVar[int] = MAX_ALPHABET - 1

    @cached_property
    def layers(self) -> Layers:
        """A set is the symbol."""
        return Layers(self.epsilon, self.n_symbols + 1, 1)

    @property
    def overlap(self) -> int:
        """None."""
        return 0

    def members(self, symbols: Integers, ranks: Integers) -> Integers:
        """Return the symbols themselves."""
        return symbols

    def set_counts(self, counts: Integers) -> Floats:
        """Return the counts, without the erasures."""
        return counts[:-1].astype(np.float64)


@dataclass(frozen=True)
class HadamardOracle(SymbolOracle):
    """One index below K, a power of two above k + 1; symbol x has {y: H[x + 1, y] = 1} [2]."""

    kind: ClassVar[str] = "hadamard"
    most_symbols: ClassVar[int] = MAX_SYMBOLS

    @cached_property
    def layers(self) -> Layers:
        """A set is half of the indices."""
        order = next_power_of_two(self.n_symbols + 2)
        return Layers(self.epsilon, order, order // 2)

    @property
    def overlap(self) -> int:
        """A quarter of the indices."""
        return self.layers.size // 4

    def members(self, symbols: Integers, ranks: Integers) -> Integers:
        """Put the parity of the rank's bits on the row into the place of the row's lowest one."""
        out = np.empty(len(symbols), dtype=np.int64)
        _members(symbols, ranks, out)
        return out

    def set_counts(self, counts: Integers) -> Floats:
        """(received + transform) / 2."""
        found = counts[:-1]
        return np.asarray((int(found.sum()) + fwht(found)[1 : self.n_symbols + 2]) / 2)


@njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator]
def half_member_of(symbol: Any, rank: Any) -> Any:
    """Return the index y of that rank with H[symbol + 1, y] = 1."""
    row = symbol + 1
    lowest = row & -row
    low = rank & (lowest - 1)
    found = ((rank - low) << 1) | low
    bits = found & row  # below 2^32; its parity by halves, of four bits by a table
    bits ^= bits >> 16
    bits ^= bits >> 8
    bits ^= bits >> 4
    return found | (lowest * ((0x6996 >> (bits & 15)) & 1))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _members(symbols: Integers, ranks: Integers, out: Integers) -> None:
    for i in range(symbols.shape[0]):
        out[i] = half_member_of(symbols[i], ranks[i])


@dataclass(frozen=True)
class ProjectiveOracle(SymbolOracle):
    """One point of F_q^t; symbol x has the points orthogonal to point x [3]."""

    kind: ClassVar[str] = "projective"
    most_symbols: ClassVar[int] = MAX_DECODED
    space: ProjectiveSpace

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.space.size <= self.n_symbols:
            raise ValueError(f"{self.space} has too few points for {self.n_symbols} symbols")

    @cached_property
    def layers(self) -> Layers:
        """A set is about a q-th of the points."""
        return Layers(self.epsilon, self.space.size, self.space.chosen)

    @property
    def overlap(self) -> int:
        """About a q-th of a set."""
        return self.space.overlap

    def members(self, symbols: Integers, ranks: Integers) -> Integers:
        """Count through the set's points."""
        return self.space.members(symbols, ranks)

    def set_counts(self, counts: Integers) -> Floats:
        """By a transform; see the space."""
        return self.space.set_counts(counts[:-1])[: self.n_symbols + 1]
