"""The local channels: what a randomizer does, written once.

A channel holds the constants of one local randomizer. The client half draws from it, the server
half debiases with it, theory takes variances from it, and an auditor reads the exact law of the
output. Scalar channels take ``u`` in [-1, 1] (a clipped value in units of the half width of its
interval) and report in the same units. ``epsilon = inf`` switches noise off.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, eq. (27), (30), Lemma 16.
.. [2] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018.
.. [3] Wang et al., "Collecting and analyzing multidimensional data with local differential
   privacy", ICDE 2019, Algorithm 2.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.privacy import check_budget
from fedhist.streams import integer_threshold

Floats = NDArray[np.float64]


def flip_probability(x: float) -> float:
    """Return 1 / (1 + e^x) for x >= 0, rounded towards 1/2.

    The margin covers the rounding of x itself and of every operation here, so that the odds
    (1 - q) / q are at most e^x in exact arithmetic; :func:`~fedhist.streams.integer_threshold`
    rounds in the same direction.
    """
    if math.isinf(x):
        return 0.0
    t = math.exp(-x)
    return min(t / (1.0 + t) * (1.0 + (x + 8.0) * 2.0**-52) + 5e-324, 0.5)


@dataclass(frozen=True)
class UnaryChannel:
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
        if self.ones < 1:
            raise ValueError(f"ones must be positive, got {self.ones}")

    @cached_property
    def flip(self) -> float:
        """Probability of flipping one bit, rounded towards 1/2."""
        return flip_probability(self.epsilon / (2 * self.ones))

    @property
    def flip_threshold(self) -> int:
        """The probability that is drawn, times 2^64: an integer."""
        return int(integer_threshold(self.flip))

    @cached_property
    def tau(self) -> float:
        """Keep minus flip: how much one true bit moves the mean of a reported one."""
        return math.tanh(self.epsilon / (4 * self.ones))

    @property
    def bit_variance(self) -> float:
        """Variance of one reported bit given the true one: (1 - tau^2) / 4."""
        return (1.0 - self.tau**2) / 4

    def debias(self, votes: NDArray[np.int64], n_users: int) -> Floats:
        """Turn counts of reported ones into unbiased frequencies of true ones."""
        return np.asarray((votes / n_users - (1.0 - self.tau) / 2) / self.tau)

    def inputs(self, n_bits: int) -> NDArray[np.uint8]:
        """Enumerate every allowed vector: (k, n_bits)."""
        held = [c for k in range(self.ones + 1) for c in combinations(range(n_bits), k)]
        rows = np.zeros((len(held), n_bits), dtype=np.uint8)
        for row, positions in zip(rows, held, strict=True):
            row[list(positions)] = 1
        return rows

    def transition(self, n_bits: int) -> Floats:
        """Exact law of the output for every allowed input (for small n_bits).

        Returns
        -------
        (k, 2^n_bits) float64
            Row i belongs to ``inputs(n_bits)[i]``, column z to the output with bits of z.
        """
        flip = self.flip_threshold / 2.0**64
        out = (np.arange(1 << n_bits)[:, None] >> np.arange(n_bits)) & 1
        flips = (self.inputs(n_bits)[:, None, :] != out[None, :, :]).sum(axis=2)
        return np.asarray(flip**flips * (1.0 - flip) ** (n_bits - flips))


@dataclass(frozen=True)
class ScalarChannel(ABC):
    """A randomizer of one scalar in [-1, 1]; the report z satisfies E z = gain u.

    Parameters
    ----------
    epsilon : float

    Attributes
    ----------
    kind : str
        Its name in configurations.
    """

    epsilon: float
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        check_budget(self.epsilon)

    @property
    def gain(self) -> float:
        """Slope of the report's mean."""
        return 1.0

    @property
    def bound(self) -> float:
        """Largest absolute report; inf for Laplace."""
        return math.inf

    @abstractmethod
    def variance(self, u: ArrayLike) -> Floats:
        """Variance of the debiased report z / gain, at input u."""

    @abstractmethod
    def density(self, u: ArrayLike, z: ArrayLike) -> Floats:
        """Density (probability, for one bit) of report z given u; ValueError without noise."""

    @property
    def v(self) -> float:
        """Planning variance over squared width: the worst input's, for piecewise that of 1/2."""
        return float(self.variance(0.0)) / 4

    @property
    def worst_v(self) -> float:
        """Largest variance over squared width; the variances are monotone in abs(u)."""
        return max(float(self.variance(0.0)), float(self.variance(1.0))) / 4

    def _needs_noise(self) -> None:
        if math.isinf(self.epsilon):
            raise ValueError("epsilon is inf: without noise there is no density")


@dataclass(frozen=True)
class LaplaceChannel(ScalarChannel):
    """u plus Laplace noise of scale 2 / epsilon [1, eq. (30)].

    Privacy
    -------
    Inputs lie in [-1, 1], so the sensitivity is 2 and the density ratio at most e^epsilon. As
    drawn in floating point the guarantee holds only up to the low bits of the noise.
    """

    kind: ClassVar[str] = "laplace"

    @property
    def scale(self) -> float:
        """Scale of the noise; 0 without noise."""
        return 2.0 / self.epsilon

    def variance(self, u: ArrayLike) -> Floats:
        """Variance 8 / epsilon^2, whatever the input."""
        return np.full(np.shape(u), 2.0 * self.scale * self.scale)

    def density(self, u: ArrayLike, z: ArrayLike) -> Floats:
        """Density of z given u."""
        self._needs_noise()
        return np.asarray(np.exp(-np.abs(np.subtract(z, u)) / self.scale) / (2 * self.scale))


@dataclass(frozen=True)
class OneBitChannel(ScalarChannel):
    """One bit: +-1 with mean u, then randomized response with a constant probability [2].

    P(z = 1) = 1/2 + tanh(epsilon / 2) u / 2. Without noise (epsilon = inf) the bit of mean u
    remains: the report is unbiased, not exact.

    Privacy
    -------
    The randomized response alone is epsilon-LDP, whatever the first bit and its rounding are.
    """

    kind: ClassVar[str] = "onebit"

    @cached_property
    def flip(self) -> float:
        """Probability of the randomized response to lie, rounded towards 1/2."""
        return flip_probability(self.epsilon)

    @property
    def flip_threshold(self) -> int:
        """The probability that is drawn, times 2^64: an integer."""
        return int(integer_threshold(self.flip))

    @property
    def gain(self) -> float:
        """tanh(epsilon / 2)."""
        return math.tanh(self.epsilon / 2)

    @property
    def bound(self) -> float:
        """Reports are -1 or 1."""
        return 1.0

    def variance(self, u: ArrayLike) -> Floats:
        """Variance coth^2(epsilon / 2) - u^2."""
        return np.asarray(1.0 / self.gain / self.gain - np.square(u))

    def density(self, u: ArrayLike, z: ArrayLike) -> Floats:
        """Probability of z in {-1, 1} given u, with the flip probability that is drawn."""
        tau = 1.0 - 2.0 * (self.flip_threshold / 2.0**64)
        return np.asarray((1.0 + np.multiply(u, z) * tau) / 2)


@dataclass(frozen=True)
class PiecewiseChannel(ScalarChannel):
    """The piecewise mechanism: near the scaled input with high density, else anywhere [3].

    With C = (e^{epsilon/2} + 1) / (e^{epsilon/2} - 1): uniform on [l, l + C - 1] with probability
    e^{epsilon/2} / (1 + e^{epsilon/2}), l = (C + 1) u / 2 - (C - 1) / 2, else uniform on the rest
    of [-C, C].

    Privacy
    -------
    The density takes two values, of ratio e^epsilon. As drawn in floating point the guarantee
    holds only up to the low bits of the report.
    """

    kind: ClassVar[str] = "piecewise"

    @cached_property
    def _t(self) -> float:
        return math.exp(-self.epsilon / 2)

    @cached_property
    def _gap(self) -> float:
        return -math.expm1(-self.epsilon / 2)  # 1 - t, accurate for small epsilon

    @property
    def flip(self) -> float:
        """Probability of reporting outside the window, rounded towards 1/2."""
        return flip_probability(self.epsilon / 2)

    @property
    def bound(self) -> float:
        """C: reports lie in [-C, C]."""
        return (1.0 + self._t) / self._gap

    @property
    def inside(self) -> float:
        """C - 1: length of the window."""
        return 2.0 * self._t / self._gap

    @property
    def outside(self) -> float:
        """C + 1: length of the rest."""
        return 2.0 / self._gap

    def left(self, u: Floats) -> Floats:
        """Left end of the window."""
        return np.asarray((u * self.outside - self.inside) / 2)

    @property
    def v(self) -> float:
        """Planning variance over squared width, that of u = 1/2."""
        return float(self.variance(0.5)) / 4

    def variance(self, u: ArrayLike) -> Floats:
        """Variance u^2 / (e^{epsilon/2} - 1) + (e^{epsilon/2} + 3) / (3 (e^{epsilon/2} - 1)^2)."""
        t, gap = self._t, self._gap
        return np.asarray(np.square(u) * t / gap + t * (1 + 3 * t) / (3 * gap) / gap)

    def density(self, u: ArrayLike, z: ArrayLike) -> Floats:
        """Density of z given u, with the probabilities that are drawn."""
        self._needs_noise()
        u, z = np.asarray(u, dtype=np.float64), np.asarray(z, dtype=np.float64)
        left, flip = self.left(u), float(integer_threshold(self.flip)) / 2.0**64
        near = (z >= left) & (z <= left + self.inside)
        p = np.where(near, (1.0 - flip) / self.inside, flip / self.outside)
        return np.where(np.abs(z) <= self.bound, p, 0.0)


CHANNELS: dict[str, type[ScalarChannel]] = {
    c.kind: c for c in (LaplaceChannel, OneBitChannel, PiecewiseChannel)
}
KINDS = (*CHANNELS, "auto")


def best_kind(epsilon: float) -> str:
    """Return the scalar channel of least planning variance.

    >>> best_kind(0.5), best_kind(1.0), best_kind(math.inf)
    ('onebit', 'piecewise', 'laplace')
    """
    return min(CHANNELS, key=lambda kind: CHANNELS[kind](epsilon).v)


@lru_cache(maxsize=1024)
def scalar_channel(kind: str, epsilon: float) -> ScalarChannel:
    """Return the scalar channel of a kind; "auto" is :func:`best_kind`."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    return CHANNELS[best_kind(epsilon) if kind == "auto" else kind](epsilon)
