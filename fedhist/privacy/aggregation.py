"""Aggregation: how many nodes a sum is made of, and how many of them may drop out or collude.

Under aggregate trust the nodes add the noise, each a share of it; the server learns one sum. The
shares are sized so that those of the honest nodes which are certain to be in the sum are the whole
noise: the others' are on top of it, and whoever colludes with the server may subtract its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from fedhist.base.arrays import PlainArguments
from fedhist.base.checks import check_integer, check_within

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
