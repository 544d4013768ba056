"""Votes of many bins by one symbol: which channel finds the bin that most users vote for.

The totals of the winning bin and of another one differ by a sum of one step a user: +1 where its
report is in the first one's set only, -1 where it is in the other's only. Users who vote for the
winner take these steps with probabilities a and b, and the lead after n of them is
z sqrt(n) of its standard deviations, z = (a - b) / sqrt(a + b - (a - b)^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import erfcx

from fedhist.channels.catalogue import UnaryChannel
from fedhist.channels.oracles import KrrOracle, ProjectiveOracle, SymbolOracle, spaces
from fedhist.channels.projective import ProjectiveSpace

MOST_BITS = 4096
BETTER = 1.1
"""So many times the decay of bits, a symbol is worth another kind of vote."""


@dataclass(frozen=True)
class Steps:
    """What one vote moves, between the bin that it is for and another one.

    Attributes
    ----------
    up, down : float
        a and b: the report is in the own set only, or in the other one's only.
    aside : float
        Of a vote for a third bin: the report is in one given set of two only.
    """

    up: float
    down: float
    aside: float

    @property
    def drift(self) -> float:
        """D = a - b."""
        return self.up - self.down

    @property
    def z(self) -> float:
        """D / sqrt(S - D^2), S = a + b."""
        spread = self.up + self.down - self.drift**2
        return self.drift / math.sqrt(spread) if spread > 0 else math.inf

    @property
    def decay(self) -> float:
        """-log(1 - (sqrt a - sqrt b)^2): by how much one more user lowers the log of a failure."""
        apart = (math.sqrt(self.up) - math.sqrt(self.down)) ** 2
        return -math.log1p(-apart) if apart < 1 else math.inf

    def log_failure(self, n_users: int) -> float:
        """Log of P(the other bin's total is at least the own one's) when all users vote alike.

        With the steps' law tilted so that it has no drift, Chernoff's bound exp(-n decay) times
        E exp(-tilt |sum|; sum <= 0), for a normal sum, with the correction for its being whole.
        """
        if self.down <= 0 or math.isinf(self.decay):
            return -n_users * self.decay
        tilt = math.log(self.up / self.down) / 2
        spread = 2 * n_users * math.sqrt(self.up * self.down) * math.exp(self.decay)
        reach = tilt * math.sqrt(spread)
        smooth = float(erfcx(reach / math.sqrt(2))) / 2
        whole = 1 / -math.expm1(-tilt) - 1 / tilt if tilt > 1e-6 else 0.5
        tail = smooth + whole / math.sqrt(2 * math.pi * spread)
        return math.log(min(tail, 1.0)) - n_users * self.decay


def steps(size: int, chosen: int, overlap: int, third: int, epsilon: float) -> Steps:
    """Return the steps of a symbol of ``size``, e^epsilon times likelier in a record's set.

    Parameters
    ----------
    size, chosen : int
        N and c: symbols, and members of every set.
    overlap, third : int
        Members that two and three sets have in common.
    epsilon : float
    """
    low = math.exp(-epsilon)
    one = 1 / (size * low + chosen * (1 - low))
    apart = chosen - overlap
    aside = (apart * low + (overlap - third) * (1 - low)) * one
    return Steps(apart * one, apart * low * one, aside)


def space_steps(space: ProjectiveSpace, epsilon: float) -> Steps:
    """Return the steps of the points of a space.

    Three points in general position: on a line they have more in common, which is rare.
    """
    third = space.points(space.t - 3) if space.t > 3 else 0
    return steps(space.size, space.chosen, space.overlap, third, epsilon)


@lru_cache(maxsize=1024)
def wide_steps(epsilon: float, n_bins: int) -> tuple[Steps, ProjectiveSpace | None]:
    """Find the steps of largest z, and the space behind them; None: k-ary randomized response.

    Raises
    ------
    ValueError
        If there are more than 2^22 bins.
    """
    best: tuple[Steps, ProjectiveSpace | None] = (steps(n_bins + 1, 1, 0, 0, epsilon), None)
    for space in spaces(n_bins + 1):
        found = space_steps(space, epsilon)
        if found.z > best[0].z:
            best = found, space
    return best


def is_wide(epsilon: float, n_bins: int) -> bool:
    """Say whether a vote of so many bins is one symbol rather than a bit for each.

    Bits are a little better at equal numbers of bins, and are taken for at most 4,096; where
    epsilon is large and bins are few, k-ary randomized response is better by far.
    """
    if n_bins > MOST_BITS:
        return True
    if math.isinf(epsilon) or n_bins < 2:
        return False
    tau = UnaryChannel(epsilon).tau
    decay = -math.log1p(-(tau**2)) if tau < 1 else math.inf
    return wide_steps(epsilon, n_bins)[0].decay > BETTER * decay


@lru_cache(maxsize=64)
def wide_channel(epsilon: float, n_bins: int) -> SymbolOracle:
    """Return the channel of largest z: projective geometry, or k-ary randomized response.

    Examples
    --------
    >>> channel = wide_channel(2.0, 999_999)
    >>> channel.space, round(wide_steps(2.0, 999_999)[0].z, 3)
    (ProjectiveSpace(q=3, t=14), 0.727)
    """
    space = wide_steps(epsilon, n_bins)[1]
    if space is None:
        return KrrOracle(epsilon, n_bins)
    return ProjectiveOracle(epsilon, n_bins, space)
