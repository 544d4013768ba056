"""The local channels: what a randomizer does, written once.

A channel holds the constants of one local randomizer. The client half draws from it, the server
half debiases with it, theory takes variances from it, and an auditor reads the exact law of the
output. Scalar channels take ``u`` in [-1, 1] (a clipped value in units of the half width of its
interval) and report integers of mean ``gain u``. ``epsilon = inf`` switches noise off.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, eq. (27), Lemma 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_choice, check_count
from fedhist.channels.flips import RandomizedResponse, flip_probability
from fedhist.channels.laplace import LaplaceChannel
from fedhist.channels.piecewise import PiecewiseChannel
from fedhist.channels.scalar import OneBitChannel, ScalarChannel
from fedhist.privacy.guarantee import check_budget

__all__ = [
    "CHANNELS",
    "KINDS",
    "LaplaceChannel",
    "OneBitChannel",
    "PiecewiseChannel",
    "ScalarChannel",
    "UnaryChannel",
    "best_kind",
    "flip_probability",
    "planned_v",
    "scalar_channel",
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
    >>> import math
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


def planned_v(channel: ScalarChannel, size: float | None = None) -> float:
    """Variance over squared width to plan with; that at the inputs +-size where they are known.

    >>> round(planned_v(OneBitChannel(1.0)), 4), round(planned_v(OneBitChannel(1.0), 1.0), 4)
    (1.1707, 0.9207)
    """
    return channel.v if size is None else float(channel.variance(size)) / 4


def best_kind(epsilon: float, size: float | None = None) -> str:
    """Return the scalar channel of least planning variance, see :func:`planned_v`.

    >>> best_kind(0.5), best_kind(1.0), best_kind(float("inf"))
    ('onebit', 'piecewise', 'laplace')
    >>> best_kind(1.0, size=1.0)
    'onebit'
    """
    able = [kind for kind, channel in CHANNELS.items() if epsilon >= channel.least_epsilon]
    return min(able, key=lambda kind: planned_v(CHANNELS[kind](epsilon), size))


@lru_cache(maxsize=1024)
def scalar_channel(kind: str, epsilon: float, size: float | None = None) -> ScalarChannel:
    """Return the scalar channel of a kind; "auto" is :func:`best_kind`."""
    check_choice("kind", kind, KINDS)
    return CHANNELS[best_kind(epsilon, size) if kind == "auto" else kind](epsilon)
