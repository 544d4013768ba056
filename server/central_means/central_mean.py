"""The mean of users' own means with a trusted server: find where they are, then look there.

References
----------
.. [1] Levy, Sun, Amin, Kale, Kulesza, Mohri & Suresh, "Learning with user-level privacy",
   NeurIPS 2021: medians first; constants, radii and their law are own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.central_means.queries import (
    COUNTED_STEPS,
    MOST_DIMENSIONS,
    STEPS,
    ClippedMeans,
    MeanBins,
    SummedMeans,
    means_of,
)
from clients.records.user_rows import shorten
from fedhist.base.arrays import Array, Floats
from fedhist.base.checks import check_choice, check_integer, check_range, check_scale
from fedhist.base.errors import warned
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.model.truths import SQUARED_L2, LowerBound
from fedhist.privacy.guarantee import ONE_COUNT, Adjacency, check_budget, zcdp_rho
from fedhist.users.batch import Users
from server.central_means.localizing import (
    BINS,
    Localizing,
    RadiusChoice,
    SumNoise,
    averaged,
    least_counted,
    least_radius,
    left_out,
    median_scores,
    settled,
    sum_noise,
)
from server.targets.lower_bounds import central_mean_bounds
from server.targets.mean_target import MeanTarget
from server.targets.sample_sizes import PlannedUsers, surely_fewer
from server.trust import Central, add_noise

if TYPE_CHECKING:
    from server.session.curator import Curator

MOST_RANGE = 2.0**340
"""Of high - low, and of a box: radii of later steps may be much smaller, and can be asked for."""


@dataclass(frozen=True)
class Look:
    """One release of a mean: its noise in each coordinate, and by whom it is divided."""

    mean: Floats
    std: float
    along: Floats
    users: float
    public: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class CentralMeans(MeanTarget, Central, PlannedUsers):
    """What the protocols of this family share; a subclass says in which steps it goes.

    The number of users is public under "replace-user" and "zero-out-user", and sums are divided by
    it. The number who have a usable record is released beside the sum of vectors under
    "add-remove-user", and under "replace-user", where it is free: sums are divided by that where it
    is surely less. Where it is not released, who has none counts as the middle of what a step clips
    to.
    """

    epsilon: float
    n_users: int
    low: float | None = None
    high: float | None = None
    dimension: int = 1
    box: float | None = None
    delta: float = 1e-6
    adjacency: str = Adjacency.REPLACE_USER.value
    discrete: bool = False

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_integer("n_users", self.n_users, 1 << 32)
        check_integer("dimension", self.dimension, MOST_DIMENSIONS)
        check_choice(
            "adjacency",
            self.adjacency,
            [a.value for a in Adjacency if a is not Adjacency.REPLACE_ITEM],
        )
        if self.box is not None:
            check_scale("box", self.box, MOST_RANGE)
        elif self.low is None or self.high is None:
            raise ValueError(f"give low and high, or box; got low = {self.low}, high = {self.high}")
        else:
            check_range(self.low, self.high)
            check_scale("high - low", self.high - self.low, MOST_RANGE)

    # -- public numbers

    @property
    def half(self) -> float:
        """B: no user's mean is farther from the middle, in l2; those that are get shortened."""
        if self.box is not None:
            return float(self.box)
        return math.sqrt(self.dimension) * (self.edges[1] - self.edges[0]) / 2

    @property
    def edges(self) -> tuple[float, float]:
        """Range of every coordinate."""
        if self.box is not None or self.low is None or self.high is None:
            return -float(self.box or 0.0), float(self.box or 0.0)
        return float(self.low), float(self.high)

    @property
    def middle(self) -> Floats:
        """The centre of the range, or the origin: (d,) float64."""
        return np.full(self.dimension, sum(self.edges) / 2)

    @property
    def hidden(self) -> bool:
        """Whether the number of users is to be hidden too."""
        return self.adjacency == Adjacency.ADD_REMOVE_USER.value

    @property
    def counted(self) -> int:
        """What a user's weight is worth beside its vector, in steps; 0: weights are not released.

        Under replacement a radius is free: two vectors lie up to 2 apart in l2, one and none
        sqrt(2), in l1 2 sqrt(d) and sqrt(d) + 1.
        """
        if self.hidden:
            return COUNTED_STEPS
        return STEPS if self.adjacency == Adjacency.REPLACE_USER.value and not self.trust else 0

    @property
    def empty_record(self) -> str:
        exact = not self.guarantee.private and self.trust is None
        return "" if exact or self.counted else "the middle of what is clipped to"

    @property
    def null_safe(self) -> bool:
        """Where n is hidden: an empty record has weight 0, and the divisor is a noisy weight."""
        return self.hidden

    def noise(self) -> SumNoise:
        """Noise of one release with the whole budget, or none."""
        if not self.guarantee.private:
            return replace(self._noise(math.inf), discrete=self.trust is not None)
        return self._noise(self.epsilon, self.delta)

    def _noise(self, epsilon: float, delta: float = 0.0, rho: float = 0.0) -> SumNoise:
        adjacency = Adjacency(self.adjacency)
        return sum_noise(epsilon, delta, self.dimension, adjacency, discrete=self.discrete, rho=rho)

    # -- the script

    @property
    def max_rounds(self) -> int:
        return 1

    def steps(self, server: Curator) -> Script:
        """Run the steps of the protocol, with noise: by default one."""
        return (yield from self.whole(server))

    def rounds(self, server: Curator) -> Script:
        if not self.guarantee.private:
            return (yield from self.whole(server))
        if server.grade == "secure" and not self.discrete:
            return Estimate.refused('noise = "secure" draws integers only: set discrete = true')
        return (yield from self.steps(server))

    @property
    def over_range(self) -> ClippedMeans:
        """The question for vectors over the whole range; under aggregate trust without n."""
        return (SummedMeans if self.trust is not None else ClippedMeans)(self.middle, self.half)

    def whole(self, server: Curator) -> Script:
        """Average over the whole range, in one release."""
        return self.released(server, (yield self.over_range))

    def released(self, server: Curator, summary: Summary) -> Estimate:
        """Release one sum over the range with the whole budget."""
        if not summary.n_users and not (self.hidden and self.guarantee.private):
            return nobody()
        look = self.look(server, self.over_range, summary, self.noise())
        return Estimate.ok(
            self.settle(look.mean, look.std),
            stderr=np.hypot(look.std, look.along),
            public=look.public | {"radius": self.half},
            warnings=self.drowned(look.std),
        )

    def look(
        self,
        server: Curator,
        query: ClippedMeans,
        summary: Summary,
        noise: SumNoise,
        share: float = 1.0,
    ) -> Look:
        """Release the mean of what was asked for, with a share of the noise's budget."""

        def release(total: Array) -> Array:
            size, name = noise.unit * STEPS, "clipped means"
            if noise.rho:
                rho = noise.rho * share
                return server.gaussian_zcdp(
                    total, l2_sensitivity=size, rho=rho, discrete=noise.discrete, label=name
                )
            epsilon, delta = noise.epsilon * share, noise.delta
            return add_noise(
                server, total, size, epsilon, delta, discrete=noise.discrete, label=name
            )

        n, points, std = summary.n_users, summary.sums["points"], noise.std(share)
        private = self.guarantee.private
        weight = int(summary.sums["weight"][0]) if self.trust is None else n * STEPS
        public, apart = {"n_users": float(n)}, 0.0  # how sure the divisor is
        if self.counted and private:
            both = release(np.append(points, weight * self.counted // STEPS))
            total, by, apart = both[:-1], float(both[-1]) / self.counted, std * STEPS / self.counted
            if self.hidden:
                by = max(by, 1.0)
                public = {"users, with noise": by}
            elif fewer := surely_fewer(by, n, apart):
                by = public["users with data, with noise"] = fewer
            else:
                by, apart = float(n), 0.0
        else:
            total = release(points)
            by = max(float(n) if private else weight / STEPS, 1.0)
        away = query.radius * (np.asarray(total, dtype=np.float64) / STEPS / by)
        each = std * query.radius / by
        # what is away is noise, too, and no longer than the radius
        square = np.clip(np.square(away) - each**2, 0.0, query.radius**2)
        along = np.sqrt(square) * (apart / by)
        return Look(query.centre + away, each, along, by, public)

    def settle(self, mean: Floats, std: float) -> Floats:
        """Return what a noisy mean is taken for: itself, or inside the range if n is noisy, too."""
        if not self.hidden or not self.guarantee.private:
            return mean
        return np.asarray(self.middle + shorten((mean - self.middle)[None], self.half)[0])

    def drowned(self, std: float) -> tuple[str, ...]:
        """Warn where noise of ``std`` in each coordinate is much of the range."""
        error = math.sqrt(self.dimension) * std
        if error <= self.half / 2:
            return ()
        return (
            warned(
                f"the noise, {error:.3g}, is more than half of the range's {self.half:.3g}",
                "the middle of the range is about as good an estimate",
                "more users, a larger epsilon or a narrower range lower it",
            ),
        )

    # -- evaluation

    def own_means(self, users: Users) -> Array:
        """Average each user's samples: (n, d); NaN without a finite mean. NOT PRIVATE."""
        return means_of(users, self.dimension)

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up what lower bounds and one release over the whole range take, too."""
        means = self.own_means(users)
        away = means[~np.isnan(means).any(axis=1)] - self.middle
        size = np.linalg.norm(away, axis=1)
        return {
            **super().sums(users),
            "inside": (self.half / np.maximum(size, self.half)) @ away,
            "squares": np.array([size @ size]),
        }

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the squared l2 error of any protocol on users as far apart. NOT PRIVATE."""
        if not facts["usable"][0]:
            return ()
        away = facts.truth - self.middle
        square = float(facts["squares"][0]) / int(facts["usable"][0]) - float(away @ away)
        apart = min(self.half, math.sqrt(max(square, 0.0)))
        n = max(facts.n_users, self.n_users)
        return tuple(central_mean_bounds(self.guarantee, n, apart, SQUARED_L2, 2))

    def resolution_of(self, facts: Facts) -> float:
        return self.dimension * (2 * self.half / STEPS) ** 2


def nobody() -> Estimate:
    """Return what comes of no answers."""
    return Estimate.failed("nobody answered", public={"n_users": 0.0})


def some_users(n: int, d: int) -> Users:
    """Make users of two samples in a tenth around .3."""
    rng = np.random.default_rng(11)
    values = 0.3 + 0.1 * rng.uniform(-1, 1, (2 * n, d)) / math.sqrt(d)
    return Users.from_samples(np.arange(n, dtype=np.uint64), np.arange(n + 1) * 2, values)


@register_protocol
@dataclass(frozen=True, kw_only=True)
class CentralMean(CentralMeans):
    """Average of the users' own means, clipped around where most of them are.

    Parameters
    ----------
    epsilon, delta, n_users, low, high, dimension, box, adjacency, discrete
        As for ``box-mean``.
    radius : float, optional
        Public: typical l2 distance of a user's own mean from the common mean. Steps clip to 1.2
        times that and the centre's own error, and nothing states what clipping takes from users
        farther away. By default radii are drawn from the users' distances.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. The first step releases a centre: the mean over
    the range, or by an exponential mechanism the bin of the median. An exponential mechanism draws
    a radius (:class:`~server.central_means.localizing.RadiusChoice`). The next step clips to the
    radius around the centre and releases a new mean; more steps repeat that. A user moves a sum by
    at most the radius (if d = 1 half the interval), twice that under "replace-user", and a median's
    score by 1. With Laplace noise the shares of epsilon add up, with Gaussian noise those of
    rho(epsilon, delta), where a draw costs e^2 / 8. Shares are fixed by public numbers.

    Error
    -----
    About sqrt(d) 2 r z / n in l2: r is the last radius, z the last step's noise multiplier. Steps
    are averaged by inverse variance, shrunk by James and Stein's rule and clipped to the range.
    Where clipping would not halve the error, there is one step over the whole range. ``stderr``
    covers the noise and usually the clipping of users near the radius. Users far away may go
    unseen: "unseen" says how far they would move the mean, and the estimate carries a warning where
    that is more than ``stderr``.

    Examples
    --------
    >>> budget = {"epsilon": 1.0, "low": -1.0, "high": 1.0}
    >>> [CentralMean(n_users=n, **budget).max_rounds for n in (50, 300, 1000)]
    [1, 4, 4]
    """

    name: ClassVar[str] = "central-mean"
    paper: ClassVar[str] = "own: a clip around medians (Levy et al., NeurIPS 2021) or first means"
    revision: ClassVar[int] = 9

    radius: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius is not None:
            check_scale("radius", self.radius)

    # -- the plan

    @property
    def error_over_range(self) -> float:
        """Root mean square l2 error of one look over the range, in half of it."""
        return self._error(self.noise().std())

    def _error(self, std: float) -> float:
        return math.sqrt(self.dimension) * std / self.n_users

    @cached_property
    def plan(self) -> Localizing | None:
        """The steps; None: one step over the range, where that is about as good.

        Three steps where Gaussian noise is less, as in many dimensions; else a median in one
        dimension where there are users enough, and two steps where there are not.
        """
        if not self.guarantee.private:
            return None
        three, two = self._gaussian(), self._laplace((0.25, 0.75))
        plans = list[Localizing]()
        if three is not None and three.noise.std(0.55) < self._laplace((0.55,)).noise.std(0.55):
            plans.append(three)
        elif self.dimension == 1 and self._median_epsilon * self.n_users >= least_counted():
            plans.append(self._laplace((1.0,), self._median_epsilon))
        return next((p for p in [*plans, two] if self._worthwhile(p)), None)

    @property
    def _median_epsilon(self) -> float:
        """Twice what a median needs, or a part of epsilon."""
        return min(2 * least_counted() / self.n_users, 0.15 * self.epsilon)

    def _laplace(self, shares: tuple[float, ...], median: float = 0.0) -> Localizing:
        """Share epsilon by basic composition: an eighth for a radius, and of few users more."""
        wanted = min(max(75 / self.n_users, 0.12 * self.epsilon), 0.4 * self.epsilon)
        draws = (wanted,) if self.radius is None else ()
        return Localizing(median, draws, self._noise(self.epsilon - median - sum(draws)), shares)

    def _gaussian(self) -> Localizing | None:
        """Share rho(epsilon, delta) by zCDP: a draw of e, of bounded range, costs e^2 / 8."""
        if not self.delta:
            return None
        rho, shares = (
            zcdp_rho(self.epsilon, self.delta),
            (0.08, 0.05) if self.radius is None else (),
        )
        noise = self._noise(self.epsilon, self.delta, (1 - sum(shares)) * rho)
        draws = tuple(math.sqrt(8 * share * rho) for share in shares)
        return Localizing(0.0, draws, noise, (0.3, 0.15, 0.55))

    def _worthwhile(self, plan: Localizing) -> bool:
        """Whether steps can be twice as good as one look over the whole range."""
        least = 0.0 if plan.median_epsilon else self._error(plan.noise.std(plan.shares[0]))
        if plan.radius_epsilons:
            least = max(least, least_radius(self.n_users, plan.radius_epsilons[0]))
        return self._error(plan.noise.std(plan.shares[-1])) * least <= self.error_over_range / 2

    def planned_error(self, apart: float) -> float:
        """Predict the l2 error where users' means lie ``apart`` from the common one, all alike."""
        plan, size, std = self.plan, self.half, math.inf
        if plan is None:
            error = self.error_over_range * self.half
        else:
            error, shares = self.half / BINS, list(plan.shares)
            if not plan.median_epsilon:
                std = size * plan.noise.std(shares.pop(0)) / self.n_users
                error = math.sqrt(self.dimension) * std
            for share, epsilon in zip(shares, plan.radius_epsilons, strict=True):
                least = size * least_radius(self.n_users, epsilon)
                size = min(size, max(1.5 * math.hypot(apart, error), least))
                _, std = averaged(std, size * plan.noise.std(share) / self.n_users)
                error = math.sqrt(self.dimension) * std
        return error / math.hypot(1, error / self.half)

    # -- the script

    @property
    def max_rounds(self) -> int:
        """The looks, the median, a question for every radius, and one if fewer answer."""
        if self.plan is None:
            return 1
        first = 1 if self.plan.median_epsilon else 0
        return first + len(self.plan.shares) + len(self.plan.radius_epsilons) + (not self.hidden)

    @property
    def first(self) -> MeanBins | ClippedMeans:
        """The first question."""
        if self.plan is None or not self.plan.median_epsilon:
            return self.over_range
        return MeanBins(self.middle, self.half, BINS, signed=True)

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
            return planned.released(server, summary)
        return (yield from planned.localized(server, planned.plan, summary))

    def around(self, centre: Floats, radius: float) -> ClippedMeans:
        """Ask for vectors around a centre; in one dimension inside the range: noise is less."""
        if self.dimension > 1:
            return ClippedMeans(centre, radius)
        low, high = np.clip((centre[0] - radius, centre[0] + radius), *self.edges)
        return ClippedMeans(np.array([(low + high) / 2]), float(high - low) / 2)

    def localized(self, server: Curator, plan: Localizing, summary: Summary) -> Script:
        """Go on from the answers to the first question."""
        d, clip, shares = self.dimension, self.over_range, list(plan.shares)
        mean, std, along, epsilons = self.middle, math.inf, np.zeros(d), list(plan.radius_epsilons)
        if plan.median_epsilon:
            at = server.exponential(
                median_scores(summary.sums["counts"]),
                sensitivity=1.0,
                epsilon=plan.median_epsilon,
                label="median",
                moves=ONE_COUNT,
            )
            error = least = self.half / BINS
            centre = self.middle + self.half * ((2 * at + 1) / BINS - 1)
        else:
            look = self.look(server, clip, summary, plan.noise, shares.pop(0))
            mean, std, along = look.mean, look.std, look.along
            centre, error = self.settle(mean, std), math.sqrt(d) * std
            least = error / 2
        drawn, largest = list[tuple[RadiusChoice, float]](), clip.radius
        if d == 1:
            largest += float(np.abs(centre - self.middle)[0])
        while shares:
            if self.radius is None:
                epsilon = epsilons.pop(0)
                smallest = max(least, largest * least_radius(self.n_users, epsilon))
                choice = RadiusChoice(largest, min(smallest, largest), epsilon)
                asked = yield MeanBins(centre, largest, len(choice.radii))
                radius = choice.draw(server, asked.sums["counts"])
                drawn += [(choice, radius)] * (radius < largest)
            else:  # who is a fifth farther away than is typical is not clipped
                radius = math.hypot(1.2 * self.radius, error)
            if radius < largest:
                clip, largest = self.around(centre, radius), radius
            look = self.look(server, clip, (yield clip), plan.noise, shares.pop(0))
            weight, std = averaged(std, look.std)
            mean = weight * look.mean + (1 - weight) * mean
            along = np.hypot(weight * look.along, (1 - weight) * along)
            centre, error = self.settle(mean, std), math.sqrt(d) * std
            least = error / 2
        away, hidden, share = left_out(drawn, look.users)
        stderr, told = np.hypot(np.hypot(std, along), away / math.sqrt(d)), list[str]()
        if hidden > float(np.linalg.norm(stderr)):
            what = f"up to {share:.2g} of the users may lie far away unseen"
            means = f"if so many do, the mean is off by up to {hidden:.3g} beyond its stated error"
            remedy = "more users, a larger epsilon or a narrower range lower it"
            told.append(warned(what, means, f"box-mean sees all; {remedy}"))
        if plan.median_epsilon * look.users < least_counted() * (plan.median_epsilon > 0):
            least = math.ceil(least_counted() / plan.median_epsilon)
            what = f"a median was drawn among some {look.users:.0f} users, fewer than the {least}"
            means = "it may lie anywhere in the range, which no stated error has"
            remedy = "more users or a larger epsilon make it safe"
            told.append(warned(f"{what} that it needs", means, f"box-mean needs none; {remedy}"))
        return Estimate.ok(
            centre,
            stderr=stderr,
            public=look.public | {"radius": clip.radius, "unseen": hidden},
            warnings=(*told, *self.drowned(std)),
        )

    def settle(self, mean: Floats, std: float) -> Floats:
        """Return what a noisy mean is taken for."""
        return self.middle + settled(mean - self.middle, std, self.half)

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=8.0, n_users=120, low=-1.0, high=1.0, delta=0.0)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of two samples around .3."""
        return some_users(120, 1)
