"""Bits: randomized response, unary votes; counting, checking and drawing sums of packed bits.

Bit b of a row is ``row[b // 64] >> (b % 64) & 1``; the bits from ``n_bits`` on are zero.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Lemma 16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Bounds, Floats, Words
from fedhist.base.checks import check_count
from fedhist.base.errors import WireError
from fedhist.base.lazy import kernel
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import Report, only_array
from fedhist.privacy.guarantee import check_budget
from fedhist.users.streams import integer_threshold

# -- one bit, told or turned


def flip_probability(x: float) -> float:
    """Return 1 / (1 + e^x) for x >= 0, rounded towards 1/2.

    The margin covers the rounding of x itself and of every operation here, so that the odds
    (1 - q) / q are at most e^x in exact arithmetic; ``integer_threshold`` rounds in that direction.
    """
    if math.isinf(x):
        return 0.0
    t = math.exp(-x)
    return min(t / (1.0 + t) * (1.0 + (x + 8.0) * 2.0**-52) + 5e-324, 0.5)


class RandomizedResponse:
    """Bits turned with a probability that is the same for all data, with an integer threshold."""

    epsilon: float

    @property
    def log_odds(self) -> float:
        """What one bit may cost: the whole budget."""
        return self.epsilon

    @cached_property
    def flip(self) -> float:
        """Probability that a bit is turned, rounded towards 1/2."""
        return flip_probability(self.log_odds)

    @property
    def flip_threshold(self) -> int:
        """The probability that is drawn, times 2^64: an integer."""
        return int(integer_threshold(self.flip))

    @cached_property
    def tau(self) -> float:
        """Keep minus flip, tanh(log_odds / 2): how much a bit moves the mean of a reported one."""
        return math.tanh(self.log_odds / 2)


@dataclass(frozen=True)
class UnaryChannel(RandomizedResponse):
    """Bits of which at most ``ones`` are set, each flipped independently.

    Parameters
    ----------
    epsilon : float
        Budget of the whole vector, against any other vector of at most ``ones`` ones.
    ones : int
        Data-independent cap on the ones of a vector; the client truncates to it.

    Privacy
    -------
    Two vectors of at most ``ones`` ones differ in at most 2 ones positions, and each contributes
    a factor of at most e^{epsilon / (2 ones)}: epsilon-LDP [1, Lemma 16].

    Examples
    --------
    >>> channel = UnaryChannel(1.0)
    >>> round(channel.tau, 6) == round(math.tanh(0.25), 6)
    True
    """

    epsilon: float
    ones: int = 1

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_count("ones", self.ones)

    @property
    def log_odds(self) -> float:
        """What one bit may cost: epsilon / (2 ones)."""
        return self.epsilon / (2 * self.ones)

    def debias(self, votes: NDArray[np.int64], n_users: int | NDArray[np.int64]) -> Floats:
        """Turn counts of reported ones into unbiased frequencies of true ones."""
        return np.asarray((votes / n_users - (1.0 - self.tau) / 2) / self.tau)


def unary_law(channel: UnaryChannel, n_bits: int) -> FiniteChannel | None:
    """Enumerate the bits in which two vectors of at most s ones can differ: 2 s of them.

    None without noise.
    """
    t = channel.flip_threshold
    if t == 0:
        return None
    n, keep = min(n_bits, 2 * channel.ones), (1 << 64) - t
    held = [c for k in range(channel.ones + 1) for c in combinations(range(n), k)]
    masks = [sum(1 << b for b in c) for c in held]
    rows = [
        [t**f * keep ** (n - f) for f in ((mask ^ z).bit_count() for z in range(1 << n))]
        for mask in masks
    ]
    labels = [f"bits {list(c)} set" if c else "no bit set" for c in held]
    scope = f"all vectors of at most {channel.ones} ones on {n} bits; the other bits cancel"
    return FiniteChannel.of(np.array(rows, dtype=object), labels, scope)


# -- packed bits

MAX_BITS = 1 << 16
"""Of a vote."""


def n_words(n_bits: int) -> int:
    """Return how many 64-bit words hold n_bits bits."""
    return -(-n_bits // 64)


class BitTally:
    """Counts of packed bits per fold and position, added up batch by batch.

    ``parts`` is what the compiled loops work on: ``lanes``, (n_folds, n_words(n_bits), 8) uint64,
    whose byte j of lane i counts bit i + 8 j of its word; ``rows``, (n_folds,) int64, how many rows
    the bytes of a fold hold; ``counts``, (n_folds, n_bits) int64, where full bytes go. Bytes are
    emptied every 255 rows of a fold, so the order of the folds does not matter.

    >>> tally = BitTally(3, 2)
    >>> tally.add(np.array([[5], [4], [1]], dtype=np.uint64), np.array([1, 1, 0]))
    >>> tally.totals().tolist()
    [[1, 0, 0], [1, 0, 2]]
    """

    def __init__(self, n_bits: int, n_folds: int) -> None:
        check_count("n_folds", n_folds)
        self.n_bits, self.n_folds = n_bits, n_folds
        lanes = np.zeros((n_folds, n_words(n_bits), 8), dtype=np.uint64)
        rows = np.zeros(n_folds, dtype=np.int64)
        self.parts = (lanes, rows, np.zeros((n_folds, n_bits), dtype=np.int64))

    def add(self, bits: Words, fold: NDArray[np.int64] | None = None) -> None:
        """Count rows: bits (n, n_words(n_bits)) uint64, fold (n,) int64 or None for all in fold 0.

        ValueError if the rows do not have the words of n_bits bits, or a fold is out of range.
        """
        if bits.ndim != 2 or bits.shape[1] != n_words(self.n_bits):
            need = f"{self.n_bits} bits need {n_words(self.n_bits)} words a row"
            raise ValueError(f"{need}, got {bits.shape}")
        add_rows(np.ascontiguousarray(bits, dtype=np.uint64), fold, *self.parts)

    def totals(self) -> NDArray[np.int64]:
        """Return the counts so far, (n_folds, n_bits) int64."""
        _flush_all(*self.parts)
        return self.parts[2].copy()


def count_bits(bits: Words, n_bits: int) -> NDArray[np.int64]:
    """Count, at every position, the rows whose bit is set: (n_bits,) int64."""
    return np.asarray(count_bits_by(bits, n_bits, None, 1)[0])


def count_bits_by(
    bits: Words, n_bits: int, fold: NDArray[np.int64] | None, n_folds: int
) -> NDArray[np.int64]:
    """Count, for every fold and position, the rows whose bit is set: (n_folds, n_bits) int64."""
    tally = BitTally(n_bits, n_folds)
    tally.add(bits, fold)
    return tally.totals()


def check_bits(report: Report, name: str, n_bits: int) -> None:
    """Raise WireError unless the one array of a report has a packed row of n_bits bits per user."""
    bits = only_array(report, name)
    Bounds((report.n_users, n_words(n_bits)), "u").check(name, bits)
    if bits.dtype != np.uint64:
        raise WireError(f"{name!r} has dtype {bits.dtype}, expected uint64")
    if n_bits % 64 and (bits[:, -1] >> np.uint64(n_bits % 64)).any():
        raise WireError(f"{name!r} has bits set from {n_bits} on")


@kernel()
def _flush(f: Any, lanes: Words, rows: Any, counts: Any) -> None:
    """Empty the byte counters of fold f into its counts."""
    for b in range(counts.shape[1]):
        byte = lanes[f, b >> 6, b & 7] >> uint64(b & 56)
        counts[f, b] += np.int64(byte & uint64(255))
    lanes[f] = uint64(0)
    rows[f] = 0


@kernel()
def _flush_all(lanes: Words, rows: Any, counts: Any) -> None:
    for f in range(rows.shape[0]):
        if rows[f] > 0:
            _flush(f, lanes, rows, counts)


@kernel()
def add_rows(bits: Words, fold: Any, lanes: Words, rows: Any, counts: Any) -> None:
    """Add every row to the byte counters of its fold, emptying those that are full."""
    for u in range(bits.shape[0]):
        f = uint64(0) if fold is None else uint64(fold[u])
        if rows[f] == 255:
            _flush(f, lanes, rows, counts)
        rows[f] += 1
        for w in range(bits.shape[1]):
            word = bits[u, w]
            for i in range(8):
                lanes[f, w, i] += (word >> uint64(i)) & uint64(0x0101010101010101)


def vote_totals(
    counts: NDArray[np.int64], n_users: ArrayLike, flip: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw how many of n users report a one at each position, given how many have one there.

    Given the true votes the reported bits are independent: the total at a position with c of them
    is Bin(c, 1 - flip) + Bin(n - c, flip). What is drawn is the integer threshold of ``flip`` over
    2^64, as by a client; ``n_users`` broadcasts.
    """
    p = float(integer_threshold(flip)) / 2.0**64
    others = np.broadcast_to(np.asarray(n_users), counts.shape) - counts
    return np.asarray(rng.binomial(counts, 1.0 - p) + rng.binomial(others, p), dtype=np.int64)
