"""What the central means share: range, budget, noise, and the release of a clipped sum."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from clients.records.user_rows import shorten
from fedhist.base.arrays import Array, Floats
from fedhist.base.checks import check_choice, check_integer, check_range, check_scale
from fedhist.base.text import warned
from fedhist.model.evaluation import Facts
from fedhist.model.losses import SQUARED_L2
from fedhist.model.prediction import LowerBound
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import Adjacency, check_budget
from fedhist.protocols.central_means.queries import (
    MOST_DIMENSIONS,
    ClippedMeans,
    SummedMeans,
    means_of,
)
from fedhist.protocols.shared.central import Central
from fedhist.protocols.shared.central_bounds import central_mean_bounds
from fedhist.protocols.shared.mean_target import MeanTarget
from fedhist.protocols.shared.sample_sizes import PlannedUsers
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

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

MOST_RANGE = 2.0**340
"""Of high - low, and of a box: radii of later steps may be much smaller, and can be asked for."""


@dataclass(frozen=True, kw_only=True)
class CentralMeans(MeanTarget, Central, PlannedUsers):
    """What the protocols of this family share; a subclass says in which steps it goes.

    The number of users is public under "replace-user" and "zero-out-user": sums are divided by it,
    and a user without a usable record counts as the range's middle, or the centre of a later step.
    Under "add-remove-user" the number of users who count is released beside the sum of vectors.
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

    def noise(self) -> SumNoise:
        """Noise of one release with the whole budget, or none."""
        adjacency = Adjacency(self.adjacency)
        if not self.guarantee.private:
            shared = self.trust is not None
            return sum_noise(math.inf, 0.0, self.dimension, adjacency, discrete=shared)
        return sum_noise(
            self.epsilon, self.delta, self.dimension, adjacency, discrete=self.discrete
        )

    # -- the script

    @property
    def max_rounds(self) -> int:
        """One."""
        return 1

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

    @property
    def over_range(self) -> ClippedMeans:
        """The question for vectors over the whole range."""
        return self.vectors(self.middle, self.half)

    def vectors(self, centre: Floats, radius: float) -> ClippedMeans:
        """Return the question for vectors around a centre; under aggregate trust without n."""
        return (SummedMeans if self.trust is not None else ClippedMeans)(centre, radius)

    def whole(self, server: Curator) -> Script:
        """Average over the whole range, in one release."""
        query = self.over_range
        return self.released(server, query, (yield query))

    def released(self, server: Curator, query: ClippedMeans, summary: Summary) -> Estimate:
        """Release one sum with the whole budget."""
        if not summary.n_users and not (self.hidden and self.guarantee.private):
            return nobody()
        look = Looks(self, server, self.noise(), (1.0,))
        value, std = look.release(query, summary)
        return Estimate.ok(
            self.settle(value, std),
            stderr=np.hypot(std, look.along),
            public=look.public | {"radius": self.half},
            warnings=self.drowned(std),
        )

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
        """Return the square of a step in each coordinate."""
        return self.dimension * (2 * self.half / STEPS) ** 2


def nobody() -> Estimate:
    """Return what comes of no answers."""
    return Estimate.failed("nobody answered", public={"n_users": 0.0})


class Looks:
    """The releases of clipped means of one script, which share a budget.

    Attributes
    ----------
    public : dict
    users : float
        Who answered the last question: their number, or a noisy one.
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

    def release(self, query: ClippedMeans, summary: Summary) -> tuple[Floats, float]:
        """Release the mean of the vectors that were asked for.

        Returns
        -------
        mean : (d,) float64
        std : float
            Of its noise in each coordinate.
        """
        p, n = self._protocol, summary.n_users
        std = self._noise.std(self._shares[self._made])
        self._made += 1
        private, points = p.guarantee.private, summary.sums["points"]
        weight = int(summary.sums["weight"][0]) if p.trust is None else n * STEPS
        if p.hidden and private:
            counted = np.append(points, weight * COUNTED_STEPS // STEPS)
            *total, number = self._release(counted)
            by = max(float(number) / COUNTED_STEPS, 1.0)
            self.public["users, with noise"] = by
        else:
            total = self._release(points)
            by = max(float(n) if private else weight / STEPS, 1.0)
            self.public["n_users"] = float(n)
        away = query.radius * (np.asarray(total, dtype=np.float64) / STEPS / by)
        self.users, each = by, std * query.radius / by
        if p.hidden and private:  # what is away is noise, too, and no longer than the radius
            square = np.clip(np.square(away) - each**2, 0.0, query.radius**2)
            self.along = np.sqrt(square) * (std / COUNTED / by)
        return query.centre + away, each
