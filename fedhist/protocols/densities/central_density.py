"""Density of samples on [0, 1] with a trusted server: noise on the users' trigonometric means.

What the local protocol of arXiv 2405.11923, Section 5, is compared with. Every user sends all its
coefficients exactly; the points that it can send lie on and inside a closed curve, whose diameter
says how much noise hides one user.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5: the series and its smoothness class.
.. [2] Balle & Wang, "Improving the Gaussian mechanism", ICML 2018.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from clients.records.functionals import samples_of
from clients.records.user_rows import fourier_rows
from fedhist.base.arrays import Bounds
from fedhist.base.checks import check_choice, check_integer
from fedhist.base.errors import WireError
from fedhist.model.evaluation import Facts
from fedhist.model.prediction import Prediction
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Report, Summary, only_array
from fedhist.model.registry import register_protocol, register_query
from fedhist.privacy.adjacency import Moves
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Adjacency, Trust, check_budget
from fedhist.privacy.noise_law import noise_per_sensitivity
from fedhist.protocols.densities.density_target import DensityTarget
from fedhist.protocols.densities.theory import central_level, central_variance, row_sensitivity
from fedhist.protocols.shared.central import Central, add_noise
from fedhist.protocols.shared.sample_sizes import PlannedSizes
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams
from server.densities.series import GRID

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

STEPS = 1 << 24
"""Grid steps per unit in which means are sent: integers, whose sums are exact in any order."""

MOST_FREQUENCIES = 1 << 12
"""A batch of rows then stays below 2^27 bytes."""

ADJACENCIES = (Adjacency.REPLACE_USER.value, Adjacency.ZERO_OUT_USER.value)


@register_query
@dataclass(frozen=True)
class FourierMeans(Query):
    """Each user sends the means of the cosines and sines of its samples, in whole steps.

    Parameters
    ----------
    n_frequencies : int
        K: cos(2 pi k x) and sin(2 pi k x) for k = 1, ..., K.
    cohort : Cohort, optional

    Privacy
    -------
    None by itself: the server must be trusted with the rows. A user without samples, or with a NaN
    among them, sends zeros.
    """

    wire_name: ClassVar[str] = "fourier-means"
    trust: ClassVar[Trust] = Trust.CENTRAL
    n_frequencies: int
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_integer("n_frequencies", self.n_frequencies, MOST_FREQUENCIES)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return 2 * self.n_frequencies

    def sensitivity(self, adjacency: Adjacency, norm: int) -> float:
        """Bound the sum's change with one user, in steps.

        Every number is within a step of what is to be rounded: half a step, and as much again for
        sums in doubles, which covers records of up to 2^27 samples. So two rows are at most 2
        steps a number further apart than the points.
        """
        exact = row_sensitivity(self.n_frequencies, norm, adjacency)
        return STEPS * exact + 2 * (self.width if norm == 1 else math.sqrt(self.width))

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return :meth:`sensitivity`: of whole steps, whatever the rounding."""
        return self.sensitivity(adjacency, norm)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the row; uses no randomness."""
        return Report(
            users.ids, {"means": fourier_rows(samples_of(users, 1), self.n_frequencies, STEPS)}
        )

    def fold(self, report: Report) -> Summary:
        """Add up the rows: (2 K,) int64."""
        return Summary(
            report.n_users, {"means": report.arrays["means"].sum(axis=0, dtype=np.int64)}
        )

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a mean of points on circles."""
        rows = only_array(report, "means")
        Bounds((report.n_users, self.width), "i", -STEPS - 1, STEPS + 1).check("means", rows)
        _check_circles(rows, 1)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """As far from zero as n_users numbers can be."""
        most = n_users * (STEPS + 1)
        return {"means": Bounds((self.width,), "i", -most, most)}

    def check_summary(self, summary: Summary) -> None:
        """Bound cosine and sine of a frequency together as well."""
        super().check_summary(summary)
        _check_circles(summary.sums["means"], summary.n_users)


def _check_circles(rows: NDArray[np.integer[Any]], n_users: int) -> None:
    """Raise WireError if a cosine and its sine are further out than n_users circles."""
    pairs = rows.reshape(-1, 2).astype(np.float64)
    far = math.sqrt(np.square(pairs).sum(axis=1).max(initial=0.0))
    if far > n_users * (STEPS + 1.5):
        raise WireError(f"a frequency lies {far / STEPS:g} from zero, {n_users} users' at most")


@register_protocol
@dataclass(frozen=True)
class CentralDensity(DensityTarget, PlannedSizes, Central):
    """Smooth density of the users' samples on [0, 1], with a trusted server.

    The value is the density on ``grid`` equal cells, non-negative and with mean 1;
    :func:`~fedhist.protocols.densities.density.density_of` makes a function of it. The series is
    periodic: a density that differs at the two ends of [0, 1] is approximated slowly.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off, and the series is then not shrunk.
    n_users : int
        Public planning value; the estimate divides by the number who answered.
    samples_per_user : float
        Public planning value T, for the level only; ``"harmonic-mean"`` in a configuration, see
        :class:`~fedhist.protocols.means.mean.Mean`.
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
        Terms J of the series, the known one included; by default
        :func:`~fedhist.protocols.densities.theory.central_level`, from public numbers. With 1
        nobody is asked; an even one leaves out a sine that noise is paid for all the same.
    shrink : bool
        Whether to shrink each coefficient towards zero (positive-part James-Stein).
    project : bool
        Whether to project onto the densities. The value of an estimate that is not is the series.
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
    (:func:`~fedhist.protocols.densities.theory.curve_diameter`), emptied by sqrt(K). Noise on their
    sum: the analytic Gaussian mechanism [2], or Laplace noise for sqrt(2 K) times as much in l1.
    What follows is post-processing.

    Error
    -----
    Integrated squared error of noise about 9.7 K^2 sigma^2 / n^2, with sigma the multiplier of
    (epsilon, delta), whatever T is; 2 K / (n T) of sampling; and the energy of the terms left out.

    Examples
    --------
    >>> CentralDensity(epsilon=1.0, n_users=20_000, samples_per_user=100, delta=1e-6).terms
    67
    """

    name: ClassVar[str] = "central-density"
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
        check_choice("adjacency", self.adjacency, ADJACENCIES)
        check_integer("n_users", self.n_users, 1 << 32)
        T = self.samples_per_user
        if not isinstance(T, int | float) or not 1 <= T < math.inf:
            raise ValueError(f"samples_per_user must be a number of at least 1, got {T!r}")
        self.check_series()
        self.check_integers(self.discrete)
        _ = self.asks(self.query, 0)

    @property
    def terms(self) -> int:
        """Terms J of the series in use, the known one included."""
        if self.level is not None:
            return self.level
        return central_level(
            self.n_users,
            self.samples_per_user,
            self.epsilon,
            self.delta,
            Adjacency(self.adjacency),
            self.discrete,
            self.smoothness,
            self.radius,
            min(self.grid - 1, 2 * MOST_FREQUENCIES + 1),
        )

    @property
    def query(self) -> FourierMeans:
        """The one question; there is none with one term."""
        return FourierMeans(max(1, self.terms // 2))

    @property
    def max_rounds(self) -> int:
        """One; none for the uniform density."""
        return min(1, self.terms - 1)

    @property
    def sensitivity(self) -> float:
        """Of the sum of the rows, in steps: in l2, or in l1 where delta = 0."""
        return self.query.sensitivity(Adjacency(self.adjacency), 2 if self.delta else 1)

    @property
    def moves(self) -> Moves:
        """The same under every adjacency."""
        return Moves.of(lambda a: self.query.sensitivity(a, 2 if self.delta else 1))

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on a sum, in users."""
        if self.trust is not None:
            return self.noise_of_shares(self.query).std / STEPS
        discrete = self.discrete and self.delta > 0  # Laplace: the same on a grid so fine
        unit = noise_per_sensitivity(self.epsilon, self.delta, discrete)
        return unit.std * self.sensitivity / STEPS

    def rounds(self, server: Curator) -> Script:
        """Ask once, add noise to the sums, make a density of the series."""
        if self.terms == 1:
            return self.uniform()
        if server.grade == "secure" and not self.discrete and self.guarantee.private:
            return Estimate.refused('noise = "secure" draws integers only: set discrete = true')
        summary = yield self.query
        n = summary.n_users
        if not n:
            return Estimate.failed("nobody answered", public={"n_users": 0.0})
        k = self.terms - 1
        s, epsilon, delta = self.sensitivity, self.epsilon, self.delta
        sums = summary.sums["means"]
        noisy = add_noise(server, sums, s, epsilon, delta, discrete=self.discrete, moves=self.moves)
        theta = noisy[:k] * (math.sqrt(2) / STEPS / n)
        stderr = np.full(k, math.sqrt(2) * self.noise_std / n)
        public = {"n_users": float(n), "level": float(self.terms)}
        public["predicted_ise"] = self.tail + self._variance(n)
        return self.density(theta, stderr, public)

    def _variance(self, n: int) -> float:
        """Predict the variance of all coefficients, sampling included, where n users answer."""
        if self.trust is not None:
            each = 2 * (self.noise_std / n) ** 2 + 1 / (n * self.samples_per_user)
            return (self.terms - 1) * each
        return central_variance(
            self.terms,
            n,
            self.samples_per_user,
            self.epsilon,
            self.delta,
            Adjacency(self.adjacency),
            self.discrete,
        )

    def error_of(self, facts: Facts) -> Prediction:
        """Compute the integrated squared error: noise, and the energy left out. NOT PRIVATE.

        A closed form of the plain series where all users have usable samples.
        """
        whole = int(facts["usable"][0]) == facts.n_users
        if self.shrinks or self.project or not whole:
            return super().error_of(facts)
        noise = (self.terms - 1) * 2 * (self.noise_std / facts.n_users) ** 2
        source = "the noise on the coefficients and the energy left out"
        return Prediction("ise", noise + self.left_out(facts), "exact", source)

    @classmethod
    def example(cls) -> Self:
        """Build a small instance with four coefficients."""
        return cls(
            epsilon=2.0,
            n_users=800,
            samples_per_user=64,
            delta=1e-6,
            level=5,
            grid=256,
            truth_level=5,
        )
