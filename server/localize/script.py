"""Localize, then refine: the script that every fold-wise local estimator shares.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (25)-(30).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Generator, Sequence
from typing import ClassVar

import numpy as np

from clients.localize.queries import BinVotes, ClippedMean
from fedhist.base.arrays import Floats
from fedhist.base.checks import check_count, check_size, check_within
from fedhist.base.errors import warned
from fedhist.channels.bits import UnaryChannel
from fedhist.channels.hiding import hiding_of
from fedhist.channels.scalar import scalar_channel
from fedhist.model.part import Functional
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.privacy.guarantee import Guarantee, check_budget
from fedhist.users.cohort import Cohort, salt_of_folds
from server.localize.choice import (
    LEAST_MASS,
    MOST_FAILURE,
    Plan,
    best_window,
    keep_inside,
    least_users,
    plan_univariate,
)
from server.targets.sample_sizes import PlannedSizes
from server.trust import Batch, Shuffles


class FoldProtocol(Shuffles, PlannedSizes):
    """Budget, channel, checks and script; subclasses are frozen dataclasses with these fields."""

    epsilon: float
    n_users: int
    samples_per_user: float
    kind: str
    salt: int
    neighbours: ClassVar[bool] = False  # whether a user votes for the bins beside its own as well
    clips: ClassVar[bool] = True  # whether a fold's average is clipped to its interval
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
        """Distance from the midpoint, in half ranges, of all scalars; None if it is not known."""
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
        """Voters and reporters of every fold, as planned; ValueError where vectors are reported."""
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
        return self.plan.risk

    def windows(self, frequencies: Floats, low: float, high: float) -> tuple[Floats, Floats]:
        """Say where every fold's interval lies, and which share of the votes says so: (k,) each."""
        return best_window(frequencies, low, high)

    def ask(
        self, functional: Functional, plan: Plan, lo: float = 0.0
    ) -> Generator[Query, Summary, Estimate]:
        """Ask the users whose hash is ``lo`` or more: vote, find the windows, refine.

        ``plan`` is that of one fold. The value has an entry for every fold: the middle of its
        interval, with an infinite standard error, where nobody reported.

        Privacy
        -------
        epsilon-LDP: voters and reporters are disjoint cohorts of one salt, so that each user
        answers one epsilon-LDP query; the second query depends on other users' messages only.
        """
        k, low, high = functional.n_folds, functional.low, functional.high
        epsilon, salt, folds = float(self.epsilon), self.salt, salt_of_folds(self.salt)
        centres, public = np.full(k, (low + high) / 2), dict[str, float]()
        warnings: tuple[str, ...] = ()
        cohort = Cohort(salt, lo, 1.0) if lo else None
        if plan.n_bins > 1:
            split = lo + plan.vote_share * (1.0 - lo)
            voters = Cohort(salt, lo, split)
            vote = BinVotes(functional, plan.n_bins, epsilon, voters, folds, self.neighbours)
            votes = yield vote
            if votes.n_users == 0:
                return Estimate.failed("nobody voted")
            middles, mass = self.windows(vote.frequencies(votes), low, high)
            middles = np.where(votes.sums["users"] > 0, middles, centres)
            centres = keep_inside(middles, plan.half_width, low, high)
            public = {"window_mass": float(mass.min()), "n_vote": float(votes.n_users)}
            warnings, cohort = _doubts(plan, mass), Cohort(salt, split, 1.0)
        kind = self.channel_kind
        refine = ClippedMean(functional, centres, plan.half_width, epsilon, kind, cohort, folds)
        reports = yield refine
        n = reports.sums["users"]
        if reports.n_users == 0:
            return Estimate.failed("nobody reported", public=public, warnings=warnings)
        public |= {"n_bins": float(plan.n_bins), "n_report": float(reports.n_users)}
        if k == 1:
            public["interval_low"] = float(centres[0]) - plan.half_width
            public["interval_high"] = float(centres[0]) + plan.half_width
        else:
            public |= {"folds": float(k), "half_width": plan.half_width}
        if empty := int(np.count_nonzero(n == 0)):
            means = "the middle of the range stands in for their values, whatever the data"
            todo = "ask more users, or for fewer values"
            warnings = (*warnings, warned(f"{empty} of {k} folds had no reports", means, todo))
        # the plan's variance is that of (1 - vote_share) n_users (1 - lo) / k reports
        planned = self.n_users * (1.0 - lo)
        variance = plan.variance * (1 - plan.vote_share) * planned / k / np.maximum(n, 1)
        stderr = np.where(n > 0, np.sqrt(variance), np.inf)
        value = refine.estimates(reports, self.clips)
        return Estimate.ok(value, stderr=stderr, public=public, warnings=warnings)

    def too_few(self, k: int, half_range: float) -> str:
        """Say why k folds of n_users / k users are refused, and how many users would do."""
        kind, size = self.channel_kind, self.report_size
        least = k * least_users(self.scale, half_range, self.epsilon, kind, size)
        folds = "" if k == 1 else f" in {k} folds"
        return few_users(self, least, "the midpoint of the range", folds)

    def check_fields(self, mean_scale: float | None = None) -> None:
        """Raise ValueError, with the value, unless the fields that all of them have are valid."""
        check_budget(self.epsilon)
        check_count("n_users", self.n_users)
        check_within("samples_per_user", self.samples_per_user, 1, math.inf, "[)")
        if mean_scale is not None:
            check_size("mean_scale", mean_scale)
        scalar_channel(self.kind, self.epsilon)  # least epsilon
        Cohort(self.salt)


def few_users(of: FoldProtocol, least: int, better: str, folds: str = "") -> str:
    """Say that users are too few, what is the better estimate, and how many would do."""
    return (
        f"{of.n_users} users{folds} are too few at epsilon = {of.epsilon:g}: {better} is the "
        f"better estimate; at least {least} are needed"
    )


def _doubts(plan: Plan, mass: Floats) -> tuple[str, ...]:
    """Say what makes a wrong window likely."""
    k, out = len(mass), list[tuple[str, str]]()
    if plan.failure > MOST_FAILURE:
        what = "the vote" if k == 1 else "the vote of a fold"
        out.append(
            (
                f"with so few users {what} may find the wrong window with probability "
                f"{plan.failure:.2g}",
                "more users or a larger epsilon make that rarer",
            )
        )
    if weak := int(np.count_nonzero(mass < LEAST_MASS)):
        where = (
            f"the winning window holds a share of {mass[0]:.2f} of the votes, less than "
            f"{LEAST_MASS}, and may be the wrong one"
            if k == 1
            else f"in {weak} of {k} folds (each is asked about one of the {k} values) less than "
            f"{LEAST_MASS} of the votes are for the winning window of values, which may be the "
            "wrong one"
        )
        todo = "ask more users, or give a larger epsilon; where users differ, a larger mean_scale"
        out.append((where, todo))
    means = "the value that it is about is then further off than its standard error says"
    return tuple(warned(what, means, todo) for what, todo in out)
