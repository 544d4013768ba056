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
from clients.regression.queries import NAME, UserGradients
from clients.regression.risk import (
    LogisticRisk,
    Risk,
    SquaredRisk,
    minimise,
    project,
    squared_sums,
)
from fedhist.base.arrays import Array, Floats
from fedhist.base.checks import (
    check_choice,
    check_integer,
    check_scale,
    check_size,
    check_within,
)
from fedhist.base.errors import warned
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts, measured
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.model.truths import LowerBound, Truth
from fedhist.privacy.guarantee import check_budget, gaussian_multiplier
from fedhist.privacy.shares import Aggregation
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from fedhist.users.shards import Shard
from server.few_users.draws import POINT, BallSampler
from server.few_users.plan import FewUsersPlan, Wishes, choose_branch
from server.session.curator import Curator
from server.targets.lower_bounds import central_mean_bounds
from server.targets.sample_sizes import resolve_users
from server.trust import Central


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
        if not self.delta > 0:
            raise ValueError(f"private gradients need delta > 0, got {self.delta}")
        check_integer("n_users", self.n_users)
        check_integer("dimension", self.dimension, 1 << 13)  # truths solve d x d systems: 512 MB
        check_integer("steps", self.steps)
        check_size("radius", self.radius)
        check_size("ridge", self.ridge, zero=True)
        for name in ("gradient_bound", "spread", "smoothness"):
            check_scale(name, getattr(self, name))
        for name in ("strong_convexity", "curvature"):
            check_within(name, getattr(self, name), 0, self.smoothness)
        check_choice("oracle", self.oracle, ("tracked", "fixed", "few-users"))
        check_within("max_failed", self.max_failed, 0, 1, "[)")
        check_within("kappa", self.kappa, 0.5, 1, "()")
        for name in ("step", "lam"):
            if getattr(self, name) is not None:
                check_scale(name, getattr(self, name))
        self.check_integers(self.discrete)
        if self.discrete and self.oracle == "few-users":
            raise ValueError('oracle "few-users" draws real points; discrete must be false')
        if self.trust is not None and not self.guarantee.private:
            raise ValueError("without noise nothing is clipped, and nodes cannot add integers")
        zero = np.zeros(self.dimension)
        _ = self.asks(UserGradients(self.model, zero, zero, self.gradient_bound, self.discrete), 0)

    def asks(self, query: Query, round_index: int) -> Query:
        if self.trust is None:
            return query
        return self.shared(query, self.epsilon, self.delta, rounds=self.steps, place=round_index)

    # -- the plan, from public numbers -----------------------------------------------------------

    @property
    def balls(self) -> FewUsersPlan | None:
        """The draws of "few-users"; None with another oracle, and without noise."""
        if self.oracle != "few-users" or not self.guarantee.private:
            return None
        budget = float(self.epsilon), float(self.delta)
        wishes = Wishes("boosted", n_runs=self.steps, kappa=float(self.kappa), lam=self.lam)
        d, spread = self.dimension, float(self.spread)
        return choose_branch(self.n_users, d, spread, None, *budget, wishes)

    @property
    def multiplier(self) -> float:
        """Noise multiplier of all Gaussians together: std per unit of l2 sensitivity."""
        one = gaussian_multiplier(self.epsilon, self.delta)
        return one if self.trust is None else one * self.trust.excess

    @property
    def least_users(self) -> int:
        """Fewest users with which a run makes sense; below, it is refused."""
        balls = self.balls
        if balls is not None:
            return math.ceil(balls.least_users)
        return least_users(self.multiplier, self.steps, self.dimension)

    def clip_after(self, moved: float) -> float:
        """Return 2 r_t = 2 r + gap |theta' - theta|, but never more than the first clip.

        Between two steps the mean gradient moves by (integral of Hessian) (theta' - theta). With
        mu <= Hessian <= L and the guess h of it, it lies within max(L - h, h - mu) |theta' - theta|
        of the tracked centre g + h (theta' - theta), the noise in g apart [1, Proposition 28]. One
        r is for the users, the other for the noise in the centre.
        """
        gap = max(self.smoothness - self.curvature, self.curvature - self.strong_convexity)
        return min(self.gradient_bound, 2 * self.spread + gap * moved)

    @property
    def _lost(self) -> tuple[str, ...]:
        """Warn where the centre may leave the users' gradients."""
        std = gradient_std(self.clip_after(0.0), self.multiplier, self.steps, self.n_users)
        noise = std * math.sqrt(self.dimension)
        if self.oracle != "tracked" or noise <= self.spread:
            return ()
        return (
            warned(
                f"the noise in a released gradient has length {noise:.3g}, more than spread = "
                f"{self.spread:g}",
                "the centre may leave the users' gradients, and the minimiser be far off",
                "more users, a larger epsilon or fewer steps lower the noise",
            ),
        )

    @property
    def learning_rate(self) -> float:
        """The step in use: it shrinks the distance by (L - mu) / (L + mu), without noise."""
        if self.step is not None:
            return float(self.step)
        high, low = self.smoothness + self.ridge, self.strong_convexity + self.ridge
        return 2 / (high + low) if low else 1 / high

    @property
    def max_rounds(self) -> int:
        return self.steps

    # -- the script ------------------------------------------------------------------------------

    def rounds(self, server: Curator) -> Script:
        d, noisy, balls = self.dimension, self.guarantee.private, self.balls
        if server.grade == "secure" and noisy and not self.discrete:
            way_out = "take another oracle" if self.oracle == "few-users" else "set discrete = true"
            return Estimate.refused(f'noise = "secure" draws integers only: {way_out}')
        if self.n_users < self.least_users:
            return Estimate.refused(
                f"{self.n_users} users are too few for {self.steps} steps in {d} dimensions with "
                f"oracle {self.oracle!r}; at least {self.least_users} are needed"
            )
        discrete = self.discrete and noisy
        release = (
            None
            if balls
            else server.gaussian_series(
                self.steps,
                epsilon=float(self.epsilon),
                delta=float(self.delta),
                discrete=discrete,
                label="mean-gradients",
            )
        )
        theta, mean, failed = np.zeros(d), np.zeros(d), 0
        centre, clip = np.zeros(d), float(self.gradient_bound) if noisy else math.inf
        public: dict[str, float] = {}
        for _ in range(self.steps):
            query = UserGradients(self.model, theta, centre, clip, discrete, balls is not None)
            summary = yield query
            n = summary.n_users
            if not n:
                return Estimate.failed("nobody answered")
            gradient: Floats | None = None
            if balls:
                gradient = self._drawn(server, summary, balls)
            elif release:
                total = release(summary.sums[NAME], query.l2_sensitivity if noisy else 0.0)
                gradient = query.mean(total, n)
                if noisy:
                    std = gradient_std(clip, self.multiplier, self.steps, n)
                    public = {"clip": clip, "gradient_std": std}
            failed += gradient is None
            if failed > self.max_failed * self.steps:
                return Estimate.failed(
                    f"{failed} steps drew no gradient; {self.max_failed:g} of {self.steps} may"
                )
            if gradient is not None:
                move = self.learning_rate * (gradient + self.ridge * theta)
                before, theta = theta, project(theta - move, self.radius)
                if not balls and (self.oracle == "tracked" or not noisy):
                    centre = gradient + self.curvature * (theta - before)
                    moved = float(np.linalg.norm(theta - before))
                    clip = self.clip_after(moved) if noisy else math.inf
            mean = mean + theta / self.steps
        return Estimate.ok(
            mean if self.iterate == "average" else theta,
            warnings=self._lost,
            public={"n_users": float(n), "failed_steps": float(failed), **public},
        )

    def _drawn(self, server: Curator, summary: Summary, balls: FewUsersPlan) -> Floats | None:
        """Draw a point near most of the users' gradients, or None, a bucket [1, Appendix D].

        Privacy: (epsilon_t, delta_t)-DP under replacement for all rows and any number of users, and
        delta_t-approximate epsilon_t^2/8-zCDP. Which rounds failed is part of what is released.
        """
        budget = balls.part_epsilon, balls.part_delta
        buckets = balls.buckets(summary.n_users, *budget, balls.kappa)
        sampler = BallSampler(summary.rows[NAME], balls.part_radius, buckets, balls.n_rounds)
        drawn = server.sample(sampler, label="mean-gradient")
        return np.asarray(drawn[1:], dtype=np.float64) if int(drawn[0]) == POINT else None

    # -- evaluation ------------------------------------------------------------------------------

    @property
    def adds_up(self) -> bool:
        """Whether products of samples are all that the risk depends on: where it is quadratic."""
        return self.model == "least-squares"

    def sums(self, users: Users) -> Mapping[str, Array]:
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
                facts.notes["risk"] = LogisticRisk.of(facts.records, ridge)
        risk: Risk = facts.notes["risk"]
        return risk

    def truth_of(self, facts: Facts) -> Array:
        """Return the minimiser of the empirical risk in the ball, (d,). NOT PRIVATE.

        Users without usable samples do not count here. In a run each counts as the centre, which
        is no bias where the centre follows the gradient; around 0, a share s of them weakens the
        gradient against the ridge by 1 - s.
        """
        return minimise(self.risk_of(facts), self.radius)

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        n = facts["unusable"][0] if self.adds_up else facts.records.n_unusable()
        return {"unusable records": float(n)}

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the excess risk for least squares from below, by that of a mean. NOT PRIVATE.

        Of a risk with the Hessian a I whose users' gradients lie r from their mean, the minimiser
        is a mean of points r / a apart, and the excess a / 2 times its squared error. The least a
        is taken whose minimisers lie in the ball; none if the declared bounds do not allow it.
        """
        low, spread, radius = float(self.strong_convexity), float(self.spread), float(self.radius)
        a = max(low + self.ridge, spread / radius)
        hessian = max(low, a - self.ridge)
        fits = hessian <= self.smoothness and hessian * radius + spread <= self.gradient_bound
        if self.model != "least-squares" or not fits:
            return ()
        n, away = max(facts.n_users, self.n_users), spread / math.sqrt(2 * a)
        kind = "least squares with gradients within spread"
        return tuple(central_mean_bounds(self.guarantee, n, away, "excess risk", 2, kind))

    @property
    def estimates(self) -> Truth:
        return Truth.AVERAGE_RISK

    def loss(self, value: Array, truth: Array) -> float:
        """Return L / 2 times the squared distance, a bound on the excess risk inside the ball."""
        return float((self.smoothness + self.ridge) / 2 * np.sum(np.square(value - truth)))

    def loss_in(self, value: Array, known: Facts, truth: Array | None) -> float:
        """Return the excess empirical risk over the minimiser. NOT PRIVATE."""
        risk = self.risk_of(known)
        return risk.value(value) - risk.value(known.truth if truth is None else truth)

    @classmethod
    def example(cls) -> Self:
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
        return Users.from_samples(
            user_ids(names), indptr, np.column_stack((x, y))[keep], unusable=True
        )

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Take n_users and d, which are public, from the population."""
        dimension = max(1, users.none.reals.values.shape[1] - 1)
        return resolve_users(parameters, users, dimension=dimension)


def gradient_std(clip: float, multiplier: float, steps: int, n_users: int) -> float:
    """Noise std of each entry of a mean gradient: offsets in a ball move the sum by 2 clip.

    >>> gradient_std(0.5, 4.0, 25, 1000)
    0.02
    """
    return 2 * clip * multiplier * math.sqrt(steps) / n_users


def least_users(multiplier: float, steps: int, d: int) -> int:
    """Smallest n at which the first gradient's noise is shorter than the longest gradient.

    That is 2 multiplier sqrt(T d), the n >= sqrt(d T) / epsilon of [1, Theorem 29].

    >>> least_users(4.2247, 16, 25)
    169
    """
    return max(1, math.ceil(2 * multiplier * math.sqrt(steps * d)))
