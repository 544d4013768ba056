"""What the protocols from few users share: budget, branch, one round, one release [1]_.

Each user sends the mean of its own samples. The users' means lie within a typical distance r of the
common mean, r falling as 1 / sqrt(samples per user); a private point close to most of them is the
estimate. How many users that takes does not grow with the dimension.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Algorithms 1 to 3, Theorems 4, 6, 7, Corollaries 5 and 8.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.text import warned
from fedhist.model.modes import Mode, TwoModes
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query
from fedhist.privacy.guarantee import check_budget
from fedhist.protocols.shared.central import Central
from fedhist.protocols.shared.sample_sizes import PlannedUsers
from server.few_users.interpolation import Released, release_draws
from server.few_users.large_n import release_large_n
from server.few_users.plan import FewUsersPlan, Method, Wishes, choose_branch

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


TIMED = warned(
    "early_exit: how long the run took depends on the data",
    "the estimate is the same, but who sees the time sees what no guarantee covers",
    "leave early_exit out where it can be seen",
)


TRUSTED = warned(
    "how far users differ was not looked at",
    "where they differ more than the public radius says, the mean is off by more than predicted",
    'the protocol "central-mean" draws a radius from the users',
)


@dataclass(frozen=True, kw_only=True)
class FewUsers(TwoModes, Central, PlannedUsers):
    """What the protocols of this family share: budget, branch and its constants.

    A subclass says how users make their rows, in how many coordinates, and how far apart they are.
    """

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
    early_exit: bool = False
    salt: int = 1

    def __post_init__(self) -> None:
        self.check_mode()
        check_budget(self.epsilon, self.delta)
        _ = self.plan

    @property
    @abstractmethod
    def row_dimension(self) -> int:
        """Coordinates of a user's row."""

    @property
    @abstractmethod
    def row_radius(self) -> float:
        """Typical l2 distance of a user's row from the common mean."""

    @property
    @abstractmethod
    def row_box(self) -> float | None:
        """Public bound on the norm of a row; None: no bound to speak of."""

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
        return choose_branch(
            n_users,
            self.row_dimension,
            self.row_radius,
            self.row_box,
            self.epsilon,
            self.delta,
            self.wishes,
        )

    @property
    def plan(self) -> FewUsersPlan:
        """The branch for the planned number of users."""
        return self.plan_for(self.n_users)

    @property
    def max_rounds(self) -> int:
        """One."""
        return 1

    def rounds(self, server: Curator) -> Script:
        """Ask every user for its row, then draw."""
        plan = self.plan
        if not plan.feasible:
            return Estimate.refused(
                f"{self.n_users} users are too few at epsilon = {self.epsilon:g} and dimension "
                f"{plan.dimension}: at least {plan.least_users} are needed (method {plan.method})"
            )
        if server.grade == "secure" and not plan.secure:
            return Estimate.refused(
                f'noise = "secure" has no exact sampler for this plan (method "{plan.method}"); '
                'method = "large-n" has, with more users'
            )
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
        if not plan.feasible:
            return Estimate.failed(
                f"{n} users answered; at least {plan.least_users} are needed", public=public
            )
        if server.grade == "secure" and not plan.secure:
            reason = f'{n} users answered; noise = "secure" does not have method "{plan.method}"'
            return Estimate.failed(reason, public=public)
        released = self._release(server, rows, plan)
        public |= {"radius": plan.part_radius, "predicted_error": plan.error} | released.public
        if released.value is None:
            return Estimate.failed(released.reason, public=public)
        large = plan.method == "large-n"
        why = [TRUSTED] if large else [TIMED] * self.early_exit
        if self.row_box is not None and plan.error > plan.box / 2:
            what = f"the predicted error, {plan.error:.3g}, is more than half of the box"
            means = "the middle of the box is about as good an estimate"
            why.append(warned(what, means, "more users or a larger epsilon lower it"))
        value = self.inside(released.value)
        return Estimate.ok(self.finish(value), public=public, warnings=tuple(why))

    def inside(self, mean: Array) -> Array:
        """Return the nearest point of the box, which holds all rows."""
        if self.row_box is None:
            return mean
        return np.asarray(mean * min(1.0, self.row_box / max(float(np.linalg.norm(mean)), 1e-300)))

    def _release(self, server: Curator, rows: Array, plan: FewUsersPlan) -> Released:
        if plan.method == "large-n":
            return release_large_n(server, rows, plan, salt=self.salt)
        return release_draws(server, rows, plan, salt=self.salt, early_exit=self.early_exit)

    def bound(self) -> float:
        """Bound the l2 distance from the common mean, where users differ as the radius says."""
        error = self.plan.error
        return error if self.row_box is None else min(error, 2 * self.row_box)
