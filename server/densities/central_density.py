"""Density of samples on [0, 1] with a trusted server: noise on the users' trigonometric means.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5: the series and its smoothness class.
.. [2] Balle & Wang, "Improving the Gaussian mechanism", ICML 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.densities.queries import (
    MEAN_STEPS,
    MOST_FREQUENCIES,
    FourierMeans,
    row_sensitivity,
)
from fedhist.base.checks import check_choice, check_integer, check_within
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import Adjacency, Moves, check_budget
from fedhist.privacy.noise_law import noise_per_sensitivity
from fedhist.privacy.shares import Aggregation
from server.densities.density_target import DensityTarget
from server.densities.plan import best_level
from server.densities.series import GRID
from server.targets.sample_sizes import PlannedSizes, surely_fewer
from server.trust import Central, add_noise

if TYPE_CHECKING:
    from server.session.curator import Curator


@register_protocol
@dataclass(frozen=True)
class CentralDensity(DensityTarget, PlannedSizes, Central):
    """Smooth density of the users' samples on [0, 1], with a trusted server.

    The value is the density on ``grid`` equal cells, non-negative and with mean 1;
    :func:`~server.densities.density.density_of` makes a function of it. The series is
    periodic: a density that differs at the two ends of [0, 1] is approximated slowly.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off, and the series is then not shrunk.
    n_users : int
        Public planning value; the estimate divides by the number who answered.
    samples_per_user : float
        Public planning value T, for the level only; ``"harmonic-mean"`` in a configuration, see
        :class:`~server.means.mean.Mean`.
    delta : float
        0: Laplace noise. Positive: Gaussian noise.
    adjacency : str
        "replace-user" (default) or "zero-out-user"; the number of users is public in both.
    discrete : bool
        Add integer noise to the integer sums, as secure noise needs it; of the same size.
    smoothness, radius : float
        beta and r of the Sobolev ellipsoid sum_j j^(2 beta) theta_j^2 <= r^2 that the level is
        chosen for [1, eq. (19)].
    level : int, optional
        Terms J of the series, the known one included; by default those of least predicted error,
        from public numbers. With 1 nobody is asked. An odd number is better: an even one leaves out
        a sine whose noise is paid.
    shrink : bool
        Whether to shrink the coefficients by how fast they fall.
    project : bool
        Whether to project onto the densities; otherwise the value is the series.
    grid : int
        Cells.
    truth_level : int
        Terms of the series that :meth:`truth` takes from the samples; for evaluation only.
    trust : Aggregation, optional
        The nodes add the noise; needs ``discrete``. The level is that of the server's noise.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record under the declared adjacency, for every level. A
    user's means of cos(2 pi k x) and sin(2 pi k x), k up to K, lie in the convex hull of a curve;
    replaced by others they move by its diameter at most, about 1.56 sqrt(K) in l2
    (:func:`~clients.densities.queries.curve_diameter`), emptied by sqrt(K); with the
    number of users who have samples beside them, under "replace-user", no further. Noise on the
    sum: the analytic Gaussian mechanism [2], or Laplace noise for sqrt(2 K) times as much in l1.
    What follows is post-processing.

    Error
    -----
    Integrated squared error of noise about 9.7 K^2 sigma^2 / n^2, with sigma the multiplier of
    (epsilon, delta), whatever T is; 2 K / (n T) of sampling; and the energy of the terms left out.
    Under "zero-out-user" a user without samples counts as the uniform density.

    Examples
    --------
    >>> CentralDensity(epsilon=1.0, n_users=20_000, samples_per_user=100, delta=1e-6).terms
    67
    """

    name: ClassVar[str] = "central-density"
    revision: ClassVar[int] = 2
    paper: ClassVar[str] = "noisy trigonometric means; baseline for arXiv 2405.11923, Section 5"
    epsilon: float
    n_users: int
    samples_per_user: float
    delta: float = 0.0
    adjacency: str = Adjacency.REPLACE_USER.value
    discrete: bool = False
    smoothness: float = 1.0
    radius: float = 1.5
    level: int | None = None
    shrink: bool = True
    project: bool = True
    grid: int = GRID
    truth_level: int = 65
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_choice("adjacency", self.adjacency, ("replace-user", "zero-out-user"))
        check_integer("n_users", self.n_users, 1 << 32)
        check_within("samples_per_user", self.samples_per_user, 1, math.inf, "[)")
        self.check_series()
        self.check_integers(self.discrete)
        _ = self.asks(self.query, 0)

    @cached_property
    def terms(self) -> int:
        if self.level is not None:
            return self.level
        adjacency, norm = Adjacency(self.adjacency), 2 if self.delta else 1

        def variance(level: int) -> float:
            exact = row_sensitivity(max(1, level // 2), norm, adjacency)
            return self._variance(level, self._unit_std * exact, self.n_users)

        most = min(self.grid - 1, 2 * MOST_FREQUENCIES + 1)
        return best_level(variance, self.smoothness, self.radius, most)

    def _variance(self, level: int, noise_std: float, n: float) -> float:
        """Predict the integrated variance of J terms, sampling and noise, where n users answer.

        phi_2k^2 + phi_{2k+1}^2 = 2: the variances of samples add up to at most (J - 1) / (n T).
        phi_j is sqrt(2) times what a user averages.
        """
        return (level - 1) * (2 * (noise_std / n) ** 2 + 1 / (n * self.samples_per_user))

    @property
    def _unit_std(self) -> float:
        """Standard deviation of the noise per unit of sensitivity."""
        return noise_per_sensitivity(self.epsilon, self.delta, self.discrete and self.delta > 0).std

    @property
    def query(self) -> FourierMeans:
        """The one question; there is none with one term."""
        counted = self.adjacency == Adjacency.REPLACE_USER.value
        return FourierMeans(max(1, self.terms // 2), counted=counted)

    @property
    def max_rounds(self) -> int:
        return min(1, self.terms - 1)

    @property
    def sensitivity(self) -> float:
        """Of the sum of the rows, in steps: in l2, or in l1 where delta = 0."""
        return self.query.integer_sensitivity(2 if self.delta else 1, Adjacency(self.adjacency))

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on a sum, in users."""
        if self.trust is not None:
            return self.noise_of_shares(self.query).std / MEAN_STEPS
        return self._unit_std * self.sensitivity / MEAN_STEPS

    def rounds(self, server: Curator) -> Script:
        if self.terms == 1:
            return self.uniform()
        if server.grade == "secure" and not self.discrete and self.guarantee.private:
            return Estimate.refused('noise = "secure" draws integers only: set discrete = true')
        summary = yield self.query
        n = summary.n_users
        if not n:
            return Estimate.failed("nobody answered", public={"n_users": 0.0})
        k = self.terms - 1
        noisy = add_noise(
            server,
            summary.sums["means"],
            self.sensitivity,
            self.epsilon,
            self.delta,
            discrete=self.discrete,
            moves=Moves.of(lambda a: self.query.integer_sensitivity(2 if self.delta else 1, a)),
        )
        public = {"n_users": float(n), "level": float(self.terms)}
        by = float(n)
        held = float(noisy[-1]) / MEAN_STEPS
        if self.query.counted and (fewer := surely_fewer(held, n, self.noise_std)):
            by = public["users with data, with noise"] = max(fewer, 1.0)
        theta = noisy[:k] * (math.sqrt(2) / MEAN_STEPS / by)
        stderr = np.full(k, math.sqrt(2) * self.noise_std / by)
        public["predicted_ise"] = self.tail + self._variance(self.terms, self.noise_std, by)
        return self.density(theta, stderr, public)

    @property
    def empty_record(self) -> str:
        return "" if self.query.counted else "the uniform density"

    @classmethod
    def example(cls) -> Self:
        return cls(
            epsilon=2.0,
            n_users=800,
            samples_per_user=64,
            delta=1e-6,
            level=5,
            grid=256,
            truth_level=5,
        )
