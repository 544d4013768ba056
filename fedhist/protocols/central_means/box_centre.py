"""A central mean in two looks: over the whole range, then around what the first has found.

The second look clips users to a radius around the first mean, so that its noise is that of the
radius and not of the range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_scale
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.results import Goal, ResultsRow, within
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.central_means.bin_queries import ask_radius, distances
from fedhist.protocols.central_means.box_mean import BoxMean, some_users
from fedhist.protocols.central_means.protocol import CentralMeans, Steps
from fedhist.protocols.central_means.theory import Rows, Settling, drawn_noise, release_risk
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users
from server.central_means.noise import COUNTED, SumNoise
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

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. Two Gaussian releases, with shares of the whole
    1 / std^2 that add up to 1, compose to exactly one (Dong, Roth & Su, JRSS B 2022, Corollary
    3.3); Laplace noise shares epsilon so where that is less. The sums move by their radius, or by
    twice that under "replace-user"; the second centre and radius are released numbers. The draw of
    the radius: :class:`~server.central_means.radius.RadiusChoice`.

    Error
    -----
    Predicted by following the steps with the users' own means in place of messages, for 48 first
    means. Where the users fill the range both looks are averaged by inverse variance. The first
    centre, and the average, are settled as ``box-mean`` settles its estimate.

    Examples
    --------
    >>> p = BoxCentre(epsilon=1.0, n_users=600, dimension=40, box=10.0, radius=0.5)
    >>> round(p.first_error, 2), round(p.second_radius, 2)
    (1.78, 1.88)
    """

    name: ClassVar[str] = "box-centre"
    paper: ClassVar[str] = "own: two Gaussian means, the second one around the first"
    revision: ClassVar[int] = 2
    goals: ClassVar[tuple[Goal, ...]] = (Goal(1e-4, words="one mean in [-1, 1]"),)
    starter: ClassVar[str] = BoxMean.starter.replace("box-mean", "box-centre").replace(
        "over the whole of a public range", "over the range and then around what was found"
    )

    radius: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius is not None:
            check_scale("radius", self.radius)

    @property
    def max_rounds(self) -> int:  # type: ignore[override]
        """Two, and one for the radius."""
        return 2 if self.radius is not None else 3

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
        )

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the two looks."""
        return self.looks.shares if self.radius is None else (FIRST, 1 - FIRST)

    @cached_property
    def step_noise(self) -> SumNoise:
        """Noise of both looks."""
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
        """Look twice."""
        steps = Steps(self, server, self.step_noise, self.shares)
        found = yield from steps.ask(self.middle, self.half)
        if isinstance(found, Estimate):
            return found
        first, first_std = found
        centre = self.settled(first, first_std)
        radius = self.second_radius
        told: tuple[str, ...] = ()
        if self.radius is None:
            radius = yield from ask_radius(server, centre, self.looks.choice)
            told = self.looks.choice.told(radius, self.n_users)
        found = yield from steps.ask(self.clip_centre(centre, radius), radius)
        if isinstance(found, Estimate):
            return found
        second, std = found
        weight, std = averaged(first_std, std)
        return Estimate.ok(
            self.settled(weight * second + (1 - weight) * first, std),
            stderr=np.full(self.dimension, std),
            public=steps.public | {"radius": radius},
            warnings=told,
        )

    def risk(self, seen: Seen) -> tuple[float, bool]:
        """Follow the steps."""
        rows = self.followed(seen)
        if not len(rows.means):
            return 0.0, False
        rng = np.random.default_rng(20)
        noise, n = self.step_noise, rows.divisor
        settling = Settling(noise.kind, self.dimension, self.half)
        inside = rows.clipped(self.middle, self.half)
        std = self.half * noise.std(self.shares[0]) / n
        total = 0.0
        for _ in range(FOLLOWED):
            first = inside + std * drawn_noise(rng, noise.kind, self.dimension)
            if self.hidden:  # both sums are divided by a noisy number of users
                seen_users = 1 + std / (self.half * COUNTED) * drawn_noise(rng, noise.kind, 1)
                first = self.middle + (first - self.middle) / np.maximum(seen_users, 1 / n)
            if self.radius is not None:
                total += self._second(rows, settling, first, std, self.second_radius)
                continue
            away = rows.means - self.settled(first, std)
            law = self.looks.choice.law(distances(away), rows.times)
            for j in np.flatnonzero(law > 1e-4):
                radius = float(self.looks.choice.radii[j])
                total += law[j] * self._second(rows, settling, first, std, radius)
        return total / FOLLOWED, False

    def _second(
        self, rows: Rows, settling: Settling, first: Floats, first_std: float, radius: float
    ) -> float:
        """Predict the error after a first mean and a radius."""
        each = self.step_noise.std(self.shares[1]) / rows.divisor
        weight, std = averaged(first_std, radius * each)
        around = self.clip_centre(self.settled(first, first_std), radius)
        clipped = rows.clipped(around, radius)
        mean = weight * clipped + (1 - weight) * first
        noisy = release_risk(clipped - around, clipped - around, radius, each, hidden=self.hidden)
        change = settling.change(
            mean - self.middle, rows.truth - self.middle, weight * radius * each, std
        )
        return float(np.square(mean - rows.truth).sum()) + weight**2 * noisy + change

    @classmethod
    def results(cls) -> Sequence[ResultsRow]:
        """Hold the prediction against runs."""
        people = {"kind": "gaussian", "n_users": 600, "samples_per_user": 50, "dimension": 40}
        people |= {"mean": 0.5, "spread": 3.46, "low": -20.0, "high": 20.0}
        given = {"epsilon": 1.0, "dimension": 40, "box": 10.0}
        far = 3.46 * math.sqrt(40 / 50)
        one: dict[str, Any] = {"kind": "gaussian", "n_users": 400, "samples_per_user": 20}
        line = {"epsilon": 1.0, "low": -20.0, "high": 20.0, "delta": 0.0}
        wide = {"low": -20.0, "high": 20.0, "mean": 3.0, "spread": 0.5}
        return (
            ResultsRow(
                "n=600 d=40 m=50 box 10, l2 at most 0.423",
                given | {"radius": far},
                people,
                100,
                (0.7, 1.15),
                expected=0.423**2,
            ),
            ResultsRow("n=600 d=40 m=50 box 10, radius drawn", given, people, 100, within(0.15)),
            ResultsRow("n=400 eps=1 Laplace", line, one | wide, 800, within(0.15)),
            ResultsRow(
                "EDGE n=400 eps=1 users fill the range",
                line | {"low": 2.0, "high": 4.0},
                one | wide | {"spread": 4.0},
                800,
                within(0.15),
            ),
        )

    @classmethod
    def example(cls) -> Self:
        """Build a small instance in three dimensions."""
        return cls(epsilon=4.0, n_users=120, low=-1.0, high=1.0, dimension=3, radius=0.1)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of two samples around (.3, .3, .3)."""
        return some_users(120, 3)
