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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_choice, check_count
from fedhist.channels.bits import RandomizedResponse
from fedhist.channels.scalar import (
    LaplaceChannel,
    OneBitChannel,
    PiecewiseChannel,
    ScalarChannel,
)
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.guarantee import check_budget


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
