"""A central mean around private medians: a bin for each coordinate, a radius, a clipped mean [1]_.

The error follows the users' own spread, not the range: it may be as wide as one likes.

References
----------
.. [1] Levy, Sun, Amin, Kale, Kulesza, Mohri & Suresh, "Learning with user-level privacy",
   NeurIPS 2021: the idea; constants, the radius and its law are own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_scale
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.central_means.bin_queries import (
    MOST_BINS,
    MOST_COUNTS,
    MeanBins,
    ask_radius,
    distances,
)
from fedhist.protocols.central_means.box_mean import some_users
from fedhist.protocols.central_means.protocol import CentralMeans, Steps
from fedhist.protocols.central_means.theory import Rows
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users
from server.central_means.medians import (
    BINS,
    IntervalPlan,
    draw_medians,
    few_counted,
    interval_radius,
    plan_interval,
    some_medians,
)
from server.central_means.radius import RadiusChoice

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

SCALES = 3.0
"""Radius of the clip, in public scales."""

FOLLOWED = 48
"""Centres that a prediction follows."""


@register_protocol
@dataclass(frozen=True, kw_only=True)
class IntervalMean(CentralMeans):
    """Average of the users' own means, clipped to a private interval that holds most of them.

    Parameters
    ----------
    epsilon, delta, n_users, low, high, dimension, box, adjacency, discrete
        As for ``box-mean``.
    scale : float, optional
        Public bound on the standard deviation of a user's mean, in each coordinate: medians are
        then found in bins of that width, and the clip is 3 scales, sqrt(d) times as much in d
        dimensions. There are 4,096 bins at most: the clip is larger by what they are wider. By
        default there are as many, and the radius of the clip is drawn privately.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record: exponential mechanisms for the medians, a draw
    of the radius (:class:`~server.central_means.radius.RadiusChoice`), and noise on the sum of
    clipped vectors, whose centre and radius are released numbers; by basic composition, or by zCDP
    in several dimensions where that leaves less noise. Scores of medians change by 1 at most with
    one user's record, under every adjacency.

    Error
    -----
    Below a floor of users, (4 / e) ln(100 d bins) with e the epsilon of a median, medians are drawn
    from anywhere and nothing would show it: the mean over the whole range is then released instead,
    if fewer are planned, or answer, by public numbers; under "add-remove-user" a noisy number below
    it warns. Users without a usable mean are among those planned, and no help. Predicted by the
    laws of medians and radius, with the users' own means; ``stderr`` holds the noise only.

    Examples
    --------
    >>> p = IntervalMean(epsilon=1.0, n_users=500, low=-100.0, high=100.0)
    >>> round(p.plan.floor), p.enough
    (345, True)
    """

    name: ClassVar[str] = "interval-mean"
    paper: ClassVar[str] = "the idea: Levy et al., NeurIPS 2021; constants and the radius are own"
    revision: ClassVar[int] = 4

    scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None:
            check_scale("scale", self.scale)

    @property
    def n_bins(self) -> int:
        """Bins of a coordinate's range."""
        low, high = self.edges
        if self.scale is None:
            return BINS
        return min(max(2, math.ceil((high - low) / self.scale)), MOST_BINS)

    @cached_property
    def plan(self) -> IntervalPlan:
        """Budgets of the steps, and the floor; from public numbers only."""
        return plan_interval(
            self.epsilon,
            self.delta,
            self.n_users,
            self.dimension,
            self.n_bins,
            Adjacency(self.adjacency),
            scale_known=self.scale is not None,
            discrete=self.discrete,
        )

    @property
    def choice(self) -> RadiusChoice:
        """Draw of the radius."""
        return interval_radius(self.half, self.n_bins, self.plan.radius_epsilon)

    @property
    def least_users(self) -> float:
        """Fewest users for medians, and for a radius."""
        return max(self.plan.floor, 0.0 if self.scale is not None else self.choice.least_users)

    @property
    def enough(self) -> bool:
        """Whether as many are planned, and there is room for the counts of all bins."""
        room = self.dimension * self.n_bins <= MOST_COUNTS
        return room and self.n_users >= self.least_users

    def _whole(self, n_users: int) -> bool:
        """Whether the mean over the whole range it is, if so many answer."""
        return not self.enough or (not self.hidden and n_users < self.least_users)

    @property
    def public_radius(self) -> float:
        """The clip where the scale is public; around the middle of a bin that may be wider."""
        low, high = self.edges
        scale = self.scale or 0.0
        reach = SCALES * scale + max((high - low) / self.n_bins - scale, 0.0)
        return min(reach * math.sqrt(self.dimension), self.half)

    @property
    def max_rounds(self) -> int:  # type: ignore[override]
        """Three, or two; one below the floor."""
        if not self.guarantee.private or not self.enough:
            return 1
        return 3 if self.scale is None else 2

    def steps(self, server: Curator) -> Script:
        """Find medians and a radius, then clip; or go over the whole range."""
        if not self.enough:
            return (yield from self.whole(server))
        bins = MeanBins(*self.edges, self.n_bins, self.dimension)
        summary = yield bins
        if self._whole(summary.n_users):  # nothing is spent yet
            return (yield from self.whole(server))
        at = draw_medians(server, summary.sums["counts"], self.plan.median_epsilon)
        centre, radius = bins.middles[at], self.public_radius
        if self.scale is None:
            radius = yield from ask_radius(server, centre, self.choice)
        steps = Steps(self, server, self.plan.noise, (1.0,))
        found = yield from steps.ask(self.clip_centre(centre, radius), radius)
        if isinstance(found, Estimate):
            return found
        value, std = found
        told = few_counted(steps.users, self.plan.floor)
        if self.scale is None:
            told += self.choice.told(radius, steps.users)
        return Estimate.ok(
            value,
            stderr=np.hypot(std, steps.along),
            public=steps.public | {"radius": radius},
            warnings=told + self.drowned(std),
        )

    def risk(self, seen: Seen) -> tuple[float, bool]:
        """Follow the laws of the medians and of the radius."""
        if self._whole(seen.n_users):
            return self.whole_risk(seen)
        rows = self.followed(seen)
        rng = np.random.default_rng(20)
        noise, total = self.plan.noise, 0.0
        for centre, chance in zip(*self._centres(rows, rng), strict=True):
            if self.scale is not None:
                total += chance * rows.risk(centre, self.public_radius, noise)
                continue
            law = self.choice.law(distances(rows.means - centre), rows.times)
            for j in np.flatnonzero(law > 1e-5):
                radius = float(self.choice.radii[j])
                risk = rows.risk(self.clip_centre(centre, radius), radius, noise)
                total += chance * law[j] * risk
        return total, False

    def _centres(self, rows: Rows, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw centres, (draws, d), from the law of the medians, and say what each stands for."""
        bins = MeanBins(*self.edges, self.n_bins, self.dimension)
        at = bins.place(rows.means).T
        counts = np.stack([np.bincount(column, minlength=self.n_bins) for column in at])
        drawn, law = some_medians(counts, self.plan.median_epsilon, FOLLOWED, rng, rows.times)
        return bins.middles[drawn], law

    @classmethod
    def example(cls) -> Self:
        """Build a small instance."""
        return cls(epsilon=40.0, n_users=120, low=-1.0, high=1.0, delta=0.0)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of two samples around .3."""
        return some_users(120, 1)
