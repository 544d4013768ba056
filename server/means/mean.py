"""Mean of bounded samples under user-level local differential privacy.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (25)-(30), Theorem 6.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from clients.localize.queries import ClippedMean
from clients.records.functionals import Coordinates, Scalar
from fedhist.base.arrays import Floats
from fedhist.base.checks import check_ends
from fedhist.base.errors import warned
from fedhist.channels.scalar import scalar_channel
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort, salt_of_folds
from fedhist.users.keys import Keys, user_ids
from server.centred.script import centred_mean
from server.centred.stages import CentredPlan, finds_radius, plan_centred
from server.localize.choice import Plan, StagePlan, keep_inside, plan_stages
from server.localize.script import FoldProtocol
from server.modes import Mode, TwoModes
from server.targets.mean_target import InRange
from server.trust import Batch

if TYPE_CHECKING:
    from server.session.curator import Curator


@register_protocol
@dataclass(frozen=True)
class Mean(TwoModes, InRange, FoldProtocol):
    """Mean of samples in [low, high], under local differential privacy.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off, and every user's mean is averaged exactly.
    n_users : int
        Public planning value; the estimate uses the number who answered.
    samples_per_user : float
        Public planning value T. Where the users hold different numbers of samples, their harmonic
        mean is the safe choice, because it gives the average variance of a user's mean; a
        configuration asks for it by ``samples_per_user = "harmonic-mean"`` and declares the
        numbers of samples public by ``samples_public = true``. Privacy never depends on it.
    low, high : float
        Range of the samples; a sample outside is clipped before averaging.
    mean_scale : float, optional
        Standard deviation of a user's mean around the common mean, or a bound; by default
        (high - low) / (2 sqrt(T)).
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of the reports; "auto" takes the one of least variance.
    mode : {"default", "paper"}
        "paper" follows the published procedure to the letter, with K = 1/4 and c = 1/100 for its
        unnamed constants: three votes a user, 7 delta, Laplace noise, the first T* samples.
    salt : int
        Public salt of the split into rounds.
    users : {"may differ", "same"}
        "same" declares that all users share one mean: an interval is then never widened for users
        who lie far from the others.
    method : {"auto", "vote", "stages", "centred"}
        "auto" chooses from public numbers: for users who may differ "centred", or "stages" where
        too few users would vote for a radius; for users who share a mean "vote", or "stages" where
        that halves the planned error.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~server.trust.Shuffles`. It needs
        ``method = "vote"``.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: each user belongs to one group
    and answers one epsilon-LDP query, which depends on other users' messages only.

    Error
    -----
    "vote": of order (high - low)^2 (log(n epsilon^2 T) / (n T epsilon^2) + e^{-c n epsilon^2}) for
    users who share a mean and epsilon <= 1 [1, Theorem 6]; ``plan.risk`` predicts it with
    constants. It clips users who differ by more than ``mean_scale``, and does not notice. A user
    without samples counts as the middle of the chosen interval.

    "centred" has the error of one report over the interval that holds the users, the best order
    where they differ. Where they share a mean, its squared error was twice that of "vote" for
    samples at the ends of the range, and a fifth of it for samples whose standard deviation is an
    eighth of the range if ``mean_scale`` does not say so (n = 20,000, T = 200, epsilon = 1).

    A small cluster far away goes unseen where few users vote for a radius: it may move the estimate
    by up to ``unseen``, two standard errors of the votes.

    Examples
    --------
    >>> given = {"samples_per_user": 100, "low": -1.0, "high": 1.0}
    >>> Mean(1.0, 500, **given).chosen, Mean(1.0, 20_000, **given).chosen
    ('stages', 'centred')
    """

    name: ClassVar[str] = "mean"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 3.1"
    revision: ClassVar[int] = 2
    epsilon: float
    n_users: int
    samples_per_user: float
    low: float
    high: float
    mean_scale: float | None = None
    kind: str = "auto"
    mode: Mode = "default"
    salt: int = 1
    users: Literal["may differ", "same"] = "may differ"
    method: Literal["auto", "vote", "stages", "centred"] = "auto"
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.check_mode()
        self.check_fields(self.mean_scale)
        check_ends(self.low, self.high)
        _ = self.plan_in_use
        self.check_trust()

    @property
    def batches(self) -> Sequence[Batch]:
        if self.chosen != "vote":
            raise ValueError(
                "mean: stages, and votes for a radius, have cohorts too small for a shuffler: set "
                'method = "vote"'
            )
        return super().batches

    @property
    def overstates(self) -> str:
        return "" if self.chosen == "stages" else "the plan's variance is that of the worst users"

    @property
    def scale(self) -> float:
        return self.mean_scale or self.half_range / math.sqrt(self.samples_per_user)

    @property
    def plan(self) -> Plan:
        """Of "vote": bins, shares and widths, or one round; from public numbers only."""
        return self.fold_plan(self.n_users, self.half_range)

    @property
    def stage_plan(self) -> StagePlan:
        """Of "stages"; from public numbers only."""
        v = scalar_channel(self.channel_kind, self.epsilon).v
        return plan_stages(float(self.n_users), float(self.scale), self.half_range, v)

    @property
    def centred_plan(self) -> CentredPlan:
        """Of "centred"; from public numbers only."""
        v = 4 * scalar_channel(self.channel_kind, self.epsilon).v
        v += 0.0 if math.isinf(self.epsilon) else 0.25
        return plan_centred(
            float(self.n_users), float(self.scale), self.half_range, float(self.epsilon), 1, v=v
        )

    @property
    def chosen(self) -> str:
        """The method in use; from public numbers only."""
        if self.method != "auto":
            return self.method
        if math.isinf(self.epsilon):
            return "vote"
        if self.users == "same":
            # a vote's risk is a bound, of which errors are a third to all
            return "stages" if self.stage_plan.risk < self.plan.risk / 2 else "vote"
        if finds_radius(self.centred_plan, float(self.n_users), float(self.epsilon)):
            return "centred"
        return "stages"

    @property
    def plan_in_use(self) -> Plan | StagePlan | CentredPlan:
        """The plan of the method in use."""
        if self.chosen == "vote":
            return self.plan
        return self.stage_plan if self.chosen == "stages" else self.centred_plan

    @property
    def max_rounds(self) -> int:
        """Up to two of a vote, six stages, or seven: four stages and the votes between them."""
        return self.plan_in_use.n_rounds

    @property
    def empty_record(self) -> str:
        centred = isinstance(self.plan_in_use, CentredPlan)
        return "" if centred else "the middle of its interval"

    def rounds(self, server: Curator) -> Script:
        plan = self.plan_in_use
        if not self.plan.feasible:
            return Estimate.refused(self.too_few(1, self.half_range))
        whole = Coordinates(1, float(self.low), float(self.high), max_items=self.plan.max_items)
        if isinstance(plan, StagePlan):
            return (yield from self._by_stages(whole, plan))
        if isinstance(plan, CentredPlan):
            return (yield from self._centred(whole, plan))
        return (yield from self.ask(whole, plan))

    def _centred(self, whole: Coordinates, plan: CentredPlan) -> Script:
        """Learn from other users how wide the interval around the estimate so far must be."""

        def inside(value: Floats) -> Floats:
            return np.clip(value, -self.half_range, self.half_range)

        part = Scalar(whole)
        # in one dimension users outside often lie on one side: at most .1, .2 and .3 of them had
        # .92, .93 and .94 of the root error of version 0.3 on 288 settings, and .97, 1.05 and 1.07
        # of it for users Beta(.6, 5.4)
        centre = yield from centred_mean(
            part,
            plan,
            epsilon=self.epsilon,
            salt=self.salt,
            project=inside,
            clip_mass=0.1,
            kind=self.kind,
        )
        if isinstance(centre, Estimate):
            return centre
        return centre.estimate(part.middle + inside(centre.value))

    def _by_stages(
        self, whole: Coordinates, plan: StagePlan
    ) -> Generator[Query, Summary, Estimate]:
        """Narrow the interval from stage to stage; weigh the averages by their precisions."""
        value, precision, users = (self.low + self.high) / 2, 0.0, 0
        public: dict[str, float] = {}
        ends = np.append(np.cumsum([0.0, *(s.share for s in plan.stages[:-1])]), 1.0).tolist()
        for s, lo, hi in zip(plan.stages, ends[:-1], ends[1:], strict=True):
            refine = ClippedMean(
                whole,
                keep_inside(np.array([value]), s.half_width, *self.value_range),
                s.half_width,
                float(self.epsilon),
                self.channel_kind,
                cohort=Cohort(self.salt, lo, hi),
                fold_salt=salt_of_folds(self.salt),
            )
            reports = yield refine
            if reports.n_users == 0:
                continue
            more = reports.n_users / s.user_variance
            told = float(refine.estimates(reports)[0])
            value = (precision * value + more * told) / (precision + more)
            precision, users = precision + more, users + reports.n_users
            centre = float(refine.centres[0])
            public["interval_low"] = centre - s.half_width
            public["interval_high"] = centre + s.half_width
        if users == 0:
            return Estimate.failed("nobody reported")
        public |= {"stages": float(len(plan.stages)), "n_report": float(users)}
        stderr = np.full(1, math.sqrt(plan.risk * self.n_users / users))
        warnings: tuple[str, ...] = ()
        if self.users == "may differ" and len(plan.stages) > 1:
            what = "with so few users nobody was asked whether the users' means agree"
            means = (
                "where they differ by more than their samples explain, the error is larger than "
                "stated"
            )
            todo = "if they may, set mean_scale to how far they lie apart, or ask more users"
            warnings = (warned(what, means, todo),)
        return Estimate.ok(np.array([value]), stderr=stderr, public=public, warnings=warnings)

    @property
    def bounded_by(self) -> tuple[float, float]:
        return self.half_range, (self.half_range / self.scale) ** 2

    @classmethod
    def example(cls) -> Self:
        return cls(2.0, 400, 64, low=-1.0, high=1.0, method="vote")

    @classmethod
    def example_users(cls) -> Users:
        """Make users with +-1 samples of mean 0.3."""
        rng = np.random.default_rng(5)
        values = np.where(rng.random(400 * 64) < 0.65, 1.0, -1.0)
        names = Keys.range(400)
        return Users.from_samples(user_ids(names), np.arange(401) * 64, values)
