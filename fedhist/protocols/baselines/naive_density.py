"""Densities under local privacy without localization: one noisy report over the whole range.

Baselines of :class:`~fedhist.protocols.densities.density.Density`: what they cost does not fall
with the number of samples per user, or it is not user-level privacy.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Sections 1 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.records.draws import each_alone
from clients.records.functionals import Fourier
from fedhist.base.arrays import Array
from fedhist.base.text import warned
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.truths import Truth
from fedhist.protocols.baselines.protocol import SCALAR_QUERIES, Method, NaiveReport
from fedhist.protocols.densities.density_target import DensityTarget, smooth_quantiles
from fedhist.protocols.localize.queries import ClippedMean
from fedhist.protocols.shared.noninteractive_error import scalar_noise
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.folds import fold_of, salt_of_folds
from fedhist.users.keys import Keys, user_ids
from server.densities.series import GRID, best_level

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


@register_protocol
@dataclass(frozen=True)
class NaiveDensity(DensityTarget, NaiveReport):
    """Smooth density on [0, 1] by one noisy report a user about one coefficient.

    The value is that of :class:`~fedhist.protocols.densities.density.Density`: the density on
    ``grid`` cells.

    Parameters
    ----------
    epsilon : float
        Budget of each user; of each SAMPLE for method "item-level". inf switches noise off, and
        the series is then not shrunk.
    n_users : int
        Public planning value, for the level.
    method : {"user-mean", "one-item", "item-level"}
        Report about the mean over the user's samples; about one of them, drawn uniformly; or about
        each on its own, with noise of its own. The last one protects single samples, NOT users: a
        user of T samples has T times epsilon.
    samples_per_user : float, optional
        Public planning value T, for the level. Item-level privacy needs it, also for the
        user-level epsilon that it amounts to.
    smoothness, radius : float
        beta and r of the Sobolev ellipsoid sum_j j^(2 beta) theta_j^2 <= r^2 that the level is
        chosen for.
    level : int, optional
        Terms J of the series, the known one included; by default the odd number of least predicted
        integrated squared error, from public numbers. With 1 nobody is asked.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of a report; "auto" takes the one of least variance.
    shrink : bool
        Whether to shrink each coefficient towards zero (positive-part James-Stein).
    project : bool
        Whether to project onto the densities. The value of an estimate that is not is the series.
    grid : int
        Cells.
    truth_level : int
        Terms of the series that :meth:`truth` takes from the samples; for evaluation only.
    salt : int
        Public salt of the folds.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round, exact as drawn; for "item-level"
    epsilon-LDP for one sample of a known user, whose number of samples is public.

    Error
    -----
    Integrated squared error about 2 K^2 v / N, with K = J - 1 coefficients, v the variance of a
    report and N the users (the samples for "item-level"), and the energy of the terms
    left out: of order (n epsilon^2)^(-2 beta / (2 beta + 2)), in which T does not occur.

    Examples
    --------
    >>> NaiveDensity(epsilon=1.0, n_users=20_000).terms
    7
    """

    name: ClassVar[str] = "naive-density"
    unshuffled: ClassVar[str] = "it is a baseline of local protocols"
    paper: ClassVar[str] = "baselines for Kent, Berrett & Yu, arXiv 2405.11923, Section 5"
    epsilon: float
    n_users: int
    method: Method = "one-item"
    samples_per_user: float | None = None
    smoothness: float = 1.0
    radius: float = 1.5
    level: int | None = None
    kind: str = "auto"
    shrink: bool = True
    project: bool = True
    grid: int = GRID
    truth_level: int = 65
    salt: int = 1

    def __post_init__(self) -> None:
        self.check_report()
        self.check_series()
        Cohort(self.salt)
        _ = self.query

    @property
    def spread(self) -> float:
        """Bound the variance of a cosine or sine to report about, averaged over the two."""
        return 0.5 / (self.samples_per_user or 1.0) if self.method == "user-mean" else 0.5

    @property
    def terms(self) -> int:
        """Terms J of the series in use, the known one included."""
        if self.level is not None:
            return self.level
        n = self.planned_reports
        return best_level(
            lambda level: self._variance(level, n), self.smoothness, self.radius, self.grid - 1
        )

    @property
    def one(self) -> float:
        """Variance of a report about a coefficient, its channel's noise included."""
        u = math.sqrt(self.spread)  # channels' variances are quadratic in what is reported
        return scalar_noise(self.channel.kind, float(self.epsilon), u) + self.spread

    def _variance(self, level: int, n_reports: float) -> float:
        """Predict the integrated variance of J terms: phi_j is sqrt(2) times what is reported."""
        return 2 * (level - 1) ** 2 * self.one / n_reports

    @property
    def query(self) -> ClippedMean:
        """The one question; there is none with one term."""
        k = max(1, self.terms - 1)
        return SCALAR_QUERIES[self.method](
            functional=Fourier(k),
            centres=np.zeros(k),
            half_width=1.0,
            epsilon=float(self.epsilon),
            kind=self.channel.kind,
            fold_salt=salt_of_folds(self.salt),
        )

    @property
    def max_rounds(self) -> int:
        """One; none for the uniform density."""
        return min(1, self.terms - 1)

    def rounds(self, server: Curator) -> Script:
        """Ask, average fold by fold, make a density of the series."""
        if self.terms == 1:
            return self.uniform()
        query = self.query
        summary = yield query
        public, warnings = self.told(summary)
        public["level"] = float(self.terms)
        n = summary.sums["items" if self.item_level else "users"]
        if not n.any():
            return Estimate.failed("nobody reported", public=public)
        empty = int(np.count_nonzero(n == 0))
        if empty:
            what, means = f"{empty} coefficients have no reports", "zero stands in for them"
            warnings.append(warned(what, means, "take fewer terms, or more users"))
        public["predicted_ise"] = self._variance(self.terms, float(n.sum())) + self.tail
        theta = math.sqrt(2) * summary.sums["reports"] / np.maximum(n, 1) / self.channel.gain
        with np.errstate(divide="ignore"):
            stderr = np.sqrt(2 * self.one / n)
        return self.density(theta, stderr, public, warnings)

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the integrated squared error: that of the reports, and the energy left out.

        Shrinkage and projection lower it. NOT PRIVATE.
        """
        n = float(seen["reports"][0])
        expected = self._variance(self.terms, max(n, 1.0)) + self.left_out(seen)
        source = "the variance of one report a user by coefficient, and the energy left out"
        return ErrorBound("ise", expected, exact=False, source=source)

    @property
    def estimates(self) -> Truth:
        """The average of the users' own series; of all items for "item-level"."""
        return Truth.POOLED if self.item_level else Truth.AVERAGE_OF_USERS

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up the users' own coefficients, or those of all samples; count the reports."""
        each = each_alone(users)[0] if self.item_level else users
        return {**super().sums(each), "reports": np.array([len(each)])}

    @classmethod
    def example(cls) -> Self:
        """Build a small instance with four coefficients."""
        return cls(epsilon=2.0, n_users=400, samples_per_user=4, level=5, grid=256, truth_level=5)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of four equal samples, the same hundred in each fold.

        Then every method finds the truth without noise.
        """
        ids = user_ids(Keys.range(1000))
        fold = fold_of(ids, cls.example().query.fold_salt, 4)
        rows = np.concatenate([np.flatnonzero(fold == j)[:100] for j in range(4)])
        values = np.repeat(np.tile(smooth_quantiles(100), 4), 4)
        return Users.from_samples(ids[rows], np.arange(401) * 4, values)
