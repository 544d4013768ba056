"""Private mean-gradient oracles: each asks one round for the mean gradient at a public point.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Appendix D.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.query import Query, Summary
from fedhist.protocols.regression.user_gradients import NAME, UserGradients
from fedhist.session.curator import Curator
from server.few_users.sampler import POINT, BallSampler, bucket_params
from server.regression.descent import gradient_std
from server.regression.plan import BallPlan, GradientPlan

Asking = Generator[Query, Summary, Floats | None]


class MeanGradient(ABC):
    """Answers T questions for the mean gradient, within one budget.

    Attributes
    ----------
    n_users : int
        Users who answered the last round.
    failed : int
        Rounds without a gradient.
    public : dict of str to float
        Public numbers of the last round.
    """

    n_users: int = 0
    failed: int = 0

    def __init__(self) -> None:
        self.public: dict[str, float] = {}

    @abstractmethod
    def ask(self, theta: Floats) -> Asking:
        """Ask one round; return the released mean gradient, or None where the step failed."""


class ClippedGaussian(MeanGradient):
    """Gaussian noise on the sum of the clipped offsets from a centre, which may be tracked.

    Parameters
    ----------
    server : Curator
        Charged here, once for all T rounds.
    model : str
    plan : GradientPlan

    Privacy
    -------
    (epsilon, delta)-DP in all, under replacement. Given what was released before, the centre and
    the clip are fixed, and the sum moves by 2 clip at most: T adaptive Gaussians.
    """

    def __init__(self, server: Curator, model: str, plan: GradientPlan) -> None:
        super().__init__()
        self._discrete = plan.discrete and not plan.noiseless
        self._release = server.gaussian_series(
            plan.steps,
            epsilon=plan.epsilon,
            delta=plan.delta,
            discrete=self._discrete,
            label="mean-gradients",
        )
        self._model, self._plan = model, plan
        self._zero = np.zeros(plan.dimension)
        self._last: tuple[Floats, Floats] | None = None

    def ask(self, theta: Floats) -> Asking:
        """Clip around the centre that the last released gradient suggests, add up, add noise."""
        query = UserGradients(self._model, theta, *self._region(theta), discrete=self._discrete)
        summary = yield query
        self.n_users = summary.n_users
        if not self.n_users:
            return None
        sensitivity = 0.0 if self._plan.noiseless else query.l2_sensitivity
        total = self._release(summary.sums[NAME], sensitivity)
        gradient = query.mean(total, self.n_users)
        self._last = theta, gradient
        if not self._plan.noiseless:
            plan = self._plan
            std = gradient_std(query.clip, plan.multiplier, plan.steps, self.n_users)
            self.public = {"clip": query.clip, "gradient_std": std}
        return gradient

    def _region(self, theta: Floats) -> tuple[Floats, float]:
        """Return centre and clip of the next round; without noise nothing is clipped."""
        plan, tracking = self._plan, self._plan.tracking
        fixed = plan.oracle == "fixed" and not plan.noiseless
        if fixed or self._last is None:
            return self._zero, math.inf if plan.noiseless else tracking.gradient_bound
        before, gradient = self._last
        moved = theta - before
        clip = math.inf if plan.noiseless else tracking.clip(float(np.linalg.norm(moved)))
        return tracking.centre(gradient, moved), clip


class BallMean(MeanGradient):
    """A draw near most of the users' gradients, for few users in high dimension [1, Appendix D].

    Parameters
    ----------
    server : Curator
        Charged in every round.
    model : str
    plan : GradientPlan
        Rows are clipped to its first clip on the client; the privacy of a draw does not need it.
    balls : BallPlan

    Attributes
    ----------
    failed : int
        Rounds that drew a bucket instead of a point.

    Privacy
    -------
    Each draw is (epsilon_t, delta_t)-DP under replacement for all rows and any number of users,
    and delta_t-approximate epsilon_t^2/8-zCDP; T of them compose to (epsilon, delta). Which rounds
    failed is part of what is released.
    """

    def __init__(self, server: Curator, model: str, plan: GradientPlan, balls: BallPlan) -> None:
        super().__init__()
        self._server, self._model, self._balls = server, model, balls
        self._zero, self._bound = np.zeros(plan.dimension), plan.tracking.gradient_bound
        self.failed = 0

    def ask(self, theta: Floats) -> Asking:
        """Keep every user's row for one draw."""
        query = UserGradients(self._model, theta, self._zero, self._bound, keep_rows=True)
        summary = yield query
        self.n_users = summary.n_users
        if not self.n_users:
            return None
        balls = self._balls
        buckets = bucket_params(self.n_users, balls.epsilon, balls.delta, balls.kappa)
        sampler = BallSampler(summary.rows[NAME], balls.radius, buckets, balls.n_rounds)
        drawn = self._server.sample(sampler, label="mean-gradient")
        if int(drawn[0]) != POINT:
            self.failed += 1
            return None
        return np.asarray(drawn[1:], dtype=np.float64)


def mean_gradient(server: Curator, model: str, plan: GradientPlan) -> MeanGradient:
    """Build the plan's oracle; without noise all of them are the exact mean."""
    balls = plan.balls
    return BallMean(server, model, plan, balls) if balls else ClippedGaussian(server, model, plan)
