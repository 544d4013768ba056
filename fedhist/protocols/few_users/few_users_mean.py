"""Means of vectors from few users under central user-level privacy.

See :mod:`fedhist.protocols.few_users.protocol`, also for the papers that are meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from clients.records.functionals import samples_of
from clients.records.user_rows import user_points
from fedhist.base.arrays import Array
from fedhist.model.evaluation import Facts
from fedhist.model.losses import L2, l2
from fedhist.model.prediction import LowerBound, Prediction
from fedhist.model.registry import register_protocol
from fedhist.protocols.few_users.protocol import FewUsers
from fedhist.protocols.few_users.user_means import UserMeans
from fedhist.protocols.shared.central_bounds import WITHIN, central_mean_bounds
from fedhist.protocols.shared.mean_target import MeanTarget
from fedhist.users.batch import Users

DEFAULT_BOX = 2.0**30
"""Norm to which a user's mean is shortened where no box is given, in radii."""


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
        "auto": the feasible one of least predicted error, from public numbers. Where users may
        differ more than ``radius`` says, take the protocol ``central-mean``.
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
    early_exit : bool
        Stop drawing at the first accepted round: UNSAFE AGAINST TIMING.
    salt : int
        Public salt of the random rotation.

    Privacy
    -------
    (epsilon, delta)-DP under replacement of one user, for every data set: see
    :class:`~server.few_users.sampler.BallSampler`,
    :func:`~server.few_users.interpolation.release_draws` and
    :func:`~server.few_users.large_n.release_large_n`. Radius, box and corrupted share matter for
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
    revision: ClassVar[int] = 4
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
            x = getattr(self, what)
            if x is not None and not 0 < x < math.inf:
                raise ValueError(f"{what} must be positive and finite, got {x}")
        m = self.samples_per_user
        if m is not None and not 1 <= m < math.inf:
            raise ValueError(f"samples_per_user must be at least 1, got {m}")
        super().__post_init__()
        _ = self.query

    @property
    def row_dimension(self) -> int:
        """The samples' dimension."""
        return self.dimension

    @property
    def row_radius(self) -> float:
        """The radius, or r0 / sqrt(m)."""
        if self.sample_radius is not None and self.samples_per_user is not None:
            return self.sample_radius / math.sqrt(self.samples_per_user)
        return self.radius or math.nan

    @property
    def row_box(self) -> float | None:
        """The box."""
        return self.box

    @property
    def query(self) -> UserMeans:
        """The users' own means."""
        return UserMeans(self.dimension, float(self.box or DEFAULT_BOX * self.row_radius))

    def error_of(self, facts: Facts) -> Prediction:
        """Bound the l2 distance for users who differ as the radius says; exact without noise."""
        if math.isinf(self.epsilon):
            return super().error_of(facts)
        source = "lam r sqrt(d / K), or the noise; Narayanan et al. 2022, Theorems 4 and 6"
        return Prediction(L2, self.bound(), "bound", source)

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the l2 error of any protocol on users as far apart as r says. NOT PRIVATE."""
        n = max(facts.n_users, self.n_users)
        r = min(self.row_radius, self.row_box or math.inf)
        return tuple(central_mean_bounds(self.guarantee, n, r, L2, 1, WITHIN))

    def own_means(self, users: Users) -> Array:
        """Average each user's samples: (n, d); NaN without a finite mean. NOT PRIVATE."""
        return user_points(samples_of(users, self.dimension))

    def loss(self, value: Array, truth: Array) -> float:
        """L2 distance."""
        return l2(value, truth)

    @classmethod
    def example(cls) -> Self:
        """Build a small instance."""
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
