"""Frequency oracles: how a user reports one symbol of a public domain, and how shares come back.

A user with symbol x owns a set of messages; a report falls into it with probability p, and into
that of any other symbol with probability q. The share of x is (count in its set / n - q) / (p - q).
A user without a symbol (no items, NaN, outside the domain) reports one more symbol, the null
symbol k, in the same way; its share is an output.

References
----------
.. [1] Kairouz, Bonawitz & Ramage, "Discrete distribution estimation under local privacy",
   ICML 2016 (k-ary randomized response).
.. [2] Acharya, Sun & Zhang, "Hadamard response: estimating distributions privately, efficiently,
   and with little communication", AISTATS 2019.
.. [3] Feldman, Nelson, Nguyen & Talwar, "Private frequency estimation via projective geometry",
   ICML 2022.
.. [4] Ye & Barg, "Optimal schemes for discrete distribution estimation under locally differential
   privacy", IEEE Transactions on Information Theory, 2018 (subset selection).
.. [5] Wang, Blocki, Li & Jha, "Locally differentially private protocols for frequency estimation",
   USENIX Security 2017, Section 4.3 (optimized unary encoding).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedhist.base.arrays import Floats, Integers, next_power_of_two
from fedhist.base.checks import check_choice, check_integer
from fedhist.channels.bits import MAX_BITS, RandomizedResponse
from fedhist.channels.hadamard import fwht
from fedhist.channels.layers import WORD_VALUES, Layers, odds_less_one
from fedhist.channels.projective import MOST_CELLS, ProjectiveSpace
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.guarantee import check_budget

MAX_MESSAGE_BITS = 4096
"""Of the messages that "auto" considers."""

MOST_DECODED = 1 << 22
"""Symbols; more are reported by k-ary randomized response, which needs no transform."""


@dataclass(frozen=True)
class OracleChannel(ABC):
    """A report of one of k = ``n_symbols`` symbols, or of none; epsilon = inf: no noise."""

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
    def size(self) -> int:
        """Length of the counts that reports are folded into."""

    @property
    def bits(self) -> int:
        """Bits of a message: one for each count, by default."""
        return self.size

    @abstractmethod
    def set_counts(self, counts: Integers) -> Floats:
        """Count the reports in the set of every symbol, null last: (k + 1,) float64."""

    @abstractmethod
    def law(self) -> FiniteChannel | None:
        """Return the exact law of a report for two symbols; None without noise."""

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
        """Turn folded reports into unbiased shares of the users: (k + 1,), the null share last."""
        return np.asarray((self.set_counts(counts) / n_users - self.q) / (self.p - self.q))


def summed_variance(p: float, q: float, k: int) -> float:
    """[p (1 - p) + (k - 1) q (1 - q)] / (p - q)^2: n times the summed variance over k symbols."""
    if (p - q) ** 2 == 0:
        return math.inf
    return (p * (1 - p) + (k - 1) * q * (1 - q)) / (p - q) ** 2


def _of_two(row: list[int], classes: str) -> FiniteChannel:
    """Return the law for two symbols, given that for the first one of four classes of reports."""
    rows = np.array([row, [row[0], row[2], row[1], row[3]]], dtype=object)
    labels = ["the first symbol", "the second symbol"]
    return FiniteChannel.of(rows, labels, f"{classes}: alike within each class")


@dataclass(frozen=True)
class SymbolOracle(OracleChannel):
    """A report of one symbol of N, by :class:`~fedhist.channels.layers.Layers`; folded, counts.

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
        row.append(WORD_VALUES - sum(row))
        return _of_two(row, "reports in both sets, the first, the second, neither")


@dataclass(frozen=True)
class KrrOracle(SymbolOracle):
    """The symbol itself, or any other [1]: N = k + 1.

    >>> KrrOracle(math.inf, 3).debias(np.array([1, 0, 2, 1, 0]), 4).tolist()
    [0.25, 0.0, 0.5, 0.25]
    """

    kind: ClassVar[str] = "krr"
    most_symbols: ClassVar[int] = (1 << 30) - 1

    @cached_property
    def layers(self) -> Layers:
        """A set is the symbol."""
        return Layers(self.epsilon, self.n_symbols + 1, 1)

    @property
    def overlap(self) -> int:
        """Sets are disjoint."""
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
    most_symbols: ClassVar[int] = (1 << 24) - 2

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
        row = symbols + 1
        lowest = row & -row
        low = ranks & (lowest - 1)
        spread = (ranks - low) << 1 | low
        return np.asarray(spread | lowest * (np.bitwise_count(spread & row) & 1))

    def set_counts(self, counts: Integers) -> Floats:
        """(received + transform) / 2."""
        received = counts[:-1]
        return np.asarray((int(received.sum()) + fwht(received)[1 : self.n_symbols + 2]) / 2)


@dataclass(frozen=True)
class ProjectiveOracle(SymbolOracle):
    """One point of F_q^t; symbol x has the points orthogonal to point x [3]."""

    kind: ClassVar[str] = "projective"
    most_symbols: ClassVar[int] = MOST_DECODED
    space: ProjectiveSpace

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


@dataclass(frozen=True)
class SubsetOracle(OracleChannel):
    """w of the k + 1 symbols, w about (k + 1) / (e^epsilon + 1), as packed bits [4].

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
        if self.epsilon < 1e-9:
            raise ValueError(f"epsilon = {self.epsilon:g} is too small for 64-bit words")

    @cached_property
    def chosen(self) -> int:
        """w, of the two next to (k + 1) / (e^epsilon + 1) the one of less variance."""
        total = self.n_symbols + 1
        near = int(total * math.exp(-self.epsilon) / (1 + math.exp(-self.epsilon)))
        able = {min(max(w, 1), total // 2) for w in (near, near + 1)}
        return min(sorted(able), key=lambda w: summed_variance(*self._hits(w), self.n_symbols))

    @cached_property
    def threshold(self) -> int:
        """T."""
        return self._threshold(self.chosen)

    def _threshold(self, w: int) -> int:
        e = 1 + odds_less_one(self.epsilon)
        return math.floor(e * w * WORD_VALUES / (self.n_symbols + 1 - w + e * w))

    def _hits(self, w: int) -> tuple[float, float]:
        p = self._threshold(w) / WORD_VALUES
        return p, (p * (w - 1) + (1 - p) * w) / self.n_symbols

    @property
    def p(self) -> float:
        """T / 2^64."""
        return self._hits(self.chosen)[0]

    @property
    def q(self) -> float:
        """P (w - 1) / k + (1 - p) w / k."""
        return self._hits(self.chosen)[1]

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
        kept, left = t, WORD_VALUES - t
        row = [kept * (w - 1), kept * (others - w + 1), left * w, left * (others - w)]
        return _of_two(row, "subsets with both symbols, the first, the second, none")


@dataclass(frozen=True)
class UnaryOracle(RandomizedResponse, OracleChannel):
    """k bits, one for each symbol: a true 1 stays with probability 1/2, a 0 turns with q [5].

    q, ``flip``, is 1 / (e^epsilon + 1). The null record is the zero vector, whose expected
    contribution to every share is zero. Without noise the bits are sent as they are.

    Privacy
    -------
    Two votes differ in two bits, and the ratio of an output's probabilities is at most
    (1/2) (1 - q) / (q (1 - 1/2)) = (1 - q) / q <= e^epsilon, since q is rounded towards 1/2 and
    1/2 is drawn exactly. A vote and none differ in one bit: the ratio is 1 / (2 q) or 2 (1 - q) or
    the inverse of one of them, and none is larger, as q <= 1/2 <= 1 - q.
    """

    kind: ClassVar[str] = "unary"
    most_symbols: ClassVar[int] = MAX_BITS

    @property
    def p(self) -> float:
        """1/2, or 1 without noise."""
        return 1.0 if math.isinf(self.epsilon) else 0.5

    @property
    def q(self) -> float:
        """1 / (e^epsilon + 1)."""
        return self.flip

    @property
    def size(self) -> int:
        """K."""
        return self.n_symbols

    def set_counts(self, counts: Integers) -> Floats:
        """Return the counts: the null symbol has no set."""
        return counts.astype(np.float64)

    def debias(self, counts: Integers, n_users: int) -> Floats:
        """Turn counts into shares; that of the null symbol is one less the others."""
        gain = 1.0 if math.isinf(self.epsilon) else self.tau / 2  # p - q, which would cancel
        shares = (np.asarray(counts) / n_users - self.flip) / gain
        return np.append(shares, 1.0 - shares.sum())

    def law(self) -> FiniteChannel | None:
        """Two symbols and none, on two bits: other bits have equal laws and cancel."""
        if math.isinf(self.epsilon):
            return None
        k = min(self.n_symbols, 2)
        rows = []
        for x in range(-1, k):
            ones = [WORD_VALUES // 2 if j == x else self.flip_threshold for j in range(k)]
            both = ((WORD_VALUES - p, p) for p in reversed(ones))
            rows.append([math.prod(bits) for bits in product(*both)])
        labels = ["no symbol", *(f"symbol {x}" for x in range(k))]
        scope = "any two votes, and none, on the bits in which they differ"
        return FiniteChannel.of(np.array(rows, dtype=object), labels, scope)


@lru_cache(maxsize=256)
def best_projective(epsilon: float, n_symbols: int) -> ProjectiveOracle:
    """Return the channel of least v over primes q, with the least t that has points enough."""
    low = math.exp(-epsilon)

    def v(space: ProjectiveSpace) -> float:
        whole = space.size * low + space.chosen * (1 - low)
        p, q = ((space.chosen * low + c * (1 - low)) / whole for c in (space.chosen, space.overlap))
        return summed_variance(p, q, n_symbols)

    options = spaces(n_symbols + 1)
    if not options:
        raise ValueError(f"the symbols must be at most {MOST_DECODED}, got {n_symbols}")
    return ProjectiveOracle(epsilon, n_symbols, min(options, key=v))


@lru_cache(maxsize=16)
def spaces(n_points: int) -> tuple[ProjectiveSpace, ...]:
    """List, for every prime q, the smallest space that has so many points and can be decoded."""
    listed = []
    for q in _primes(math.isqrt(MOST_CELLS)):
        t = 3
        while q ** (t - 1) <= MOST_CELLS and (q**t - 1) // (q - 1) < n_points:
            t += 1
        if q ** (t - 1) <= MOST_CELLS:
            listed.append(ProjectiveSpace(q, t))
    return tuple(listed)


@lru_cache(maxsize=1)
def _primes(most: int) -> tuple[int, ...]:
    return tuple(q for q in range(2, most + 1) if all(q % d for d in range(2, math.isqrt(q) + 1)))


_MAKERS: Mapping[str, Callable[[float, int], OracleChannel]] = {
    "krr": KrrOracle,
    "hadamard": HadamardOracle,
    "projective": best_projective,
    "subset": SubsetOracle,
    "unary": UnaryOracle,
}


@lru_cache(maxsize=256)
def oracle_channel(
    kind: str, epsilon: float, n_symbols: int, *, max_bits: int = MAX_MESSAGE_BITS
) -> OracleChannel:
    """Return the channel of a kind.

    "auto" takes the least v among those whose messages, of ``max_bits`` at most, and decoding are
    small enough; of those within 3 percent of it, the shortest messages. A kind that is named is
    taken as it is. k = ``n_symbols``, without the null symbol, is at most 2^22, 2^16 for subset and
    unary, 2^24 - 2 for hadamard, 2^30 - 1 for krr. Without noise every kind but unary sends the
    symbol itself.

    >>> [oracle_channel("auto", epsilon, 99).kind for epsilon in (1.0, 6.0)]
    ['projective', 'krr']
    """
    check_choice("kind", kind, ("auto", *_MAKERS))
    check_budget(epsilon)
    if kind != "auto":
        free = math.isinf(epsilon) and kind != "unary"
        return KrrOracle(epsilon, n_symbols) if free else _MAKERS[kind](epsilon, n_symbols)
    if math.isinf(epsilon) or n_symbols > MOST_DECODED:
        kinds = ["krr"]
    else:
        wide = ["subset", "unary"] if n_symbols < min(max_bits, MAX_BITS) else []
        kinds = ["krr", "hadamard", "projective", *wide]
    able = [c for c in (_MAKERS[name](epsilon, n_symbols) for name in kinds) if c.bits <= max_bits]
    if not able:
        raise ValueError(f"{n_symbols} symbols do not fit into messages of {max_bits} bits")
    least = min(channel.v for channel in able)
    if math.isinf(least):
        raise ValueError(f"epsilon = {epsilon:g} is too small for a report of {n_symbols} symbols")
    return min((c for c in able if c.v <= 1.03 * least), key=lambda c: (c.bits, c.v))
