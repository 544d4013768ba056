"""A central mean in two looks: over the whole range, then around what the first has found.

The second look clips users to a radius around the first mean, so that its noise is that of the
radius and not of the range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from fedhist.base.checks import check_scale
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.central_means.bin_queries import ask_radius, distances
from fedhist.protocols.central_means.box_mean import some_users
from fedhist.protocols.central_means.protocol import CentralMeans, Steps
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users
from server.central_means.noise import SumNoise
from server.central_means.radius import RadiusChoice
from server.central_means.settling import Settling, spread_noise
from server.central_means.two_looks import TwoLooks, averaged

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

FIRST = 0.25
"""Share of the first look, where a public radius says how far the second one reaches."""

FOLLOWED = 48
"""First means that a prediction follows."""


@register_protocol
@dataclass(frozen=True, kw_only=True)
class BoxCentre(CentralMeans):
    """Average of the users' own means: a noisy mean over the range, then one around it.

    Parameters
    ----------
    epsilon, delta, n_users, low, high, dimension, box, adjacency, discrete
        As for ``box-mean``.
    radius : float, optional
        Public: typical l2 distance of a user's own mean from the common mean. The second look then
        clips to 1.2 times that and the first mean's own error. By default the radius is drawn from
        the users' distances by the exponential mechanism, with .08 to .2 of epsilon.
    n_looks : int
        2, or 3: a second look finds a centre for a third one, whose radius is drawn with .03 to .1
        of epsilon, down to the second one's error. Users who are much closer to each other than the
        first mean's error are seen as close as they are.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. Gaussian releases, with shares of the whole
    1 / std^2 that add up to 1, compose to exactly one (Dong, Roth & Su, JRSS B 2022, Corollary
    3.3); Laplace noise shares epsilon so where that is less, and three looks with their draws share
    zCDP where that leaves less noise. The sums move by their radius, or by twice that under
    "replace-user"; later centres and radii are released numbers. Shares and draws:
    :class:`~server.central_means.two_looks.TwoLooks`.

    Error
    -----
    Predicted by following the steps with the users' own means in place of messages, for 48 first
    means. All looks are averaged by inverse variance, which matters where the users fill the range.
    Later centres, and the average, are settled as ``box-mean`` settles its estimate; under
    "add-remove-user" every look is the ratio of two noisy sums, and followed as such. Where fewer
    answer than are planned, and that is public, a public radius holds the first error that they
    have, and one that so few would draw from anywhere is not drawn. ``stderr`` holds the noise
    only: not those whom a radius leaves out, nor users without a usable mean, who count as the
    centre.

    Examples
    --------
    >>> p = BoxCentre(epsilon=1.0, n_users=600, dimension=40, box=10.0, radius=0.5)
    >>> round(p.first_error, 2), round(p.second_radius, 2)
    (1.78, 1.88)
    """

    name: ClassVar[str] = "box-centre"
    paper: ClassVar[str] = "own: two Gaussian means, the second one around the first"
    revision: ClassVar[int] = 4

    radius: float | None = None
    n_looks: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_looks not in (2, 3):
            raise ValueError(f"n_looks must be 2 or 3, got {self.n_looks}")
        if self.radius is not None:
            check_scale("radius", self.radius)
            if self.n_looks == 3:
                raise ValueError("a public radius is that of the second look: set n_looks = 2")

    @property
    def max_rounds(self) -> int:  # type: ignore[override]
        """The looks, and one for every radius."""
        return 2 if self.radius is not None else 2 * self.n_looks - 1

    @cached_property
    def looks(self) -> TwoLooks:
        """Budgets where the radius is drawn; from public numbers only."""
        return TwoLooks(
            self.n_users,
            self.dimension,
            self.half,
            self.epsilon,
            self.delta,
            Adjacency(self.adjacency),
            discrete=self.discrete,
            near=0.0 if self.n_looks == 3 else None,
        )

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the looks."""
        return self.looks.shares if self.radius is None else (FIRST, 1 - FIRST)

    @cached_property
    def step_noise(self) -> SumNoise:
        """Noise of all looks."""
        return self.looks.noise if self.radius is None else self.noise(self.shares)

    @property
    def first_error(self) -> float:
        """Predicted root mean square l2 error of the first mean."""
        return self.box_error(self.step_noise, self.shares[0])

    @property
    def second_radius(self) -> float:
        """Radius of the second look, where the users' distances are public; B at most."""
        return min(math.hypot(1.2 * (self.radius or 0.0), self.first_error), self.half)

    @property
    def worthwhile(self) -> bool:
        """Whether a second look can help: the first mean is inside, and the radius can be drawn."""
        return self.looks.worthwhile if self.radius is None else self.first_error < self.half / 2

    def steps(self, server: Curator) -> Script:
        """Look two or three times."""
        steps = Steps(self, server, self.step_noise, self.shares)
        mean, std = self.middle, math.inf
        centre, radius = self.middle, self.half
        along, told = np.zeros(self.dimension), tuple[str, ...]()
        for j in range(len(self.shares)):
            if j:
                around, drawn = self.settled(mean, std), self._known_radius(radius, steps.users)
                choice = self._choice(j, radius, std, steps.users)
                if choice is not None:
                    drawn = yield from ask_radius(server, around, choice)
                    told = told or choice.told(drawn, steps.users)
                if drawn < radius:
                    centre, radius = around, drawn
            found = yield from steps.ask(centre, radius)
            if isinstance(found, Estimate):
                return found
            weight, std = averaged(std, found[1])
            mean = weight * found[0] + (1 - weight) * mean
            along = np.hypot(weight * steps.along, (1 - weight) * along)
        return Estimate.ok(
            self.settled(mean, std),
            stderr=np.hypot(std, along),
            public=steps.public | {"radius": radius},
            warnings=told + self.drowned(std),
        )

    def _fewer(self, n_users: float) -> bool:
        """Whether fewer answered than are planned, where that is public."""
        return not self.hidden and n_users < self.n_users

    def _known_radius(self, radius: float, n_users: float) -> float:
        """Radius of a look after one within ``radius``, where none is drawn."""
        if self.radius is None:
            return radius
        seen = replace(self, n_users=int(n_users)) if self._fewer(n_users) else self
        return seen.second_radius

    def _choice(self, j: int, radius: float, std: float, n_users: float) -> RadiusChoice | None:
        """Draw of the radius of look ``j``, after one within ``radius``, if so many answered.

        None where there is none, or fewer than are planned would draw anything.
        """
        if self.radius is not None:
            return None
        choice = self.looks.choice if j == 1 else self.looks.next_choice(radius, std)
        return None if self._fewer(n_users) and n_users < choice.least_users else choice

    def risk(self, seen: Seen) -> tuple[float, bool]:
        """Follow the steps."""
        rows = self.followed(seen)
        if not len(rows.means):
            return 0.0, False
        rng, kind = np.random.default_rng(20), self.step_noise.kind
        settling = Settling(kind, self.dimension, self.half)
        stds = [self.step_noise.std(share) for share in self.shares]
        d, total = self.dimension, 0.0
        for noise in spread_noise(rng, kind, (FOLLOWED, (len(stds) - 1) * (d + 1))):
            each = noise.reshape(-1, d + 1)
            centre, radius = self.middle, self.half
            mean, std = rows.look(centre, radius, stds[0]).drawn(each[0])
            for j in range(1, len(stds)):
                around = self.settled(mean, std)
                radii, law = np.array([self._known_radius(radius, rows.n_users)]), np.ones(1)
                choice = self._choice(j, radius, std, rows.n_users)
                if choice is not None:
                    away = distances(rows.means - around)
                    radii, law = choice.radii, choice.law(away, rows.times)
                if j == len(stds) - 1:
                    break
                drawn = float(rng.choice(radii, p=law))
                centre, radius = (around, drawn) if drawn < radius else (centre, radius)
                mean, std = rows.look(centre, radius, stds[j], (mean, std)).drawn(each[j])
            for i in np.flatnonzero(law > 1e-4):
                last = (around, float(radii[i])) if radii[i] < radius else (centre, radius)
                look = rows.look(*last, stds[-1], (mean, std))
                total += law[i] * settling.look_error(look, rows.truth, self.middle)
        return total / FOLLOWED, False

    @classmethod
    def example(cls) -> Self:
        """Build a small instance in three dimensions."""
        return cls(epsilon=4.0, n_users=120, low=-1.0, high=1.0, dimension=3, radius=0.1)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of two samples around (.3, .3, .3)."""
        return some_users(120, 3)
