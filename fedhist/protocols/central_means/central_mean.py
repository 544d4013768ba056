"""The mean of users' own means with a trusted server: find where they are, then look there.

References
----------
.. [1] Levy, Sun, Amin, Kale, Kulesza, Mohri & Suresh, "Learning with user-level privacy",
   NeurIPS 2021: medians first; constants, radii and their law are own.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_scale
from fedhist.base.text import warned
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.central_means.box_mean import some_users
from fedhist.protocols.central_means.protocol import CentralMeans, Looks, nobody
from fedhist.protocols.central_means.queries import AwayBins, ClippedMeans, MeanBins
from fedhist.users.batch import Users
from server.central_means.localizing import (
    BINS,
    FAR,
    Localizing,
    Public,
    RadiusChoice,
    averaged,
    draw_medians,
    settled,
)

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

HIDDEN = 0.05
"""A share of far users that a release tells of, where it would not see them."""

WIDER = 1.2
"""A clip around a public radius holds users who are so many times as far away."""


@register_protocol
@dataclass(frozen=True, kw_only=True)
class CentralMean(CentralMeans):
    """Average of the users' own means, clipped around where most of them are.

    Parameters
    ----------
    epsilon, delta, n_users, low, high, dimension, box, adjacency, discrete
        As for ``box-mean``.
    radius : float, optional
        Public: typical l2 distance of a user's own mean from the common mean. Looks clip to 1.2
        times that and the centre's own error, and nothing states what users who are farther away
        make of it. By default radii are drawn from the users' distances.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. A first look releases the mean over the range, or
    an exponential mechanism the bin of each coordinate's median; a radius is drawn
    (:class:`~server.central_means.localizing.RadiusChoice`); a look clips to it around the centre;
    and once more, from three looks on. Sums move by their radius, or twice that under
    "replace-user"; scores of medians by 1; centres and radii are released numbers. With Laplace
    noise epsilon is shared by basic composition. With Gaussian noise rho(epsilon, delta) is: draws
    have bounded range, so that one of e costs e^2 / 8. All shares are fixed beforehand, by public
    numbers, and charged whatever is drawn
    (:class:`~server.central_means.localizing.Public`).

    Error
    -----
    sqrt(d) 2 r z / n with r the last radius, z the noise multiplier of the last look; l2. All looks
    are averaged by inverse variance, and means are settled: shrunk by the rule of James and Stein,
    and into the range. ``stderr`` holds the noise, what the clip takes from users near the radius
    as a rule, and far users where a tenth of all could go unseen. Fewer than that may: a warning
    tells from a twentieth on. Where the radius would have to be so large that looks are not twice
    as good as one over the whole range, it is that one. Where fewer answer than are planned, and
    that is public, steps are planned anew for them.

    Examples
    --------
    >>> budget = {"epsilon": 1.0, "low": -1.0, "high": 1.0}
    >>> [CentralMean(n_users=n, **budget).max_rounds for n in (50, 300, 1000)]
    [1, 4, 4]
    """

    name: ClassVar[str] = "central-mean"
    paper: ClassVar[str] = "own: a clip around medians (Levy et al., NeurIPS 2021) or first means"
    revision: ClassVar[int] = 7

    radius: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius is not None:
            check_scale("radius", self.radius)

    @cached_property
    def public(self) -> Public:
        """What steps are planned by."""
        return Public(
            self.epsilon,
            self.delta,
            self.n_users,
            self.dimension,
            Adjacency(self.adjacency),
            self.discrete,
            self.radius is None,
        )

    @cached_property
    def plan(self) -> Localizing | None:
        """The steps; None: one look over the range."""
        return self.public.plan() if self.guarantee.private else None

    @property
    def max_rounds(self) -> int:
        """The looks, the medians, a question for every radius, and one if fewer answer."""
        if self.plan is None:
            return 1
        first = 1 if self.plan.median_epsilon else 0
        return first + len(self.plan.shares) + len(self.plan.radius_epsilons) + (not self.hidden)

    @property
    def bins(self) -> MeanBins:
        """The question for medians."""
        return MeanBins(*self.edges, BINS, self.dimension)

    @property
    def first(self) -> MeanBins | ClippedMeans:
        """The first question."""
        medians = self.plan is not None and self.plan.median_epsilon > 0
        return self.bins if medians else self.over_range

    def steps(self, server: Curator) -> Script:
        """Ask the first question; plan anew for those who answer it: nothing is spent yet."""
        query: Query = self.first
        summary = yield query
        planned, n = self, summary.n_users
        if not self.hidden and n < self.n_users:
            if not n:
                return nobody()
            planned = replace(self, n_users=n)
            if type(planned.first) is not type(query):
                query = planned.first
                summary = yield query
        if planned.plan is None:
            return planned.released(server, planned.over_range, summary)
        return (yield from planned.localized(server, planned.plan, summary))

    def localized(self, server: Curator, plan: Localizing, summary: Summary) -> Script:
        """Go on from the answers to the first question."""
        looks = Looks(self, server, plan.noise, plan.shares)
        draws, clipped = iter(plan.radius_epsilons), list[tuple[RadiusChoice, float]]()
        d, clip, left = self.dimension, self.over_range, len(plan.shares)
        mean, std, along = self.middle, math.inf, np.zeros(d)
        if plan.median_epsilon:
            at = draw_medians(server, summary.sums["counts"], plan.median_epsilon)
            around, error = self.bins.middles[at], math.sqrt(d) * self.bins.width / 2
            least = error
        else:
            mean, std = looks.release(clip, summary)
            around, error, along = self.settle(mean, std), math.sqrt(d) * std, looks.along
            left, least = left - 1, error / 2
        for _ in range(left):
            if self.radius is None:
                epsilon = next(draws)
                smallest = max(least, clip.radius * self.public.least_radius(epsilon))
                choice = RadiusChoice(clip.radius, min(smallest, clip.radius), epsilon)
                radius = yield from ask_radius(server, around, choice)
                clipped += [(choice, radius)] * (radius < clip.radius)
            else:
                radius = math.hypot(WIDER * self.radius, error)
            if radius < clip.radius:
                clip = self.vectors(around, radius)
            value, each = looks.release(clip, (yield clip))
            weight, std = averaged(std, each)
            mean = weight * value + (1 - weight) * mean
            along = np.hypot(weight * looks.along, (1 - weight) * along)
            around, error = self.settle(mean, std), math.sqrt(d) * std
            least = error / 2
        away, told = left_out(clipped, looks.users)
        return Estimate.ok(
            around,
            stderr=np.hypot(np.hypot(std, along), away / math.sqrt(d)),
            public=looks.public | {"radius": clip.radius},
            warnings=told + self._few_counted(plan, looks.users) + self.drowned(std),
        )

    def settle(self, mean: Floats, std: float) -> Floats:
        """Return what a noisy mean is taken for."""
        return self.middle + settled(mean - self.middle, std, self.half)

    def _few_counted(self, plan: Localizing, n_users: float) -> tuple[str, ...]:
        """Warn where a released number of users is less than medians need."""
        if n_users >= plan.least_users(self.dimension):
            return ()
        return (
            warned(
                f"medians were drawn among some {n_users:.0f} users, fewer than the "
                f"{math.ceil(plan.least_users(self.dimension))} that they need",
                "they may lie anywhere in the range, and the mean with them, which no stated error "
                "has",
                "box-mean needs no medians; more users or a larger epsilon make them safe",
            ),
        )

    @classmethod
    def example(cls) -> Self:
        """Build a small instance."""
        return cls(epsilon=8.0, n_users=120, low=-1.0, high=1.0, delta=0.0)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of two samples around .3."""
        return some_users(120, 1)


def ask_radius(
    server: Curator, centre: Floats, choice: RadiusChoice
) -> Generator[Query, Summary, float]:
    """Ask how far users are from a centre, and release a radius."""
    summary = yield AwayBins(centre, choice.radii)
    return float(choice.radii[choice.draw(server, summary.sums["counts"][0])])


def left_out(
    drawn: list[tuple[RadiusChoice, float]], n_users: float
) -> tuple[float, tuple[str, ...]]:
    """Bound what clips to drawn radii move the mean by, as a rule, in l2; tell what may be more.

    Users near the last radius, and users far away where a tenth of all could go unseen.
    """
    n, far, told = max(n_users, 1.0), 0.0, tuple[str, ...]()
    if not drawn:
        return 0.0, ()
    for choice, radius in drawn:
        share = min(choice.unseen(radius) / n, 1.0)
        off = share * (choice.largest - radius)
        if share > FAR:
            far = max(far, off)
        elif share > HIDDEN:
            told = (
                warned(
                    f"users far away, up to {share:.0%} of them, may go unseen with this many of "
                    "them and this epsilon",
                    f"if there are any, the mean is off by up to {off:.3g}, which no stated error "
                    "has",
                    "box-mean sees all; more users, a larger epsilon or a narrower range lower it",
                ),
            )
    choice, radius = drawn[-1]
    return math.hypot(choice.clipped(radius) / n, far), told
