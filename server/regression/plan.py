"""The plan of private mean gradients: which oracle, its noise, its fewest users; public numbers.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Appendix D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedhist.base.checks import check_choice, check_integer
from fedhist.base.text import warned
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import check_budget, gaussian_multiplier
from server.few_users.plan import ball_volume, few_n_min, part_budget, rounds_needed
from server.regression.descent import Tracking, gradient_std, least_users

ORACLES = ("tracked", "fixed", "few-users")


@dataclass(frozen=True)
class BallPlan:
    """One of T draws near most users' gradients; public numbers only.

    Attributes
    ----------
    epsilon, delta : float
        Budget of one draw.
    kappa : float
        Share of the users whose balls should meet.
    radius : float
        R = lam r sqrt(d): also the error of a draw, within a share 1 / d or so.
    n_rounds : int
        Mean number of proposals of a draw.
    least : int
        Fewest users with which all T draws succeed but with the given probability.
    """

    epsilon: float
    delta: float
    kappa: float
    radius: float
    n_rounds: int
    least: int


def plan_balls(
    epsilon: float,
    delta: float,
    steps: int,
    d: int,
    spread: float,
    *,
    kappa: float = 0.6,
    lam: float | None = None,
    failure: float = 0.01,
) -> BallPlan:
    """Share a budget among T draws: delta / 2 for their slack, the rest as zCDP.

    Parameters
    ----------
    epsilon, delta : float
        Finite; of all draws.
    steps, d : int
    spread : float
        r: typical distance of a user's gradient from the mean gradient.
    kappa : float
    lam : float, optional
        Default: 1 below 16 dimensions, otherwise .5.
    failure : float
        Of all draws together, about.

    Examples
    --------
    >>> one = plan_balls(1.0, 1e-6, 1, 100, 0.1)
    >>> one.least, round(one.radius, 3)
    (73, 0.5)
    """
    each, slack = part_budget(epsilon, delta, steps)
    width = lam if lam is not None else (0.5 if d >= 16 else 1.0)
    v = ball_volume(width, kappa)
    least = few_n_min(each, slack, kappa=kappa, lam=width, failure=failure / steps)
    n_rounds = rounds_needed(v, kappa, failure / steps)
    return BallPlan(each, slack, kappa, width * spread * math.sqrt(d), n_rounds, least)


@dataclass(frozen=True)
class GradientPlan:
    """T private mean gradients within one budget.

    Attributes
    ----------
    oracle : {"tracked", "fixed", "few-users"}
        Clip around the last released gradient, clip around 0, or draw near most gradients.
    epsilon, delta : float
        Of all T together; ``epsilon = inf`` needs no plan: all oracles are exact then.
    n_users, dimension, steps : int
    tracking : Tracking
        Its first clip is that of "fixed", and of the rows of "few-users".
    discrete : bool
    kappa : float
    lam : float or None
    trust : Aggregation or None
        The nodes add the noise, which is that of all their shares.
    """

    oracle: str
    epsilon: float
    delta: float
    n_users: int
    dimension: int
    steps: int
    tracking: Tracking
    discrete: bool = False
    kappa: float = 0.6
    lam: float | None = None
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if not self.delta > 0:
            raise ValueError(f"private gradients need delta > 0, got {self.delta}")
        for name in ("n_users", "dimension", "steps"):
            check_integer(name, getattr(self, name))
        check_choice("oracle", self.oracle, ORACLES)
        if self.discrete and self.oracle == "few-users":
            raise ValueError('oracle "few-users" draws real points; discrete must be false')
        if not 0.5 < self.kappa < 1:
            raise ValueError(f"kappa must lie in (1/2, 1), got {self.kappa}")
        if self.lam is not None and not 0 < self.lam < math.inf:
            raise ValueError(f"lam must be positive and finite, got {self.lam}")

    @property
    def noiseless(self) -> bool:
        """Whether nothing is private."""
        return math.isinf(self.epsilon)

    @property
    def secure(self) -> bool:
        """Whether secure noise can serve it: nothing real-valued is drawn."""
        return self.discrete or self.noiseless

    @property
    def multiplier(self) -> float:
        """Noise multiplier of all Gaussians together: std per unit of l2 sensitivity.

        Discrete ones too: of the 2^20 steps of a gradient they cost less than one.
        """
        one = gaussian_multiplier(self.epsilon, self.delta)
        return one if self.trust is None else one * self.trust.excess

    @property
    def balls(self) -> BallPlan | None:
        """The draws of "few-users"; None with another oracle, and without noise."""
        if self.oracle != "few-users" or self.noiseless:
            return None
        budget = self.epsilon, self.delta
        spread = self.tracking.spread
        return plan_balls(
            *budget, self.steps, self.dimension, spread, kappa=self.kappa, lam=self.lam
        )

    @property
    def least_users(self) -> int:
        """Fewest users with which a run makes sense; below, it is refused."""
        balls = self.balls
        return balls.least if balls else least_users(self.multiplier, self.steps, self.dimension)

    def noise_std(self, moved: float | None) -> float:
        """Noise std of a mean gradient after a move of that length; None: the first one.

        That of a draw is its distance from the gradient, which hardly varies, over sqrt(d).
        """
        if (balls := self.balls) is not None:
            return balls.radius / math.sqrt(self.dimension)
        first = moved is None or self.oracle == "fixed"
        clip = self.tracking.gradient_bound if first else self.tracking.clip(moved or 0.0)
        return gradient_std(clip, self.multiplier, self.steps, self.n_users)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before the result is used."""
        noise = self.noise_std(0.0) * math.sqrt(self.dimension)
        if self.oracle == "tracked" and noise > self.tracking.spread:
            return (
                warned(
                    f"the noise in a released gradient has length {noise:.3g}, more than spread = "
                    f"{self.tracking.spread:g}",
                    "the centre may leave the users' gradients, and the minimiser be far off",
                    "more users, a larger epsilon or fewer steps lower the noise",
                ),
            )
        return ()
