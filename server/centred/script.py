"""Centred reports: the script that estimates the mean of users' vectors in one to four stages.

The users of the first stage report their vector, those of every later one what is left of it after
the estimate so far, inside a ball whose radius other users have voted for in between; or their
vector again, where that radius is no shorter than the whole ball's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from clients.centred.queries import RadiusVotes, RankReports
from clients.localize.queries import ClippedMean
from clients.records.functionals import Scalar
from fedhist.base.arrays import Floats
from fedhist.base.errors import warned
from fedhist.base.hashing import digest64
from fedhist.channels.scalar import scalar_channel
from fedhist.model.part import VectorPart
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from server.centred.stages import (
    CLIP_MASS,
    RADIUS_ROOM,
    CentredPlan,
    Learned,
    learned_radius,
    radius_edges,
)
from server.localize.choice import keep_inside

Project = Callable[[Floats], Floats]
Method = Literal["centred", "folds", "auto"]
"""How whole vectors are asked for, where a protocol has a choice."""


@dataclass(frozen=True)
class Opening:
    """Another first report than that of the vector: of one item, say.

    ``ask`` returns an epsilon-LDP query, ``read`` an unbiased estimate of the vectors' mean, of the
    total variance ``plan.first_v`` / n.
    """

    ask: Callable[[Cohort | None], Query]
    read: Callable[[Summary], Floats]


@dataclass(frozen=True)
class VectorEstimate:
    """What the stages estimate."""

    value: Floats
    variance: float
    clipping: float
    radius: float
    n_report: int
    public: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def stderr(self) -> float:
        """Standard error of a coordinate, on average over all directions, clipping included."""
        return math.sqrt(self.error / len(self.value))

    @property
    def error(self) -> float:
        """Expected squared l2 error: variance and clipping."""
        return self.variance + self.clipping

    def estimate(self, value: Floats, keys: Keys | None = None) -> Estimate:
        """State what was made of this value, in as many or more coordinates."""
        return Estimate.ok(
            value,
            stderr=np.full(len(value), math.sqrt(self.error / len(value))),
            keys=keys,
            public=self.public | {"clipping": self.clipping},
            warnings=self.warnings,
        )


def centred_mean(
    part: VectorPart,
    plan: CentredPlan,
    *,
    epsilon: float,
    salt: int,
    lo: float = 0.0,
    project: Project = np.asarray,
    clip_mass: float = CLIP_MASS,
    opening: Opening | None = None,
    kind: str = "auto",
) -> Generator[Query, Summary, VectorEstimate | Estimate]:
    """Ask the users whose hash under ``salt`` lies in [lo, 1), stage by stage.

    ``project`` maps an estimate to the nearest vector that a mean can be, before the next stage. At
    most ``clip_mass`` of the users may lie outside the radius of a stage. ``opening`` is what the
    users of the first stage report in place of their vector.

    Privacy
    -------
    epsilon-LDP, sequentially interactive: stages and votes are disjoint intervals of one salted
    hash of the public id, so that each user answers one epsilon-LDP query; its centre and radius
    depend on other users' messages only, and the plan on public numbers.
    """
    whole = lo == 0.0 and plan.n_stages == 1
    cohorts = [None if whole else Cohort(salt, *ends) for ends in plan.intervals(lo)]
    points = digest64("fedhist.centred", salt) >> 1

    def asked(
        centre: Floats, radius: float, cohort: Cohort | None
    ) -> tuple[Query, Callable[[Summary], Floats]]:
        """Ask for what is left of vectors around a centre; say how the answers are read."""
        if not isinstance(part, Scalar):
            query = RankReports(part, centre, radius, float(epsilon), cohort, points)
            return query, query.estimate
        scalar, kind_in_use = part.functional, scalar_channel(kind, float(epsilon)).kind
        inside = keep_inside(centre + part.middle, radius, scalar.low, scalar.high)
        clipped = ClippedMean(scalar, inside, radius, float(epsilon), kind_in_use, cohort, points)
        return clipped, lambda reports: clipped.estimates(reports, clip=False) - part.middle

    value = middle = np.zeros(part.n_coordinates)
    precision, learned, n_report, share = 0.0, Learned(plan.radius), 0, 1.0
    before, spread = math.inf, 0.0
    for stage in range(plan.n_stages):
        if precision:
            value = project(value)
        if stage > 0:
            edges = radius_edges(learned.radius, plan.radius, plan.sigma)
            vote = RadiusVotes(part, value, edges[1:], float(epsilon), cohorts[2 * stage - 1])
            votes = yield vote
            if votes.n_users:
                learned = learned_radius(
                    *vote.shares(votes),
                    edges,
                    learned.radius,
                    precision=precision,
                    reports=votes.n_users / plan.vote_share * plan.left(stage) / plan.v,
                    dimension=part.n_coordinates,
                    clip_mass=clip_mass,
                    open_radius=plan.open_radius,
                )
                if stage == 1 and opening is None and learned.usable < 1:
                    # who has no vector reported the middle
                    value = project(value / learned.usable)
                    spread /= learned.usable**2
                    spread += float(value @ value) * learned.usable_error**2
                    precision = 1 / spread if spread else precision
            before = 1 / precision if precision else math.inf
        cohort, opens = cohorts[2 * stage], plan.opens(stage, learned.radius)
        if opens and opening is not None:
            reports = yield opening.ask(cohort)
            n, variance, kept = reports.n_users, plan.first_v, 0.0
            told = opening.read(reports) if n else value
        else:  # around the middle the ball holds everybody; around the estimate it may not
            centre, radius = (middle, plan.radius) if opens else (value, learned.radius)
            query, read = asked(centre, radius, cohort)
            reports = yield query
            n, variance = reports.n_users, plan.v * (radius / learned.usable) ** 2
            kept = 0.0 if opens else learned.kept + learned.usable_error
            told = read(reports)
            if learned.usable < 1:  # who has no vector reports the centre
                told = centre + (told - centre) / learned.usable
        if n == 0:
            continue
        n_report += n
        gained = n / variance if variance else math.inf
        share = 1.0 if math.isinf(gained) else gained / (precision + gained)
        value = value + share * (told - value)
        spread = (1 - share * (1 - kept)) ** 2 * spread + share**2 * variance / n
        precision += gained
    public = {"stages": float(plan.n_stages), "radius": learned.radius, "n_report": float(n_report)}
    if n_report == 0:
        return Estimate.failed("nobody reported", public=public)
    furthest = plan.radius + float(np.linalg.norm(value))  # that the mean may lie from the value
    beyond = max(0.0, furthest - learned.radius)
    outside = {"outside": learned.outside, "unseen": learned.unseen * beyond}
    return VectorEstimate(
        value,
        min(spread, furthest**2),
        (share * learned.bias) ** 2,
        learned.radius,
        n_report,
        public if plan.n_stages == 1 else public | outside,
        _doubts(plan, learned.radius, before),
    )


def _doubts(plan: CentredPlan, radius: float, before: float) -> tuple[str, ...]:
    """Say where the radius is more than twice that planned: users differ, or the votes err."""
    expected = math.sqrt(plan.sigma**2 + before)
    if plan.n_stages == 1 or radius <= 2 * RADIUS_ROOM * expected or expected >= plan.radius:
        return ()
    return (
        warned(
            f"users differ, or the votes' noise says so (by them most lie up to {radius:.3g} from "
            f"the mean, where {expected:.3g} was planned)",
            "the noise is larger than planned, and more samples of each user buy less",
            "more users or a larger epsilon lower it",
        ),
    )
