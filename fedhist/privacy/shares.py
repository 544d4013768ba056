"""Noise that nodes add in shares: who must take part, its size, its room, the law of what arrives.

Under aggregate trust every node adds a share of the noise to its integers before they are summed,
and only the sum is seen. Of the N nodes that are asked some may drop out and some may tell the
server their shares; M of them are certain to be honest and in the sum
(:attr:`Aggregation.honest`). Any M shares add up to the calibrated
noise, and the remaining ones are independent of it, so that adding them is post-processing: the
guarantee holds for every set of nodes that contains M honest ones, if who is in it does not depend
on the data and each user is on one node.

*laplace*: a share is X - Y with X, Y independent negative binomial,
P(k) = Gamma(k + 1/M) / (k! Gamma(1/M)) (1 - p)^(1/M) p^k, p = exp(-1/s). Negative binomials of one
p add up, and M of them are geometric: M shares are the discrete Laplace noise of scale s = D1 /
epsilon, exactly; epsilon-DP with delta = 0. Fewer break it: the law has too sharp a peak at 0, and
.8 M shares cost 1.33 epsilon at D1 = s = 4, 1.97 epsilon at D1 = 4, s = 20.

*gaussian*: a share is discrete Gaussian with variance parameter sigma^2 / M, sigma of
:func:`fedhist.privacy.noise_law.lattice_std`, whose file has the proof. A share must have a
std of three steps at least, or else the sum would not be discrete Gaussian.

References
----------
.. [1] Goryczka & Xiong, "A comprehensive comparison of multiparty secure additions with
   differential privacy", IEEE TDSC 2017 (negative binomial shares).
.. [2] Kairouz, Liu & Steinke, "The distributed discrete Gaussian mechanism for federated learning
   with secure aggregation", ICML 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from fedhist.base.arrays import PlainArguments
from fedhist.base.checks import check_choice, check_count, check_integer, check_size, check_within
from fedhist.privacy.guarantee import Release, check_budget, gaussian_cost, pure
from fedhist.privacy.noise_law import NoiseLaw, lattice_std

TAU = 0.1
"""Default of each margin."""

MOST_PARTIES = 1 << 16
"""Nodes among which a sum can be made under masks."""


@dataclass(frozen=True)
class Aggregation(metaclass=PlainArguments):
    """The premise of aggregate trust.

    Parameters
    ----------
    parties : int
        N: nodes that are asked; public.
    tau_d, tau_c : float
        Largest share of them that may drop out, and that may collude with the server; in [0, .5),
        read as the decimals that they are written as.
    max_users : int
        Most users on all nodes together: the modulus has room for them.

    Raises
    ------
    ValueError
        If fewer than half of the nodes would be certain to be honest and in the sum.

    Examples
    --------
    >>> Aggregation(100).honest, Aggregation(100).quorum, Aggregation(10, 0.3, 0.0).honest
    (80, 90, 7)
    >>> print(Aggregation(100, 0.1, 0.05))
    at most 10% of 100 nodes drop out, 5% collude
    """

    parties: int
    tau_d: float = TAU
    tau_c: float = TAU
    max_users: int = 1 << 32

    @property
    def excess(self) -> float:
        """Std of the noise of all shares, over that which the honest ones must have."""
        return math.sqrt(self.parties / self.honest)

    def __post_init__(self) -> None:
        check_integer("parties", self.parties)
        check_integer("max_users", self.max_users)
        check_within("tau_d", self.tau_d, 0, 0.5, "[)")
        check_within("tau_c", self.tau_c, 0, 0.5, "[)")
        if 2 * self.honest < self.parties:
            raise ValueError(
                f"{self}: only {self.honest} of them are certain to be honest and in the sum; at "
                "least half must be"
            )

    @property
    def quorum(self) -> int:
        """Fewest nodes whose sum may be looked at: N - floor(tau_d N)."""
        return self.parties - floor_share(self.tau_d, self.parties)

    @property
    def honest(self) -> int:
        """Honest shares certain to be in the sum: M = N - floor(tau_d N) - floor(tau_c N).

        Whatever a node adds is sized for M, never for N or for how many have answered.
        """
        return self.quorum - floor_share(self.tau_c, self.parties)

    def __str__(self) -> str:
        drop, collude = (f"{100 * tau:g}%" for tau in (self.tau_d, self.tau_c))
        return f"at most {drop} of {self.parties} nodes drop out, {collude} collude"


@lru_cache(maxsize=256)
def floor_share(tau: float, parties: int) -> int:
    """floor(tau N) of the decimal that is written.

    >>> floor_share(0.29, 100)
    29
    """
    return math.floor(Fraction(repr(float(tau))) * parties)


ShareKind = Literal["laplace", "gaussian"]


def share_cost(kind: str, epsilon: float, delta: float) -> Release:
    """Return what a sum under shares of noise costs a user: the same as if one had drawn it."""
    check_choice("kind", kind, ("laplace", "gaussian"))
    check_budget(epsilon, delta)
    if kind == "gaussian":
        return gaussian_cost(epsilon, delta)[1]
    if delta:
        raise ValueError(f"Laplace shares are pure: delta must be 0, got {delta}")
    return pure(epsilon)


@dataclass(frozen=True)
class ShareNoise:
    """Noise that any ``honest`` shares add up to, M of them.

    ``size`` is the scale of the discrete Laplace law, or the std parameter of the discrete
    Gaussian, in steps; 0 is no noise.

    >>> noise = ShareNoise.calibrated("laplace", sensitivity=4, epsilon=1.0, delta=0.0, honest=80)
    >>> round(noise.std(100) / noise.std(80), 3)
    1.118
    """

    kind: ShareKind
    size: float
    honest: int

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("laplace", "gaussian"))
        check_count("honest", self.honest)
        check_size("the size of noise", self.size, zero=True)
        if self.kind == "gaussian" and 0 < self.share < 3:
            raise ValueError(
                f"each of {self.honest} shares of Gaussian noise would have a std of "
                f"{self.share:.3g} steps; it needs 3: take a finer grid, {3 / self.share:.2g} "
                "times as fine at least"
            )

    @classmethod
    def calibrated(
        cls,
        kind: ShareKind,
        *,
        sensitivity: float,
        epsilon: float,
        delta: float,
        honest: int,
        rounds: int = 1,
    ) -> ShareNoise:
        """Size the noise for a budget.

        The sensitivity is in steps, in the norm of the kind (l1 or l2), under the adjacency that is
        declared; delta is 0 for "laplace", and an infinite epsilon is no noise. One charge pays
        for all ``rounds`` of a series ("gaussian" only).

        Privacy
        -------
        "laplace": epsilon-DP. "gaussian": (epsilon, delta)-DP for all rounds, up to a loss eta
        that is below 1e-27 for a million entries (:mod:`fedhist.privacy.noise_law`).
        """
        share_cost(kind, epsilon, delta)
        if kind == "gaussian":
            return cls(kind, lattice_std(sensitivity, epsilon, delta, rounds=rounds), honest)
        if rounds != 1:
            raise ValueError(f"a series of rounds is for Gaussian shares, got {rounds} rounds")
        check_size("a sensitivity", sensitivity, zero=True)
        return cls(kind, sensitivity / epsilon, honest)

    @property
    def share(self) -> float:
        """What one node draws from: 1 / M, or the std parameter of its discrete Gaussian."""
        if self.kind == "laplace":
            return 1 / self.honest
        return self.size / math.sqrt(self.honest)

    def law(self, shares: int, step: float = 1.0) -> NoiseLaw:
        """Law of the sum of so many shares, for predictions."""
        check_count("shares", shares)
        if self.kind == "laplace":
            return NoiseLaw("discrete-laplace", self.size, step, shape=shares / self.honest)
        more = math.sqrt(shares / self.honest)
        return NoiseLaw("discrete-gaussian", self.size * more, step)

    def std(self, shares: int) -> float:
        """Std of the sum of so many shares, in steps."""
        return self.law(shares).std

    def tail(self, parties: int, entries: int) -> int:
        """Bound on the noise of each entry that holds but for one sum in 2^40.

        At most ``parties`` shares are in the sum, each of so many entries.

        Error
        -----
        laplace: with q = exp(-1 / (2 s)) the noise Z of N shares has
        E exp(Z / (2 s)) = (1 + q / (1 + q + q^2))^(N/M) <= (4/3)^(N/M). gaussian: discrete
        Gaussians are sub-Gaussian with their variance parameter. Then Markov, for both signs and
        all entries.
        """
        check_count("entries", entries)
        chances, more = math.log(2 * entries * 2**40), parties / self.honest
        if self.kind == "laplace":
            return math.ceil(2 * self.size * (chances + more * math.log(4 / 3)))
        return math.ceil(self.size * math.sqrt(2 * more * chances))


def modulus_bits(limit: int) -> int:
    """Return the bits of the least modulus in which sums of at most +-limit do not wrap.

    The limit H is the largest sum that honest nodes can send, plus :meth:`ShareNoise.tail`.
    ValueError if 64 bits do not hold it. Privacy does not need the room: wrapping is
    post-processing.
    """
    for bits in (32, 64):
        if fits(limit, bits):
            return bits
    raise ValueError(f"sums of up to {limit} need more than 64 bits: take a coarser grid")


def fits(limit: int, bits: int) -> bool:
    """Whether every sum in [-limit, limit] can be told from its value modulo 2^bits."""
    return limit < 1 << (bits - 1)
