"""Means from few users with a trusted server: one round, one release [1]_.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Algorithms 1 to 3, Theorems 4, 6, 7, Corollaries 5 and 8.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.few_users.queries import UserMeans
from clients.records.functionals import samples_of
from clients.records.user_rows import shorten, user_points
from fedhist.base.arrays import Array
from fedhist.base.checks import check_size, check_within
from fedhist.base.errors import warned
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query
from fedhist.model.registry import register_protocol
from fedhist.model.truths import L2, LowerBound, Prediction, l2
from fedhist.privacy.guarantee import check_budget
from fedhist.users.batch import Users
from server.central_means.central_mean import CentralMean
from server.few_users.draws import release_draws, release_large_n
from server.few_users.plan import (
    FewUsersPlan,
    Method,
    Wishes,
    choose_branch,
    large_n_min,
)
from server.modes import Mode, TwoModes
from server.targets.lower_bounds import central_mean_bounds
from server.targets.mean_target import MeanTarget
from server.targets.sample_sizes import PlannedUsers
from server.trust import Central

if TYPE_CHECKING:
    from server.session.curator import Curator


@dataclass(frozen=True, kw_only=True)
class FewUsers(TwoModes, Central, PlannedUsers):
    """What the protocols of this family share: budget, branch and its constants."""

    epsilon: float
    n_users: int
    delta: float = 1e-6
    method: Method = "auto"
    n_blocks: int | None = None
    n_runs: int = 5
    kappa: float | None = None
    lam: float | None = None
    n_rounds: int | None = None
    corrupted: float = 0.0
    failure: float = 0.01
    mode: Mode = "default"
    salt: int = 1

    def __post_init__(self) -> None:
        self.check_mode()
        check_budget(self.epsilon, self.delta)
        _ = self.plan

    @property
    @abstractmethod
    def row_numbers(self) -> tuple[int, float, float | None]:
        """Coordinates of users' rows, their typical distance from the common mean, and bound."""

    @property
    @abstractmethod
    def query(self) -> Query:
        """The one question; its rows are called "mean"."""

    def finish(self, value: Array) -> Array:
        """Post-process a released mean."""
        return value

    @property
    def wishes(self) -> Wishes:
        """What the configuration fixes of the plan."""
        mine = (f.name for f in fields(Wishes) if f.name != "buckets")
        return Wishes(**{name: getattr(self, name) for name in mine})

    def plan_for(self, n_users: int) -> FewUsersPlan:
        """Choose the branch for a number of users; from public numbers only."""
        return choose_branch(n_users, *self.row_numbers, self.epsilon, self.delta, self.wishes)

    @property
    def plan(self) -> FewUsersPlan:
        """The branch for the planned number of users."""
        return self.plan_for(self.n_users)

    @property
    def max_rounds(self) -> int:
        return 1

    def rounds(self, server: Curator) -> Script:
        if why := self._lacks(server, self.plan):
            return Estimate.refused(why)
        summary = yield self.query
        n = summary.n_users
        public = {"n_users": float(n)}
        if not n:
            return Estimate.failed("nobody answered", public=public)
        rows = np.asarray(summary.rows["mean"], dtype=np.float64)
        if math.isinf(self.epsilon):  # nothing is private: the average itself, whatever the method
            mean = server.gaussian(
                rows.mean(axis=0), l2_sensitivity=1.0, epsilon=math.inf, delta=self.delta
            )
            return Estimate.ok(self.finish(mean), public=public)
        plan = self.plan_for(n)  # the number of users who answered is public
        if why := self._lacks(server, plan):
            return Estimate.failed(f"of {self.n_users} users {n} answered: {why}", public=public)
        large = plan.method == "large-n"
        released = (release_large_n if large else release_draws)(server, rows, plan, salt=self.salt)
        public |= {"radius": plan.part_radius, "predicted_error": plan.error} | released.public
        if released.value is None:
            return Estimate.failed(released.reason, public=public)
        value, told = released.value, list[str]()
        if large:
            what = "how far users differ was not looked at"
            means = "where they differ more than the radius says, the mean is off by more than told"
            told.append(warned(what, means, 'the protocol "central-mean" draws a radius'))
        if math.isfinite(plan.box):  # which holds all rows: the nearest point of it
            value = shorten(value[None].copy(), plan.box)[0]
            if plan.error > plan.box / 2:
                what = f"the predicted error, {plan.error:.3g}, is more than half of the box"
                means = "the middle of the box is about as good an estimate"
                told.append(warned(what, means, "more users or a larger epsilon lower it"))
        return Estimate.ok(self.finish(value), public=public, warnings=tuple(told))

    def _lacks(self, server: Curator, plan: FewUsersPlan) -> str:
        """Say why a plan cannot be run; empty if it can."""
        if not plan.feasible:
            return (
                f"{plan.n_users} users are too few at epsilon = {self.epsilon:g} and dimension "
                f"{plan.dimension}: at least {plan.least_users} are needed (method {plan.method})"
            )
        if server.grade == "secure" and not plan.secure:
            return (
                f'noise = "secure" has no exact sampler for this plan (method "{plan.method}"); '
                'method = "large-n" has, with more users'
            )
        return ""

    @property
    def empty_record(self) -> str:
        return "the origin" if self.guarantee.private else ""

    def bound(self) -> float:
        """Bound the l2 distance from the common mean, where users differ as the radius says."""
        return min(self.plan.error, 2 * self.plan.box)


@register_protocol
@dataclass(frozen=True, kw_only=True)
class FewUsersMean(MeanTarget, FewUsers):
    """Mean of d-dimensional samples that all users share, from few users.

    Parameters
    ----------
    epsilon : float
        Budget; inf switches noise off and returns the average of the users' means.
    delta : float
        Positive: a draw may miss everybody.
    n_users : int
        Public. Too few are refused, with the number that would do.
    dimension : int
        d.
    radius : float, optional
        r: typical l2 distance of a user's own mean from the common mean; public.
    sample_radius, samples_per_user : float, optional
        Instead of ``radius``: r0 with r0^2 >= E|X - mu|^2 and m; r = r0 / sqrt(m).
    box : float, optional
        Public bound on the l2 norm of a user's mean, to which the client shortens it. Needed by
        "large-n". (A bound per coordinate would not survive the rotation.) Default: 2^30 r.
    method : {"auto", "ball", "blocks", "boosted", "large-n"}
        "auto": the feasible one of least predicted error, from public numbers. With a ``box``, no
        constant of a draw and too few users for "large-n", it runs ``central-mean`` where that has
        less predicted error. Name ``central-mean`` yourself where users may differ by more than
        ``radius``.
    n_blocks : int, optional
        K of "blocks", a power of two; default: the feasible one of least error.
    n_runs : int
        Draws of "boosted". Not recommended: a larger n_rounds costs time only, runs cost users.
    kappa : float, optional
        Share of the users that must agree; default .6, or .51 if more than 35% may be corrupted.
    lam : float, optional
        Balls have the radius lam r sqrt(d). Default .5, or 1 below 16 dimensions and for .51.
    n_rounds : int, optional
        Expected rounds of a draw; no part of privacy.
    corrupted : float
        Share of users, below 1/2, whose rows may be anything.
    failure : float
        Probability of no value, or of a wrong one, that the plan accepts.
    mode : {"default", "paper"}
        "paper": Algorithm 1 with its printed constants, which spend (2 epsilon, e^epsilon delta /
        4); the ledger says so.
    salt : int
        Public salt of the random rotation.

    Privacy
    -------
    (epsilon, delta)-DP under replacement of one user, for every data set: see
    :class:`~server.few_users.draws.BallSampler`,
    :func:`~server.few_users.draws.release_draws` and
    :func:`~server.few_users.draws.release_large_n`. Radius, box and corrupted share matter for
    the error only. A garbage bucket is status "failed": the budget is spent, and there is no value.

    Error
    -----
    lam r sqrt(d) for one ball, lam r sqrt(d / K) for K blocks, r sqrt(1/n + 3.2^2 d / (1.4 rho
    n^2)) and b for large n, b the most that the clip takes (.17 r for d = 1, .02 r for 16); l2.
    That takes ``radius`` at its word: where users differ more, a draw fails, or "large-n" is off by
    more than anything tells. Users without samples, or with a NaN or an infinity, count as 0.

    Examples
    --------
    >>> FewUsersMean(epsilon=1.0, n_users=80, dimension=10000, radius=0.1).plan.error
    5.0
    """

    name: ClassVar[str] = "few-users-mean"
    paper: ClassVar[str] = "Narayanan, Mirrokni & Esfandiari, ICML 2022, Algorithms 1 to 3"
    revision: ClassVar[int] = 5
    loss_name: ClassVar[str] = "l2"
    needs_server: ClassVar[str] = "its estimator reads every user's own row"

    dimension: int
    radius: float | None = None
    sample_radius: float | None = None
    samples_per_user: float | None = None
    box: float | None = None

    def __post_init__(self) -> None:
        both = self.sample_radius, self.samples_per_user
        if (self.radius is None) == (None in both):
            raise ValueError(
                "give radius, or sample_radius and samples_per_user; got radius = "
                f"{self.radius}, sample_radius = {both[0]}, samples_per_user = {both[1]}"
            )
        for what in ("radius", "sample_radius", "box"):
            if getattr(self, what) is not None:
                check_size(what, getattr(self, what))
        if self.samples_per_user is not None:
            check_within("samples_per_user", self.samples_per_user, 1, math.inf, "[)")
        super().__post_init__()
        _ = self.query

    @property
    def row_numbers(self) -> tuple[int, float, float | None]:
        return self.dimension, self.row_radius, self.box

    @property
    def row_radius(self) -> float:
        """The radius, or r0 / sqrt(m)."""
        if self.sample_radius is not None and self.samples_per_user is not None:
            return self.sample_radius / math.sqrt(self.samples_per_user)
        return self.radius or math.nan

    @property
    def query(self) -> UserMeans:
        return UserMeans(self.dimension, float(self.box or 2.0**30 * self.row_radius))

    @cached_property
    def handed(self) -> CentralMean | None:
        """The protocol that "auto" leaves all to, where it does; from public numbers."""
        if self.method != "auto" or self.box is None or self.corrupted or self.mode == "paper":
            return None
        if (self.n_blocks, self.kappa, self.lam, self.n_rounds) != (None,) * 4:  # of draws
            return None
        least = large_n_min(self.epsilon, self.delta, *self.row_numbers, failure=self.failure)
        if math.isinf(self.epsilon) or self.n_users >= least:
            return None
        central = CentralMean(
            epsilon=self.epsilon,
            delta=self.delta,
            n_users=self.n_users,
            dimension=self.dimension,
            box=self.box,
        )
        plan = self.plan
        planned = central.planned_error(self.row_radius)
        return central if not plan.feasible or planned < plan.error else None

    @property
    def max_rounds(self) -> int:
        return 1 if self.handed is None else self.handed.max_rounds

    def rounds(self, server: Curator) -> Script:
        """Ask every user for its row, then draw; or leave all to ``central-mean``."""
        if self.handed is None:
            return (yield from super().rounds(server))
        discrete = server.grade == "secure"
        return (yield from replace(self.handed, discrete=discrete).rounds(server))

    def error_of(self, facts: Facts) -> Prediction:
        """Bound the l2 distance for users who differ as the radius says; exact without noise."""
        if math.isinf(self.epsilon) or self.handed is not None:
            return super().error_of(facts)
        source = "lam r sqrt(d / K), or the noise; Narayanan et al. 2022, Theorems 4 and 6"
        return Prediction(L2, self.bound(), "bound", source)

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the l2 error of any protocol on users as far apart as r says. NOT PRIVATE."""
        n = max(facts.n_users, self.n_users)
        r = min(self.row_radius, self.box or math.inf)
        return tuple(
            central_mean_bounds(self.guarantee, n, r, L2, 1, "users' means within the radius")
        )

    def own_means(self, users: Users) -> Array:
        """Average each user's samples: (n, d); NaN without a finite mean. NOT PRIVATE."""
        return user_points(samples_of(users, self.dimension))

    def loss(self, value: Array, truth: Array) -> float:
        return l2(value, truth)

    @classmethod
    def example(cls) -> Self:
        return cls(
            epsilon=2.0,
            n_users=160,
            dimension=24,
            radius=1.0,
            box=10.0,
            method="blocks",
            n_blocks=2,
            lam=1.0,
            n_rounds=500,
        )

    @classmethod
    def example_users(cls) -> Users:
        """Make users of three samples whose means are about 1 away from (0.5, ..., 0.5)."""
        n, d, m = 160, 24, 3
        values = 0.5 + np.random.default_rng(11).standard_normal((n * m, d)) * math.sqrt(m / d)
        return Users.from_samples(np.arange(n, dtype=np.uint64), np.arange(n + 1) * m, values)
