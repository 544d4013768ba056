"""Empirical risk minimisation under user-level privacy: descent on private mean gradients [1]_.

Each round the server sends the current parameters, every user answers its average gradient there,
and the server takes a projected step along a private mean of the answers.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Appendix D, Theorems 29 and 30.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from clients.records.gradients import Model
from fedhist.base.arrays import Array
from fedhist.base.checks import check_integer, check_size, check_within
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts, measured
from fedhist.model.prediction import LowerBound
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query
from fedhist.model.registry import register_protocol
from fedhist.model.truths import Truth
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import check_budget
from fedhist.protocols.regression.gradient_oracles import mean_gradient
from fedhist.protocols.regression.theory import (
    EmpiricalRisk,
    Risk,
    SquaredRisk,
    squared_sums,
)
from fedhist.protocols.regression.user_gradients import UserGradients
from fedhist.protocols.shared.central import Central
from fedhist.protocols.shared.central_bounds import quadratic_risk_bounds
from fedhist.protocols.shared.sample_sizes import resolve_users
from fedhist.session.curator import Curator
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from fedhist.users.shards import Shard
from server.regression.descent import Tracking, project, step_size
from server.regression.plan import GradientPlan

EXCESS = "excess risk"

MOST_DIMENSIONS = 1 << 13
"""Truth and prediction solve systems of d x d numbers: half a gigabyte each."""


@register_protocol
@dataclass(frozen=True)
class UserLevelErm(Central):
    """Parameters of a linear or logistic regression that minimise the users' average loss.

    A user's samples are rows of d features and a response. The empirical risk is the average over
    users of each user's average loss, plus ridge / 2 |theta|^2, so that every user counts alike.
    All constants are public.

    Parameters
    ----------
    epsilon, delta : float
        The whole budget; ``epsilon = inf`` switches noise and clipping off (not private).
    n_users : int
        Planning value; the estimate uses the number who answered.
    dimension : int
        d, the number of features; at most 8,192.
    radius : float
        The parameters are kept in the l2 ball of this radius around 0, where descent starts.
    gradient_bound : float
        Bound G on the l2 norm of a user's average gradient; longer ones are clipped.
    spread : float
        Typical distance r of a user's average gradient from the mean gradient; for m samples with
        gradients of std s in every direction it is s sqrt(d / m).
    smoothness, strong_convexity : float
        Bounds L and mu on the eigenvalues of the Hessian of the average loss, ridge apart.
    model : {"least-squares", "logistic"}
        Half the squared residual, or the log loss with labels 1 against 0 or -1.
    ridge : float
        Weight of the penalty ridge / 2 |theta|^2.
    oracle : {"tracked", "fixed", "few-users"}
        "tracked" (default): clip around the last released gradient. "fixed": around 0, by G.
        "few-users": a draw near most users' gradients. It needs users as sqrt(T) / epsilon in any
        dimension, but is lam r sqrt(d) off, which is of use only while gradients are longer than
        that: for samples per user well above d^2.
    curvature : float
        With "tracked": public guess h of the Hessian; the centre follows moves by h I.
    steps : int
        T.
    step : float, optional
        Default: 2 / (L + mu), or 1 / L if mu = 0, with the ridge in both.
    iterate : {"last", "average"}
        What is returned: the last iterate or the average of all T.
    discrete : bool
        Integer messages and discrete noise; needed for secure noise.
    kappa : float
        With "few-users": share of the users whose balls should meet; 1 - kappa may be corrupted.
    lam : float, optional
        With "few-users": radius of the balls in units of r sqrt(d). Default: 1 below 16
        dimensions, otherwise .5.
    max_failed : float
        With "few-users": share of the steps that may draw no gradient; they are skipped. More are
        a failure. Default: none may.
    trust : Aggregation, optional
        The nodes add the noise, as one series of T rounds; needs ``discrete``, a finite epsilon and
        an oracle that adds gradients.

    Privacy
    -------
    (epsilon, delta)-DP under replacement of a user's whole record. In each round a user's offset
    lies in a ball of radius 2 r_t around a centre that was released before, hence the mean moves
    by at most 4 r_t / n; the T Gaussians compose exactly to one. With "few-users" every step is
    delta / (2 T)-approximate zCDP, and the T of them share rho(epsilon, delta / 2).

    Error
    -----
    Excess risk of order G R exp(-T mu / L) + d r^2 T / (mu n^2 epsilon^2) [1, Theorem 29.2];
    :meth:`error` predicts it with constants.

    Examples
    --------
    >>> UserLevelErm.example().max_rounds
    5
    """

    name: ClassVar[str] = "user-level-erm"
    paper: ClassVar[str] = "Narayanan, Mirrokni & Esfandiari, ICML 2022, Appendix D"
    target: ClassVar[str] = "parameters"
    loss_name: ClassVar[str] = "excess risk"
    display: ClassVar[Display | None] = Display(label="parameter of the model")

    epsilon: float
    delta: float
    n_users: int
    dimension: int
    radius: float
    gradient_bound: float
    spread: float
    smoothness: float
    strong_convexity: float = 0.0
    model: Model = "least-squares"
    ridge: float = 0.0
    oracle: str = "tracked"
    curvature: float = 0.0
    steps: int = 16
    step: float | None = None
    iterate: Literal["last", "average"] = "last"
    discrete: bool = False
    kappa: float = 0.6
    lam: float | None = None
    max_failed: float = 0.0
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_integer("dimension", self.dimension, MOST_DIMENSIONS)
        check_size("radius", self.radius)
        check_size("ridge", self.ridge, zero=True)
        check_within("max_failed", self.max_failed, 0, 1, "[)")
        if self.step is not None and not 0 < self.step < math.inf:
            raise ValueError(f"step must be positive and finite, got {self.step}")
        self.check_integers(self.discrete)
        if self.trust is not None and self.plan.noiseless:
            raise ValueError("without noise nothing is clipped, and nodes cannot add integers")
        zero = np.zeros(self.plan.dimension)
        _ = self.asks(UserGradients(self.model, zero, zero, self.gradient_bound, self.discrete), 0)

    def asks(self, query: Query, round_index: int) -> Query:
        """Under aggregate trust, for shares of a series of T rounds."""
        if self.trust is None:
            return query
        return self.shared(query, self.epsilon, self.delta, rounds=self.steps, place=round_index)

    # -- the plan, from public numbers -----------------------------------------------------------

    @property
    def plan(self) -> GradientPlan:
        """The oracle, its noise and its fewest users."""
        users = self.gradient_bound, self.spread
        bends = self.smoothness, self.strong_convexity, self.curvature
        tracking = Tracking(*(float(x) for x in (*users, *bends)))
        return GradientPlan(
            self.oracle,
            float(self.epsilon),
            float(self.delta),
            self.n_users,
            self.dimension,
            self.steps,
            tracking,
            self.discrete,
            float(self.kappa),
            self.lam,
            self.trust,
        )

    @property
    def learning_rate(self) -> float:
        """The step in use."""
        if self.step is not None:
            return float(self.step)
        low = self.strong_convexity + self.ridge
        return step_size(self.smoothness + self.ridge, low)

    @property
    def max_rounds(self) -> int:
        """One for each step."""
        return self.steps

    # -- the script ------------------------------------------------------------------------------

    def rounds(self, server: Curator) -> Script:
        """Descend T steps."""
        plan = self.plan
        if server.grade == "secure" and not plan.secure:
            way_out = "take another oracle" if self.oracle == "few-users" else "set discrete = true"
            return Estimate.refused(f'noise = "secure" draws integers only: {way_out}')
        if self.n_users < plan.least_users:
            return Estimate.refused(
                f"{self.n_users} users are too few for {self.steps} steps in {self.dimension} "
                f"dimensions with oracle {self.oracle!r}; at least {plan.least_users} are needed"
            )
        oracle = mean_gradient(server, self.model, plan)
        theta, mean = np.zeros(self.dimension), np.zeros(self.dimension)
        for _ in range(self.steps):
            gradient = yield from oracle.ask(theta)
            if not oracle.n_users:
                return Estimate.failed("nobody answered")
            if oracle.failed > self.max_failed * self.steps:
                return Estimate.failed(
                    f"{oracle.failed} steps drew no gradient; {self.max_failed:g} of {self.steps} "
                    "may"
                )
            if gradient is not None:
                move = self.learning_rate * (gradient + self.ridge * theta)
                theta = project(theta - move, self.radius)
            mean = mean + theta / self.steps
        return Estimate.ok(
            mean if self.iterate == "average" else theta,
            warnings=plan.warnings,
            public={
                "n_users": float(oracle.n_users),
                "failed_steps": float(oracle.failed),
                **oracle.public,
            },
        )

    # -- evaluation ------------------------------------------------------------------------------

    @property
    def adds_up(self) -> bool:
        """Whether products of samples are all that the risk depends on: where it is quadratic.

        A logistic risk needs the samples at each place it is asked for.
        """
        return self.model == "least-squares" and self.plan.balls is None

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up the users' average products of samples. NOT PRIVATE."""
        return {"unusable": np.array([users.n_unusable()]), **squared_sums(users)}

    def risk(self, users: Shard) -> Risk:
        """Return the empirical risk of the usable users. NOT PRIVATE."""
        return self.risk_of(measured(self, users))

    def risk_of(self, facts: Facts) -> Risk:
        """Return the empirical risk of the usable users. NOT PRIVATE."""
        if "risk" not in facts.notes:
            ridge = float(self.ridge)
            if self.adds_up:
                facts.notes["risk"] = SquaredRisk.read(facts.total.sums, ridge)
            else:
                facts.notes["risk"] = EmpiricalRisk.of(facts.records, self.model, ridge)
        risk: Risk = facts.notes["risk"]
        return risk

    def truth_of(self, facts: Facts) -> Array:
        """Return the minimiser of the empirical risk in the ball, (d,). NOT PRIVATE.

        Users without usable samples do not count here. In a run each counts as the centre, which
        is no bias where the centre follows the gradient; around 0, a share s of them weakens the
        gradient against the ridge by 1 - s.
        """
        return self.risk_of(facts).minimise(self.radius)

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        """Count users whose record the null record replaces."""
        n = facts["unusable"][0] if self.adds_up else facts.records.n_unusable()
        return {"unusable records": float(n)}

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the excess risk of any protocol for least squares from below."""
        return self.bounds_for(facts.n_users)

    def bounds_for(self, n_users: int) -> tuple[LowerBound, ...]:
        """Bound the excess risk of any protocol for least squares from below. NOT PRIVATE."""
        if self.model != "least-squares":
            return ()
        bends = float(self.strong_convexity), float(self.smoothness), float(self.ridge)
        lengths = float(self.radius), float(self.spread), float(self.gradient_bound)
        n = max(n_users, self.n_users)
        return tuple(quadratic_risk_bounds(self.guarantee, n, lengths, bends, EXCESS))

    @property
    def estimates(self) -> Truth:
        """The minimiser of the users' average risk."""
        return Truth.AVERAGE_RISK

    def loss(self, value: Array, truth: Array) -> float:
        """Return L / 2 times the squared distance, which the excess risk inside the ball is below.

        :meth:`loss_of`, which has the users, measures the excess risk itself.
        """
        return float((self.smoothness + self.ridge) / 2 * np.sum(np.square(value - truth)))

    def loss_of(
        self,
        estimate: Estimate,
        users: Shard,
        truth: Array | None = None,
        known: Facts | None = None,
    ) -> float:
        """Return the excess empirical risk over the minimiser. NOT PRIVATE."""
        value = estimate.needed(self.name)
        facts = measured(self, users) if known is None else known
        risk = self.risk_of(facts)
        truth = facts.truth if truth is None else truth
        return risk.value(value) - risk.value(truth)

    @classmethod
    def example(cls) -> Self:
        """Fit three features of users whose features are nearly uncorrelated."""
        return cls(
            epsilon=8.0,
            delta=1e-6,
            n_users=120,
            dimension=3,
            radius=2.0,
            gradient_bound=1.5,
            spread=0.6,
            smoothness=1.05,
            strong_convexity=0.95,
            steps=5,
        )

    @classmethod
    def example_users(cls) -> Users:
        """Make users with features near +-1 and labels -1 or 1; one user has none, one has NaN."""
        rng = np.random.default_rng(11)
        n, m = 120, 4
        x = np.tile([[1.0, 1, 1], [1, -1, 1], [1, 1, -1], [1, -1, -1]], (n, 1))
        x = x * rng.choice([-1.0, 1.0], (n * m, 1)) + rng.uniform(-0.1, 0.1, x.shape)
        y = np.where(x @ [0.8, -0.5, 0.2] + rng.normal(0.0, 0.7, n * m) > 0, 1.0, -1.0)
        sizes = np.full(n, m)
        sizes[7], y[-1] = 0, np.nan
        keep = np.repeat(sizes > 0, m)
        names = Keys.of([f"user-{i:03d}" for i in range(n)])
        indptr = np.append(0, np.cumsum(sizes))
        return Users.from_samples(user_ids(names), indptr, np.column_stack((x, y))[keep])

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Take n_users and d, which are public, from the population."""
        dimension = max(1, users.none.reals.values.shape[1] - 1)
        return resolve_users(parameters, users, dimension=dimension)
