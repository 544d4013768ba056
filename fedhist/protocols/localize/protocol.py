"""What the protocols that localize and refine fold by fold have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Generator, Sequence
from typing import ClassVar

from fedhist.base.checks import check_count
from fedhist.channels.catalogue import UnaryChannel, scalar_channel
from fedhist.channels.hiding import hiding_of
from fedhist.model.part import Functional
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.privacy.guarantee import Guarantee, check_budget
from fedhist.protocols.localize.script import PROVEN, FoldEstimates, Steps, localize_and_refine
from fedhist.protocols.shared.sample_sizes import PlannedSizes
from fedhist.protocols.shared.shuffles import Batch, Shuffles
from fedhist.users.cohort import Cohort
from server.means.localize import Plan, least_users, plan_univariate


class FoldProtocol(Shuffles, PlannedSizes):
    """Budget, channel, checks and script; subclasses are frozen dataclasses with these fields."""

    epsilon: float
    n_users: int
    samples_per_user: float
    kind: str
    salt: int
    steps: ClassVar[Steps] = PROVEN
    report_kinds: ClassVar[tuple[str, tuple[str, ...]]] = ("kind", ("onebit", "piecewise"))

    @property
    @abstractmethod
    def scale(self) -> float:
        """Standard deviation of a user's scalar that is planned with."""

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """Bins, shares and widths of one fold; from public numbers only."""

    @property
    def report_size(self) -> float | None:
        """Distance from the midpoint, in half ranges, of all scalars; None if it is not known.

        Known for a script of one round at most.
        """
        return None

    def fold_plan(self, n_users: float, half_range: float) -> Plan:
        """Plan a fold of so many users, whose scalars have this half range."""
        kind, size = self.channel_kind, self.report_size
        return plan_univariate(n_users, self.scale, half_range, self.epsilon, kind, size)

    @property
    def channel_kind(self) -> str:
        """The scalar channel in use; without noise the one that is then exact."""
        if math.isinf(self.epsilon):
            return "laplace"
        return scalar_channel(self.kind, self.epsilon, self.report_size).kind

    @property
    def max_rounds(self) -> int:
        """Two, or one where a vote would not help."""
        return self.plan.n_rounds

    @property
    def guarantee(self) -> Guarantee:
        """The same budget for voters and reporters: each user answers once."""
        return self.promise()

    @property
    def n_folds(self) -> int:
        """Of the functional that users are asked about."""
        return 1

    @property
    def uses_folds(self) -> bool:
        """Whether users report about one thing each; if not, they report their whole vector."""
        return True

    @property
    def batches(self) -> Sequence[Batch]:
        """Voters and reporters of every fold, as they are planned.

        Raises
        ------
        ValueError
            Where vectors are reported.
        """
        if not self.uses_folds:
            raise ValueError(
                f"{self.name}: vectors are reported by points that belong to a user's id, which a "
                'shuffler takes off: set method = "folds"'
            )
        plan, epsilon, k = self.plan, float(self.epsilon), max(self.n_folds, 1)
        reports = hiding_of(scalar_channel(self.channel_kind, epsilon))
        if plan.n_bins == 1:
            return (Batch(1.0, k, reports),)
        voters, others = Cohort(0, 0.0, plan.vote_share), Cohort(0, plan.vote_share, 1.0)
        return (
            Batch(voters.share, k, hiding_of(UnaryChannel(epsilon))),
            Batch(others.share, k, reports),
        )

    @property
    def report_risk(self) -> float:
        """The plan's, of one fold."""
        return self.plan.risk

    def ask(
        self, functional: Functional, plan: Plan, lo: float = 0.0
    ) -> Generator[Query, Summary, FoldEstimates | Estimate]:
        """Localize and refine with the users whose hash is lo or more."""
        return localize_and_refine(
            functional,
            plan,
            epsilon=self.epsilon,
            kind=self.channel_kind,
            salt=self.salt,
            n_users=self.n_users,
            lo=lo,
            steps=self.steps,
        )

    def too_few(self, k: int, half_range: float) -> str:
        """Say why k folds of n_users / k users are refused, and how many users would do."""
        kind, size = self.channel_kind, self.report_size
        least = k * least_users(self.scale, half_range, self.epsilon, kind, size)
        folds = "" if k == 1 else f" in {k} folds"
        return (
            f"{self.n_users} users{folds} are too few at epsilon = {self.epsilon:g}: the midpoint "
            f"of the range is the better estimate; at least {least} are needed"
        )

    def check_fields(self, mean_scale: float | None = None) -> None:
        """Raise ValueError, with the value, unless the fields that all of them have are valid."""
        check_budget(self.epsilon)
        T = self.samples_per_user
        check_count("n_users", self.n_users)
        if not 1 <= T < math.inf:
            raise ValueError(f"samples_per_user must be at least 1, got {T}")
        if mean_scale is not None and not 0 < mean_scale < math.inf:
            raise ValueError(f"mean_scale must be positive and finite, got {mean_scale}")
        scalar_channel(self.kind, self.epsilon)  # least epsilon
        Cohort(self.salt)
