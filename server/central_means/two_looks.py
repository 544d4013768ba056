"""A mean in two looks, the second within a drawn radius of the first, or in three.

Shares and noise, all from public numbers. Where the first mean's error is much larger than what
users are said to differ by, the second look finds a centre for a third. Its radius is drawn, too,
down to what is said and no further: users who differ more are seen again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Adjacency, zcdp_rho
from server.central_means.medians import RADIUS_SHARES, RADIUS_USERS
from server.central_means.noise import SumNoise, sum_noise
from server.central_means.radius import RadiusChoice

Real = TypeVar("Real", float, Floats)

FIRST_SHARES = 0.1, 0.35
"""Least and largest share of the first look."""

SEEN_USERS = 400.0
"""With so many units of epsilon in all users, one user in twenty is seen far away. Where the
largest share reaches that, the draw gets what an interval mean's does; else that were in vain."""

NEAR_USERS, NEAR_SHARES = 150.0, (0.03, 0.1)
"""Units of epsilon in all users together that a third look's radius is drawn with, within shares of
epsilon: those whom it would miss are at most a few first errors away, not the whole range."""

SECOND = 0.2
"""Share of what the first look leaves that the second one gets, where there is a third."""

AROUND = 2.5
"""How many standard deviations of a distance, 1 / sqrt(2 d) of itself, a radius holds."""

MISSED = 4.0
"""A drawn radius that is larger by this factor than users are said to need is kept to the end."""

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
    near : float, optional
        Public: how far users' vectors typically are from their mean; 0 where nothing is known.
        Where given there are three looks; it matters for the error only.

    Privacy
    -------
    Basic composition of the draws, (radius_share epsilon)-DP and (near_share epsilon)-DP, and of
    the looks, which share the rest of epsilon and all of delta. With three looks by zCDP, where
    that leaves less noise: the draws have bounded range, so that they cost (share epsilon)^2 / 8 of
    rho(epsilon, delta), and Gaussian looks share the rest. All shares are fixed beforehand: the
    second draw is made and charged whatever the first one was.
    """

    n_users: int
    dimension: int
    half: float
    epsilon: float
    delta: float
    adjacency: Adjacency
    discrete: bool = False
    near: float | None = None

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
    def shares(self) -> tuple[float, ...]:
        """Of the looks: the first has less the smaller the noise is beside the ball."""
        noise, (low, high) = self._noise(1.0, (1.0,)), FIRST_SHARES
        u = self.error(noise, 1.0) / self.half
        wanted = 1.8 * math.sqrt(u) if noise.kind == "laplace" else 0.5 * u**0.25
        first = min(max(wanted, low), high)
        if self.near is None:
            return first, 1 - first
        return first, SECOND * (1 - first), (1 - SECOND) * (1 - first)

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
    def near_share(self) -> float:
        """Share of epsilon for the draw of a third look's radius."""
        if self.near is None:
            return 0.0
        low, high = NEAR_SHARES
        return min(max(NEAR_USERS / (self.n_users * self.epsilon), low), high)

    @cached_property
    def noise(self) -> SumNoise:
        """Noise of all looks."""
        drawn = self.radius_share, self.near_share
        basic = self._noise(1 - sum(drawn), self.shares)
        if self.near is None or not self.delta:
            return basic
        rho = zcdp_rho(self.epsilon, self.delta)
        rho -= sum((share * self.epsilon) ** 2 for share in drawn) / 8
        if rho <= 0:
            return basic
        shared = sum_noise(
            self.epsilon, self.delta, self.dimension, self.adjacency,
            shares=self.shares, discrete=self.discrete, rho=rho,
        )  # fmt: skip
        return min(basic, shared, key=lambda noise: noise.std(self.shares[-1]))

    @property
    def first_error(self) -> float:
        """Predicted root mean square l2 error of the first mean."""
        return self.error(self.noise, self.shares[0])

    @cached_property
    def choice(self) -> RadiusChoice:
        """Draw of the radius; half of the first mean's error at least."""
        least = min(self.half, self.first_error / 2)
        return RadiusChoice(self.half, least, self.radius_share * self.epsilon)

    def reach(self, error: float) -> float:
        """Radius that holds users who differ as is said, around a mean with such an error."""
        wide = 1 + AROUND / math.sqrt(2 * self.dimension)
        return min(wide * math.hypot(self.near or 0.0, error), self.half)

    def next_choice(self, radius: float, std: float) -> RadiusChoice:
        """Draw of the last of three radii: from the second one down to what is said to do.

        ``std`` is the noise on each coordinate of the mean found so far. A second radius that tells
        that users differ much more is the only one there is.
        """
        low = min(self.reach(math.sqrt(self.dimension) * std), radius)
        if radius > MISSED * self.reach(self.first_error):
            low = radius
        steps = math.ceil(2 * math.log2(radius / low))  # from below: the least is what matters
        most = low * 2.0 ** (steps / 2)
        return RadiusChoice(most, low * (1 - 1e-9), self.near_share * self.epsilon)

    @property
    def worthwhile(self) -> bool:
        """Whether more looks can help: the first mean is inside, and radii can be drawn."""
        least = self.choice.least_users
        if self.near is not None:
            found = 0.0 if self.near else self.second_error / math.sqrt(self.dimension)
            last = self.next_choice(self.reach(self.first_error), found)
            least = max(least, last.least_users)
        return self.n_users >= least and self.first_error < self.half / 2

    @property
    def second_error(self) -> float:
        """Predict the root mean square l2 error of a second look, if users differ as is said."""
        return self.error(self.noise, self.shares[1]) * self.reach(self.first_error) / self.half

    @property
    def last_radius(self) -> float:
        """Predict the last of three radii, where users differ as is said."""
        return self.reach(self.second_error)


def averaged(std: float, each: Real) -> tuple[Real, Real]:
    """Weight of a new mean beside those before, by inverse variances, and their common deviation.

    One new mean, or many.

    >>> averaged(math.inf, 2.0), averaged(3.0, 3.0)[0]
    ((1.0, 2.0), 0.5)
    """
    weight = 1 / (1 + (each / std) ** 2)
    return weight, weight**0.5 * each
