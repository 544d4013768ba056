"""Mean of bounded samples under user-level local differential privacy: localize, then refine [1]_.

Some of the users vote for the bin that holds their own sample mean. Some of the others say whether
theirs lies near the winning bins; if too few do, the users' means differ, and their average is
taken over an interval that holds them. If the users agree, those who are left refine the estimate:
by signs around it, or by their mean clipped to a short interval, where the noise is small. Too few
users for a vote narrow an interval from stage to stage. Each user answers one query only.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (25)-(30), Theorem 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from clients.records.functionals import Coordinates
from fedhist.base.arrays import Array
from fedhist.base.checks import check_range
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import SQUARED_L2
from fedhist.model.modes import Mode, TwoModes
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.shuffler import Shuffling
from fedhist.protocols.localize.protocol import FoldProtocol
from fedhist.protocols.means.mean_error import Prediction
from fedhist.protocols.means.mean_steps import Rounds
from fedhist.protocols.shared.lower_bounds import ParameterSet
from fedhist.protocols.shared.mean_target import InRange, PlannedMean
from fedhist.protocols.shared.seen import Seen
from fedhist.protocols.shared.shuffles import Batch
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from server.means.design import Design, plan_mean
from server.means.localize import Plan

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


T_100 = {"samples_per_user": 100}


@register_protocol
@dataclass(frozen=True)
class Mean(TwoModes, InRange, PlannedMean, FoldProtocol):
    """Mean of samples in [low, high] that all users share, under local differential privacy.

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
        Channel of the second round; "auto" takes the one of least variance.
    mode : {"default", "paper"}
        "paper" follows the published procedure to the letter, with K = 1/4 and c = 1/100 for its
        unnamed constants: three votes a user, 7 delta, Laplace noise, the first T* samples.
    salt : int
        Public salt of the split into rounds.
    users : {"may differ", "same"}
        "same" declares that all users share one mean: nobody is asked whether they do.
    refine : {"auto", "clip"}
        "clip" leaves out signs and stages: a vote and clipped reports, as in [1].
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~fedhist.protocols.shared.shuffles.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: the cohorts of one salt are
    disjoint, so that each user answers one epsilon-LDP query, and a query depends on other users'
    messages only.

    Error
    -----
    Of order (high - low)^2 (log(n epsilon^2 T) / (n T epsilon^2) + e^{-c n epsilon^2}) for users
    who share a mean and epsilon <= 1 [1, Theorem 6]; ``design.risk`` predicts it with constants.
    Where the users' means differ, one report over the interval that holds them is best possible up
    to constants. A vote is a bet on users who agree: of users far away, a share that noise dictates
    passes the check unnoticed, and may cost several times one report over the range
    (``design.close`` says how many times). So a vote is taken only where it lowers the planned
    error by a third or more, and by enough for what it risks. Signs find the median of the users'
    means: for users who share a mean it lies about skewness / (6 T) sample scales from it.

    ``stderr`` is a bound: it takes the channel's noise where it is largest, and users as far apart
    as the interval is wide; measured errors are .54 to 1 of it. It knows nothing of users far away
    who passed the check: ``design.close`` says beforehand what these cost, and ``unseen`` of an
    estimate how far so many as the answers leave open may move it, two standard errors of them.

    Examples
    --------
    >>> Mean(epsilon=1.0, n_users=2000, samples_per_user=1, low=-1.0, high=1.0).max_rounds
    1
    """

    name: ClassVar[str] = "mean"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 3.1"
    revision: ClassVar[int] = 1
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
    refine: Literal["auto", "clip"] = "auto"
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.check_mode()
        self.check_fields(self.mean_scale)
        check_range(self.low, self.high)
        _ = self.design
        self.check_trust()

    @property
    def batches(self) -> Sequence[Batch]:
        """Voters and reporters; a check's cohort, of some seventy users, hides nobody."""
        if not self.design.plain:
            raise ValueError(
                "mean: rounds that check, and stages, have cohorts too small for a shuffler: set "
                'users = "same" and refine = "clip"'
            )
        return super().batches

    @property
    def plan(self) -> Plan:
        """Bins, shares and widths of the vote and the clipped reports; from public numbers only."""
        return self.fold_plan(self.n_users, self.half_range)

    @property
    def design(self) -> Design:
        """Which rounds there are; from public numbers only."""
        if self.users == "same" and self.refine == "clip":
            return Design(self.plan, self.plan.risk)
        return plan_mean(
            float(self.n_users),
            float(self.scale),
            self.half_range,
            float(self.epsilon),
            float(self.samples_per_user),
            self.channel_kind,
            differ=self.users == "may differ",
            refine=self.refine == "auto",
        )

    @property
    def max_rounds(self) -> int:
        """One to six: a vote, a check and two that refine, or stages."""
        return self.design.max_rounds

    @property
    def scale(self) -> float:
        """Standard deviation of a user's mean that is planned with."""
        return self.mean_scale or self.half_range / math.sqrt(self.samples_per_user)

    def rounds(self, server: Curator) -> Script:
        """Vote, check, refine; or go by stages."""
        design = self.design
        if not design.feasible:
            return Estimate.refused(self.too_few(1, self.half_range))
        plan = design.vote
        whole = Coordinates(1, float(self.low), float(self.high), max_items=plan.max_items)
        if design.plain:
            found = yield from self.ask(whole, plan)
            if isinstance(found, Estimate):
                return found
            return Estimate.ok(
                found.value, stderr=found.stderr, public=found.public, warnings=found.warnings
            )
        rounds = Rounds(
            whole,
            design,
            epsilon=float(self.epsilon),
            kind=self.channel_kind,
            salt=self.salt,
            n_users=float(self.n_users),
            samples=float(self.samples_per_user),
            scale=float(self.scale),
        )
        return (yield from rounds.run())

    def planned_error(self) -> ErrorBound:
        """Predict the mean squared error by the plan, for users who share a mean."""
        source = "the plan's risk, for the rate of Kent et al., arXiv 2405.11923, Theorem 6"
        return self._bound(self.design.risk, source)

    def _bound(self, risk: float, source: str) -> ErrorBound:
        """Say of a prediction where it comes from, and what a vote risks."""
        return ErrorBound(
            SQUARED_L2, risk, False, "; ".join(filter(None, (source, self.design.close)))
        )

    def rows(self, users: Users) -> Mapping[str, Array]:
        """Return the users' own means."""
        return {"means": self.own_means(users)[:, 0]}

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the mean squared error from the users' own means. NOT PRIVATE.

        Without noise, by the plan.
        """
        if math.isinf(self.epsilon) or not self.design.feasible:
            return super().error_of(seen)
        x = seen.rows["means"]
        x = x[~np.isnan(x)]
        if not len(x):
            return super().error_of(seen)
        low, high = float(self.low), float(self.high)
        given = Prediction(
            self.design,
            np.sort(np.clip(x, low, high)),
            low,
            high,
            float(self.epsilon),
            self.channel_kind,
            float(self.samples_per_user),
            float(self.scale),
            n=len(x) * seen.times,
        )
        source = "the rounds followed with the users' own means in place of messages"
        return self._bound(given.risk() + self.clipping_of(seen), source)

    @property
    def parameter_set(self) -> ParameterSet:
        """The range."""
        return ParameterSet("box", 1, self.half_range, (self.half_range / self.scale) ** 2)

    @classmethod
    def example(cls) -> Self:
        """Build a small instance with a vote, a check and what follows."""
        return cls(epsilon=2.0, n_users=400, samples_per_user=64, low=-1.0, high=1.0)

    @classmethod
    def example_users(cls) -> Users:
        """Make users with +-1 samples of mean 0.3."""
        rng = np.random.default_rng(5)
        values = np.where(rng.random(400 * 64) < 0.65, 1.0, -1.0)
        names = Keys.range(400)
        return Users.from_samples(user_ids(names), np.arange(401) * 64, values)
