"""How far most users are from a centre: a private radius for a clip; all from public numbers.

Few users outside a small radius are worth more than nobody outside a large one. The exponential
mechanism weighs both: a radius r has the weight r^-5, times exp(-epsilon) for every user beyond it,
the first 3 / epsilon of them being free.

What it cannot see: k users at the distance D from the others, who are within r, are left out as a
rule where epsilon k < 5 ln(D / r) + 3, and the mean is then off by k D / n. No mechanism sees them
all. One that adds at most a share x to the noise of radius r, where nobody is far away, draws D
with a probability of at most x (r / D)^2 there, hence of exp(epsilon k) times that with k far
users: it misses them where epsilon k < 2 ln(D / r) + ln(1 / x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.base.text import warned
from fedhist.privacy.adjacency import ONE_COUNT

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

DECAY = 5.0
"""A radius twice as large has 1 / 32 of the weight: all those larger than the smallest one that
holds everybody raise the mean square of the noise by 27 %."""

FREE = 3.0
"""Users beyond the radius that cost nothing, times epsilon."""

HIDDEN = 0.05
"""A share of far users that a release tells of, where it would not see them."""

SPARE = 5.0
"""By how much, in logarithms, the weight of a radius without users shall fall short."""


@dataclass(frozen=True)
class RadiusChoice:
    """The exponential mechanism over radii around a centre.

    Parameters
    ----------
    largest : float
        B: what no clip is needed for.
    smallest : float
        What a clip is never smaller than; radii are B 2^(-j/2) down to it.
    epsilon : float

    Privacy
    -------
    epsilon-DP under every adjacency, and epsilon-bounded-range. The score of a radius is minus the
    number of users beyond it, less 3 / epsilon, where that is positive. One user's record, added,
    removed, emptied or replaced, changes these numbers by at most 1, and all of them in one
    direction: who is beyond a radius is beyond the smaller ones. Weights exp(epsilon score) then
    change by factors in [1, e^epsilon] or all in [e^-epsilon, 1], and so does their sum; a factor
    of 2 less than scores need that move both ways. Weights that do not depend on data are free.
    """

    largest: float
    smallest: float
    epsilon: float

    @property
    def radii(self) -> Floats:
        """The radii in increasing order, the last one B: (K,) float64."""
        n = max(0, math.floor(2 * math.log2(max(self.largest / self.smallest, 1.0))))
        return np.asarray(self.largest * 2.0 ** (-np.arange(n, -1, -1) / 2))

    @property
    def free(self) -> float:
        """Users beyond the radius that cost nothing."""
        return FREE / self.epsilon

    @property
    def least_users(self) -> float:
        """Users with whom a radius that holds nobody weighs next to nothing."""
        decay = DECAY * math.log(self.radii[-1] / self.radii[0])
        return self.free + (decay + SPARE) / self.epsilon

    def counts(self, distance: Floats) -> Integers:
        """Count users between one radius and the next, the last one all beyond too: (K,)."""
        at = np.minimum(np.searchsorted(self.radii, distance), len(self.radii) - 1)
        return np.bincount(at, minlength=len(self.radii))

    def scores(self, inside: Integers) -> Floats:
        """Score the radii, (K,), from the counts of users between one radius and the next.

        Minus the users beyond, less the free ones, and what the public weights add.
        """
        beyond = inside.sum() - np.cumsum(inside)
        public = -DECAY / self.epsilon * np.log(self.radii / self.radii[0])
        return np.asarray(public - np.maximum(beyond - self.free, 0.0))

    def draw(self, server: Curator, inside: Integers) -> int:
        """Release a radius: its position."""
        # half the range of the changes, which have one sign: weights are exp(epsilon score)
        return server.exponential(
            self.scores(inside),
            sensitivity=0.5,
            epsilon=self.epsilon,
            label="radius",
            moves=ONE_COUNT,
        )

    def unseen(self, radius: float) -> float:
        """How many users at the largest radius a draw of this one leaves out, as a rule."""
        return (DECAY * math.log(self.largest / radius) + FREE) / self.epsilon

    def told(self, radius: float, n_users: float) -> tuple[str, ...]:
        """Say what cannot be known, where so few users leave more than one in twenty unseen."""
        share = self.unseen(radius) / max(n_users, 1)
        if radius >= self.largest or share < HIDDEN:
            return ()
        off = min(share, 1.0) * (self.largest - radius)
        return (
            warned(
                f"users far away, up to {min(share, 1.0):.0%} of them, would not be seen with this "
                "many users and this epsilon",
                f"if there are any, the mean is off by up to {off:.3g}, which no stated error has",
                "box-mean sees all; more users, a larger epsilon or a narrower range lower it",
            ),
        )

    def law(self, distance: Floats, times: float = 1.0) -> Floats:
        """Return the probability of every radius for users at such distances. NOT PRIVATE.

        Each distance is that of so many ``times`` users.
        """
        beyond = len(distance) - np.searchsorted(np.sort(distance), self.radii, side="right")
        beyond[-1] = 0
        log = -DECAY * np.log(self.radii / self.radii[0])
        log = log - self.epsilon * np.maximum(beyond * times - self.free, 0.0)
        weight = np.exp(log - log.max())
        return np.asarray(weight / weight.sum())
