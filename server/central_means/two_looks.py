"""A mean in two looks, the second within a drawn radius of the first: shares and noise.

All from public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from fedhist.privacy.guarantee import Adjacency
from server.central_means.medians import RADIUS_USERS
from server.central_means.noise import SumNoise, sum_noise
from server.central_means.radius import RadiusChoice

FIRST_SHARES = 0.1, 0.35
"""Least and largest share of the first look."""

RADIUS_SHARES = 0.08, 0.2
"""Least and largest share of epsilon that the radius is drawn with."""

SEEN_USERS = 400.0
"""With so many units of epsilon in all users, one user in twenty is seen far away. Where the
largest share reaches that, the draw gets what an interval mean's does; else that were in vain."""

SPARE = 1.5
"""How many times the users that the draw needs there are, within its shares."""


@dataclass(frozen=True)
class TwoLooks:
    """What each step gets of a budget.

    Parameters
    ----------
    n_users, dimension : int
    half : float
        B: what a vector is never longer than.
    epsilon, delta : float
        Of all steps together.
    adjacency : Adjacency
    discrete : bool

    Privacy
    -------
    Basic composition of the draw, (radius_share epsilon)-DP, and of the two looks, which share the
    rest of epsilon and all of delta.
    """

    n_users: int
    dimension: int
    half: float
    epsilon: float
    delta: float
    adjacency: Adjacency
    discrete: bool = False

    def _noise(self, left: float, shares: tuple[float, ...]) -> SumNoise:
        return sum_noise(
            left * self.epsilon,
            self.delta,
            self.dimension,
            self.adjacency,
            shares=shares,
            discrete=self.discrete,
        )

    def error(self, noise: SumNoise, share: float) -> float:
        """Predict the root mean square l2 error of a look over the whole ball."""
        return math.sqrt(self.dimension) * self.half * noise.std(share) / self.n_users

    @cached_property
    def shares(self) -> tuple[float, float]:
        """Of the two looks: the first has less the smaller the noise is beside the ball."""
        noise, (low, high) = self._noise(1.0, (1.0,)), FIRST_SHARES
        u = self.error(noise, 1.0) / self.half
        wanted = 1.8 * math.sqrt(u) if noise.kind == "laplace" else 0.5 * u**0.25
        first = min(max(wanted, low), high)
        return first, 1 - first

    @cached_property
    def radius_share(self) -> float:
        """Share of epsilon for the draw of the radius: less with more users."""
        low, high = RADIUS_SHARES
        first = self.error(self._noise(1 - high, self.shares), self.shares[0])
        one = RadiusChoice(self.half, min(self.half, first / 2), 1.0)
        units = self.n_users * self.epsilon
        wanted = max(SPARE * one.least_users, RADIUS_USERS if high * units >= SEEN_USERS else 0.0)
        return min(max(wanted / units, low), high)

    @cached_property
    def noise(self) -> SumNoise:
        """Noise of both looks."""
        return self._noise(1 - self.radius_share, self.shares)

    @property
    def first_error(self) -> float:
        """Predicted root mean square l2 error of the first mean."""
        return self.error(self.noise, self.shares[0])

    @cached_property
    def choice(self) -> RadiusChoice:
        """Draw of the radius; half of the first mean's error at least."""
        least = min(self.half, self.first_error / 2)
        return RadiusChoice(self.half, least, self.radius_share * self.epsilon)

    @property
    def worthwhile(self) -> bool:
        """Whether a second look can help: the first mean is inside, and the radius can be drawn."""
        return self.n_users >= self.choice.least_users and self.first_error < self.half / 2

    def weight(self, radius: float) -> float:
        """Weight of the second look beside the first, by their inverse variances."""
        first, second = (self.noise.std(share) for share in self.shares)
        return 1 / (1 + (radius * second / (self.half * first)) ** 2)
