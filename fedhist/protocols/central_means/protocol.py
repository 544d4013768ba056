"""What the central means share: range, budget, noise, and one release of a clipped sum."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedhist.base.arrays import Array, Floats
from fedhist.base.checks import check_choice, check_integer, check_range, check_scale
from fedhist.base.text import warned
from fedhist.model.error_bounds import ErrorBound, LowerBound
from fedhist.model.losses import SQUARED_L2
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.privacy.guarantee import Adjacency, check_budget
from fedhist.protocols.central_means.queries import (
    MOST_DIMENSIONS,
    ClippedMeans,
    SummedMeans,
    means_of,
)
from fedhist.protocols.central_means.theory import Rows, release_risk, shortened
from fedhist.protocols.shared.central import Central
from fedhist.protocols.shared.central_bounds import central_mean_bounds
from fedhist.protocols.shared.mean_target import MeanTarget
from fedhist.protocols.shared.sample_sizes import PlannedUsers
from fedhist.protocols.shared.seen import Seen, rows_at_most
from fedhist.users.batch import Users
from server.central_means.noise import (
    ADJACENCIES,
    COUNTED,
    COUNTED_STEPS,
    STEPS,
    SumNoise,
    paid_steps,
    sum_noise,
)
from server.central_means.settling import Look, Settling, settled

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

MOST_RANGE = 2.0**340
"""Of high - low, and of a box: radii of later steps may be much smaller, and can be asked for."""

WITHOUT = 0.1
"""Share of users without a usable record from which on a prediction of several steps is a bound.

They count as the centre, which later steps see as users who are there.
"""


@dataclass(frozen=True, kw_only=True)
class CentralMeans(MeanTarget, Central, PlannedUsers):
    """What the protocols of this family share; a subclass says in which steps it goes.

    The number of users is public under "replace-user" and "zero-out-user": sums are divided by it,
    and a user without a usable record counts as the range's middle, or the centre of a later step.
    Under "add-remove-user" the sum of the weights is released beside that of the vectors.
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

    max_rounds: ClassVar[int] = 1
    divisor: ClassVar[str] = "users, with noise"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_integer("n_users", self.n_users, 1 << 32)
        check_integer("dimension", self.dimension, MOST_DIMENSIONS)
        check_choice("adjacency", self.adjacency, ADJACENCIES)
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
    def null_safe(self) -> bool:
        """Where n is hidden: an empty record has weight 0, and the divisor is a noisy weight."""
        return self.hidden

    @property
    def counted(self) -> bool:
        """Whether sums are divided by a noisy sum of weights."""
        return self.hidden

    def clip_centre(self, centre: Floats, radius: float) -> Floats:
        """Return what a clip goes around: ``centre``, or the middle if it goes over the range."""
        return self.middle if radius >= self.half else centre

    def settled(self, mean: Floats, std: float) -> Floats:
        """Return what a noisy mean over the range is taken for: (..., d)."""
        if not std:
            return mean
        return self.middle + settled(mean - self.middle, std, self.half)

    def noise(self, shares: Sequence[float] = (1.0,), *, left: float = 1.0) -> SumNoise:
        """Noise of the steps that share what is left of epsilon, and all of delta."""
        return sum_noise(
            left * self.epsilon,
            self.delta,
            self.dimension,
            Adjacency(self.adjacency),
            shares=shares,
            discrete=self.discrete,
        )

    def box_error(self, noise: SumNoise | None = None, share: float = 1.0) -> float:
        """Predict the root mean square l2 error of one release over the whole range."""
        std = (noise or self.noise()).std(share)
        return math.sqrt(self.dimension) * self.half * std / self.n_users

    # -- the script

    @abstractmethod
    def steps(self, server: Curator) -> Script:
        """Run the steps of the protocol, with noise."""

    def rounds(self, server: Curator) -> Script:
        """Without noise average exactly; otherwise go by steps."""
        if not self.guarantee.private:
            return (yield from self.whole(server))
        if server.grade == "secure" and not self.discrete:
            return Estimate.refused('noise = "secure" draws integers only: set discrete = true')
        return (yield from self.steps(server))

    def whole(self, server: Curator) -> Script:
        """Average over the whole range, in one release."""
        if not self.guarantee.private:
            shared, adjacency = self.trust is not None, Adjacency(self.adjacency)
            noise = sum_noise(math.inf, 0.0, self.dimension, adjacency, discrete=shared)
        else:
            noise = self.noise()
        steps = Steps(self, server, noise, (1.0,))
        found = yield from steps.ask(self.middle, self.half)
        if isinstance(found, Estimate):
            return found
        value, std = found
        return Estimate.ok(
            self.settled(value, std),
            stderr=np.hypot(std, steps.along),
            public=steps.public | {"radius": self.half},
            warnings=self.drowned(std),
        )

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

    @property
    def most_rows(self) -> int:
        """As many as there is room for."""
        return rows_at_most(self.dimension)

    def rows(self, users: Users) -> Mapping[str, Array]:
        """Return the users' own means."""
        return {"means": self.own_means(users)}

    def followed(self, seen: Seen) -> Rows:
        """Hold what predictions follow the steps with. NOT PRIVATE."""
        means = seen.rows["means"]
        usable = means[~np.isnan(means).any(axis=1)]
        return Rows(usable, seen.n_users, self.hidden, seen.times)

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up what one release over the whole range takes, too."""
        means = self.own_means(users)
        away = means[~np.isnan(means).any(axis=1)] - self.middle
        return {**super().sums(users), "inside": shortened(away, self.half).sum(axis=0)}

    @abstractmethod
    def risk(self, seen: Seen) -> tuple[float, bool]:
        """Predict the mean squared l2 error from the users' own means, and say if it is exact."""

    def whole_risk(self, seen: Seen) -> tuple[float, bool]:
        """Predict that of one release over the whole range."""
        usable = int(seen["usable"][0])
        if not usable:
            return 0.0, not self.hidden
        weighed = self.hidden or not (self.guarantee.private or self.trust is not None)
        n = usable if weighed else seen.n_users
        truth = seen.truth - self.middle
        inside = seen["inside"] / n
        if not self.guarantee.private:
            return release_risk(inside, truth, self.half, 0.0), not self.hidden
        noise = self.noise()
        each = noise.std() / n
        settling = Settling(noise.kind, self.dimension, self.half)
        if self.hidden:
            look = Look(np.zeros(self.dimension), inside, self.half, each, least=1 / n)
            return settling.look_error(look, truth), False
        plain = release_risk(inside, truth, self.half, each)
        risk = settling.error(inside, truth, self.half * each, self.half * each, plain)
        return risk, risk == plain

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the mean squared l2 error from the users' own means. NOT PRIVATE."""
        found = self.risk if self.guarantee.private else self.whole_risk
        expected, exact = found(seen)
        source = "the noise and what the clip takes away, on the mechanisms' own law"
        without = seen.n_users - float(seen["usable"][0])
        if not exact and self.max_rounds > 1 and without > WITHOUT * seen.n_users:
            source += "; a bound for users who all have samples, unlike these"
        return ErrorBound(SQUARED_L2, expected, exact, source)

    def lower_bounds_of(self, seen: Seen) -> tuple[LowerBound, ...]:
        """Bound the squared l2 error of any protocol on users as far apart. NOT PRIVATE."""
        if not seen["usable"][0]:
            return ()

        def apart_of(users: Users) -> Mapping[str, Array]:
            away = self.own_means(users) - seen.truth
            return {"square": np.array([np.nansum(np.square(away))])}

        square = float(seen.again(apart_of)["square"][0]) / int(seen["usable"][0])
        apart = min(self.half, math.sqrt(square))
        n, d = max(seen.n_users, self.n_users), self.dimension
        return tuple(central_mean_bounds(self.guarantee, n, d, apart, SQUARED_L2, 2))

    def resolution_of(self, seen: Seen) -> float:
        """Return the square of a step in each coordinate."""
        return self.dimension * (2 * self.half / STEPS) ** 2


class Steps:
    """The releases of clipped means of one script, which share a budget.

    Attributes
    ----------
    public : dict
    users : float
        Who answered the last question: their number, or a noisy one; a sum of weights.
    along : (d,) float64
        Standard error that noise on that number makes of the last mean, along what lies between it
        and the centre; 0 where the number is public.
    """

    def __init__(
        self, protocol: CentralMeans, server: Curator, noise: SumNoise, shares: Sequence[float]
    ) -> None:
        self._protocol, self._server, self._noise = protocol, server, noise
        self._shares = list(shares)
        self._made = 0
        self.public: dict[str, float] = {}
        self.users = 0.0
        self.along = np.zeros(protocol.dimension)

    @cached_property
    def _release(self) -> Any:
        return paid_steps(self._server, self._noise, self._shares, "clipped means")

    def ask(
        self, centre: Floats, radius: float
    ) -> Generator[Query, Summary, tuple[Floats, float] | Estimate]:
        """Ask for vectors around a centre and release their mean.

        Returns
        -------
        mean : (d,) float64
        std : float
            Of its noise in each coordinate.
        """
        shared = self._protocol.trust is not None
        return (yield from self.ask_for((SummedMeans if shared else ClippedMeans)(centre, radius)))

    def ask_for(
        self, query: ClippedMeans
    ) -> Generator[Query, Summary, tuple[Floats, float] | Estimate]:
        """Ask a query of vectors, weighted ones too, and release their mean as :meth:`ask` does."""
        summary = yield query
        p, n = self._protocol, summary.n_users
        if not n and not (p.hidden and p.guarantee.private):
            return Estimate.failed("nobody answered", public={"n_users": 0.0})
        std = self._noise.std(self._shares[self._made])
        self._made += 1
        points = summary.sums["points"]
        weight = n * STEPS if p.trust is not None else int(summary.sums["weight"][0])
        if not p.counted or not p.guarantee.private:
            total = self._release(points)
            by = float(n) if p.guarantee.private else max(weight / STEPS, 1.0)
            self.public["n_users"] = float(n)
        else:
            counted = np.append(points, weight * COUNTED_STEPS // STEPS)
            *total, seen = self._release(counted)
            by = max(float(seen) / COUNTED_STEPS, 1.0)
            self.public[p.divisor] = by
        away = query.radius * (np.asarray(total, dtype=np.float64) / STEPS / by)
        self.users, each = by, std * query.radius / by
        if p.counted:  # what is away is noise, too, and no longer than the radius
            square = np.clip(np.square(away) - each**2, 0.0, query.radius**2)
            self.along = np.sqrt(square) * (std / COUNTED / by)
        return query.centre + away, each
