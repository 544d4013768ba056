"""Channels of bits and the scalar channels by name: what a randomizer does, written once.

A channel holds the constants of one local randomizer. The client half draws from it, the server
half debiases with it, theory takes variances from it, and an auditor reads the exact law of the
output: :class:`~fedhist.model.finite.FiniteChannel`. ``epsilon = inf`` switches noise off.

A randomizer of n independent bits has 2^n outputs, but the bits in which two inputs agree have
the same law under both and cancel; so the laws here enumerate the few bits in which two inputs can
differ, and lose nothing.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Lemma 16.
.. [2] Wang, Blocki, Li & Jha, "Locally differentially private protocols for frequency estimation",
   USENIX Security 2017, Section 4.3 (optimized unary encoding).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_choice, check_count
from fedhist.channels.bits import RandomizedResponse, flip_probability
from fedhist.channels.scalar import (
    LaplaceChannel,
    OneBitChannel,
    PiecewiseChannel,
    ScalarChannel,
)
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.guarantee import check_budget

__all__ = [
    "CHANNELS",
    "KINDS",
    "MAX_BITS",
    "LaplaceChannel",
    "OneBitChannel",
    "OptimalUnaryChannel",
    "PiecewiseChannel",
    "ScalarChannel",
    "UnaryChannel",
    "best_kind",
    "flip_probability",
    "optimal_unary_law",
    "planned_v",
    "scalar_channel",
    "scalar_law",
    "unary_law",
]


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

    @property
    def bit_variance(self) -> float:
        """Variance of one reported bit given the true one: (1 - tau^2) / 4."""
        return (1.0 - self.tau**2) / 4

    def debias(self, votes: NDArray[np.int64], n_users: int | NDArray[np.int64]) -> Floats:
        """Turn counts of reported ones into unbiased frequencies of true ones."""
        return np.asarray((votes / n_users - (1.0 - self.tau) / 2) / self.tau)

    def inputs(self, n_bits: int) -> NDArray[np.uint8]:
        """Enumerate every allowed vector: (k, n_bits)."""
        held = [c for k in range(self.ones + 1) for c in combinations(range(n_bits), k)]
        rows = np.zeros((len(held), n_bits), dtype=np.uint8)
        for row, positions in zip(rows, held, strict=True):
            row[list(positions)] = 1
        return rows


CHANNELS: dict[str, type[ScalarChannel]] = {
    c.kind: c for c in (LaplaceChannel, OneBitChannel, PiecewiseChannel)
}
KINDS = (*CHANNELS, "auto")
MAX_BITS = 1 << 16


def planned_v(channel: ScalarChannel, size: float | None = None) -> float:
    """Variance over squared width to plan with; that at the inputs +-size where they are known."""
    return channel.v if size is None else float(channel.variance(size)) / 4


def best_kind(epsilon: float, size: float | None = None) -> str:
    """Return the scalar channel of least planning variance, see :func:`planned_v`.

    >>> best_kind(0.5), best_kind(1.0), best_kind(1.0, size=1.0), best_kind(float("inf"))
    ('onebit', 'piecewise', 'onebit', 'laplace')
    """
    able = [kind for kind, channel in CHANNELS.items() if epsilon >= channel.least_epsilon]
    return min(able, key=lambda kind: planned_v(CHANNELS[kind](epsilon), size))


@lru_cache(maxsize=1024)
def scalar_channel(kind: str, epsilon: float, size: float | None = None) -> ScalarChannel:
    """Return the scalar channel of a kind; "auto" is :func:`best_kind`."""
    check_choice("kind", kind, KINDS)
    return CHANNELS[best_kind(epsilon, size) if kind == "auto" else kind](epsilon)


@dataclass(frozen=True)
class OptimalUnaryChannel(RandomizedResponse):
    """k bits, one for each symbol: a true 1 stays with probability 1/2, a 0 turns with q [2].

    q, ``flip``, is 1 / (e^epsilon + 1). A vote is a symbol of {0, ..., k - 1}, or none (-1): the
    zero vector, whose expected contribution to every estimate is zero. Without noise the bits are
    sent as they are. k is at most 2^16.

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
        """Enumerate the exact law (small k): (k + 1, 2^k) ints, 2^(64 k) times the probability.

        Row v + 1 is vote v = -1, ..., k - 1; an output's bits are those of its column's number.
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


def scalar_law(channel: ScalarChannel) -> FiniteChannel | None:
    """All inputs of the lattice and all reports; None without noise.

    Rounding mixes the laws of two neighbouring inputs: a mixture's ratios are no larger.
    """
    if math.isinf(channel.epsilon):
        return None
    inputs = channel.inputs()
    labels = [f"u = {x}/{channel.steps}" for x in inputs.tolist()]
    scope = "all inputs and outputs of the lattice; rounding to it only mixes laws"
    return FiniteChannel(labels, lambda rows: channel.weights(inputs[rows]), 1 << 64, scope)


def optimal_unary_law(channel: OptimalUnaryChannel) -> FiniteChannel | None:
    """Two symbols and none, on two bits: other bits have equal laws and cancel."""
    if math.isinf(channel.epsilon):
        return None
    small = type(channel)(channel.epsilon, min(channel.n_symbols, 2))
    labels = ["no symbol", *(f"symbol {x}" for x in range(small.n_symbols))]
    return FiniteChannel.of(
        small.weights(), labels, "any two votes, and none, on the bits in which they differ"
    )
