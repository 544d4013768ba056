"""Mean of vectors in a Euclidean ball under user-level local differential privacy [1]_.

A public random rotation spreads every vector over all coordinates, so that each of them is short
and concentrates; the users of fold j run the univariate procedure on rotated coordinate j of their
own mean. The error grows linearly in the dimension, where coordinate folds would be quadratic.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.3, eq. (33)-(37), Lemma 7, Theorem 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from clients.randomizers.sphere import ball_means
from clients.records.functionals import Rotated, samples_of
from clients.records.user_rows import user_points
from fedhist.base.arrays import Array
from fedhist.base.hashing import digest64
from fedhist.channels.hadamard import fwht, next_power_of_two
from fedhist.model.losses import SQUARED_L2
from fedhist.model.protocol import ErrorBound
from fedhist.model.registry import register_protocol
from fedhist.model.results import Goal, ResultsRow
from fedhist.protocols.localize.script import FoldEstimates
from fedhist.protocols.means.mean_linf import FoldMean
from fedhist.protocols.means.results import fold_row
from fedhist.protocols.shared.lower_bounds import ParameterSet
from fedhist.protocols.shared.mean_target import PlannedMean
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from server.means.localize import Plan

SIGN_FAILURE = 0.05
"""Chance, over the signs, that a rotated mean on the sphere has a coordinate beyond the range."""


@register_protocol
@dataclass(frozen=True)
class MeanL2(PlannedMean, FoldMean):
    """Mean in the ball of a radius that all users share, under local differential privacy.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value; a fold is planned for n_users / d2 users, where d2 is the next power
        of two of the dimension.
    dimension : int
        d; vectors are padded by zeros to d2 coordinates.
    samples_per_user : float
        Public planning value T, as for :class:`~fedhist.protocols.means.mean.Mean`;
        ``"harmonic-mean"`` in a configuration.
    radius : float
        A sample of a larger l2 norm is scaled down to it before averaging.
    c_sigma : float
        A rotated coordinate of a user's mean is planned with the standard deviation
        c_sigma radius / sqrt(d2 T), but at most radius / sqrt(T). On average over the coordinates 1
        is a bound; 1.25 leaves room for those that get more. Where the samples may lie on one line
        (a covariance of rank one) rare wrong windows then make the error up to 2.5 times the
        predicted one; 1.5 avoids that, for 1.4 times the error of other samples. Enlarge it if the
        users' own means differ.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of the second round; "auto" takes the one of least variance.
    mode : {"default", "paper"}
        "paper" follows the published procedure: range [-radius, radius] and
        delta = radius sqrt(K log(n epsilon^2 T*) / (T* d2)), with K = 1/4, and c = 1/100 in T*.
    salt : int
        Public salt of the split into voters and reporters; folds and signs follow from it.

    Privacy
    -------
    epsilon-LDP for a user's whole record, for every choice of signs, sequentially interactive:
    fold, cohort and signs are public and know nothing of the data, and each user answers one
    epsilon-LDP query about one scalar. Rotation and projection of the answers are post-processing.

    Error
    -----
    Of order d log(n epsilon^2 T) / (n T epsilon^2) + e^{-c n epsilon^2 / d} in squared l2, for
    epsilon <= 1 and radius 1 [1, Theorem 6]; d2 ``plan.risk`` predicts it with constants, before
    the projection on the ball, which can only help.

    Examples
    --------
    >>> MeanL2(epsilon=1.0, n_users=16000, dimension=8, samples_per_user=100).plan.n_bins > 8
    True
    """

    name: ClassVar[str] = "mean-l2"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 3.3"
    goals: ClassVar[tuple[Goal, ...]] = (
        Goal(
            0.05,
            words="d = 8, T = 100",
            protocol={"samples_per_user": 100, "dimension": 8},
            population={"samples_per_user": 100, "dimension": 8},
        ),
    )
    radius: float = 1.0
    c_sigma: float = 1.25

    def __post_init__(self) -> None:
        self._check()
        for what in ("radius", "c_sigma"):
            x = getattr(self, what)
            if not 0 < x < math.inf:
                raise ValueError(f"{what} must be positive and finite, got {x}")
        _ = self.functional

    @property
    def n_folds(self) -> int:
        """The rotated coordinates, d2."""
        return next_power_of_two(self.dimension)

    @property
    def scale(self) -> float:
        """Standard deviation of a rotated coordinate of a user's mean that is planned with.

        Given the signs, a rotated coordinate of one sample has variance u' Sigma u, where Sigma is
        the samples' covariance and u a row of the rotation; its average over the rows is
        tr(Sigma) / d2 <= radius^2 / d2.
        """
        share = min(1.0, self.c_sigma / math.sqrt(self.n_folds))
        return self.radius * share / math.sqrt(self.samples_per_user)

    @property
    def half_range(self) -> float:
        """Half range of the rotated coordinates.

        A coordinate of a rotated vector of length r is a sum of independent signs, beyond t with
        probability 2 exp(-t^2 d2 / (2 r^2)) at most; there are d2 of them.
        """
        d2 = self.n_folds
        return self.radius * min(1.0, math.sqrt(2 * math.log(2 * d2 / SIGN_FAILURE) / d2))

    @property
    def plan(self) -> Plan:
        """Bins, shares and widths of one rotated coordinate; from public numbers only."""
        return self.fold_plan(self.n_users / self.n_folds, self.half_range)

    @property
    def feasible(self) -> bool:
        """Whether the estimate is expected to beat the centre of the ball, radius^2 at most.

        That is less than the range's midpoint costs coordinate by coordinate.
        """
        return self.plan.feasible and self.n_folds * self.plan.risk <= self.radius**2

    @property
    def functional(self) -> Rotated:
        """Fold j is rotated coordinate j."""
        signs = digest64("fedhist.rotation", self.salt) >> 1
        return Rotated(
            self.dimension,
            float(self.radius),
            signs,
            clip=float(self.half_range),
            max_items=self.plan.max_items,
        )

    def conclude(self, found: FoldEstimates) -> tuple[Array, Array]:
        """Rotate back, drop the padding, project on the ball.

        The standard error is that of the rotated estimate before the projection; the folds are
        independent, so that every coordinate has the folds' average variance.
        """
        root = math.sqrt(self.n_folds)
        value = (self.functional.signs * fwht(found.value) / root)[: self.dimension]
        norm = float(np.linalg.norm(value))
        if norm > self.radius:
            value *= self.radius / norm
        stderr = float(np.sqrt(np.mean(np.square(found.stderr))))
        return value, np.full(self.dimension, stderr)

    @property
    def parameter_set(self) -> ParameterSet:
        """The ball."""
        return ParameterSet("ball", self.dimension, float(self.radius), self.samples_per_user)

    def own_means(self, users: Users) -> Array:
        """Average each user's samples: (n, d); NaN for none, or one not finite. NOT PRIVATE."""
        return user_points(samples_of(users, self.dimension))

    def clipped_means(self, users: Users) -> Array:
        """Average each user's samples, scaled onto the ball: (n, d). NOT PRIVATE."""
        samples = samples_of(users, self.dimension)
        means = ball_means(samples, float(self.radius))
        return np.where(np.isnan(user_points(samples)), np.nan, means)

    def planned_error(self) -> ErrorBound:
        """Predict the mean squared l2 error by the plan."""
        source = "d2 times the plan's risk of n / d2 users; Kent et al., 2405.11923, Theorem 6"
        most = (2 * self.radius) ** 2  # estimate and clipped mean lie in the ball
        risk = min(self.n_folds * self.plan.risk, most)
        return ErrorBound(SQUARED_L2, risk, exact=False, source=source)

    @classmethod
    def results(cls) -> Sequence[ResultsRow]:
        """Hold the prediction against runs."""
        padded = "n=16000 d=5 (8 rows) T=64 eps=2 onebit"
        some = "n=32000 d=16 T=256 eps=1 piecewise"
        edge = "EDGE n=5600 d=8 T=1024 eps=1 laplace"
        return (
            fold_row(some, (32_000, 16, 256), (1.0, "piecewise"), 100, 0.1, ball=True),
            fold_row(padded, (16_000, 5, 64), (2.0, "onebit"), 200, 0.1, ball=True),
            fold_row(edge, (5_600, 8, 1024), (1.0, "laplace"), 800, 0.25, ball=True),
        )

    @classmethod
    def example(cls) -> Self:
        """Build a small instance with two rounds, and a padded coordinate."""
        return cls(epsilon=2.0, n_users=1200, dimension=3, samples_per_user=64)

    @classmethod
    def example_users(cls) -> Users:
        """Make users with samples +-e_k, each of whom has the mean (.25, -.125, 0) exactly."""
        rng = np.random.default_rng(5)
        n, T = 1200, 64
        steps = np.repeat([0, 0, 1, 1, 2, 2], [24, 8, 8, 16, 4, 4])
        sign = np.repeat([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], [24, 8, 8, 16, 4, 4])
        samples = sign[:, None] * np.eye(3)[steps]
        values = samples[rng.permuted(np.tile(np.arange(T), (n, 1)), axis=1)]
        ids = user_ids(Keys.range(n))
        return Users.from_samples(ids, np.arange(n + 1) * T, values.reshape(-1, 3))
