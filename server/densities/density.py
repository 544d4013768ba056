"""Density of samples on [0, 1] under user-level local differential privacy.

The coefficients of the density in a cosine basis are the mean of a vector that each user has; the
users report it whole, in stages (:mod:`server.centred`), or by folds, a coefficient each [1]_.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5, eq. (49), (50), Theorem 9.
.. [2] Efromovich, "Nonparametric curve estimation", Springer 1999: the cosine basis for densities
   on [0, 1] that are not periodic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from clients.densities.queries import BinReports
from clients.records.functionals import MOST_COEFFICIENTS, BasisName, Fourier, SeriesMeans
from fedhist.base.arrays import Floats
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.cohort import Cohort
from server.centred.script import Opening, centred_mean
from server.densities.density_target import DensityTarget
from server.densities.plan import SeriesPlan, density_level, plan_series
from server.densities.series import GRID, frequencies, nearest_density, of_bins
from server.localize.choice import Plan
from server.localize.script import FoldProtocol
from server.modes import Mode, TwoModes

if TYPE_CHECKING:
    from server.session.curator import Curator


@register_protocol
@dataclass(frozen=True)
class Density(TwoModes, DensityTarget, FoldProtocol):
    """Smooth density of the users' samples on [0, 1].

    The value is the density on ``grid`` equal cells, non-negative and with mean 1;
    :func:`density_of` makes a function of it.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off, and the series is then not shrunk.
    n_users : int
        Public planning value; the estimate uses the number who answered.
    samples_per_user : float
        Public planning value T; ``"harmonic-mean"`` in a configuration, see :class:`Mean`.
    basis : {"cosine", "fourier"}
        "cosine": cos(pi j x), for any density. "fourier": sines and cosines of 2 pi k x, for one
        that is declared to be periodic, the same at the two ends of [0, 1]; one that differs there
        is approximated slowly.
    method : {"centred", "folds"}
        "centred": one to four stages, planned from public numbers; the users' own spread is
        learned, T moves shares only. One stage is one report of every user, of which either the
        bin of one sample or all coefficients. "folds": one coefficient a user [1]_, in the Fourier
        basis; it trusts T.
    smoothness, radius : float, optional
        beta and r of the Sobolev ellipsoid sum_j j^(2 beta) theta_j^2 <= r^2 that the level is
        chosen for [1, eq. (19)]; by default 2 and 9, which suited densities of one and two bumps
        and with a slope at the ends at every budget that was tried, and 1 and 1.5 by folds.
    level : int, optional
        Terms J of the series, the known one included; by default that of least predicted error,
        from public numbers. With 1, which is chosen where the users are too few for anything
        better, nobody is asked.
    mean_scale : float, optional
        Standard deviation of a user's mean of phi_j / sqrt(2) around the common one; by default
        1 / sqrt(2 T), which holds on average over the coefficients. Enlarge it for "folds" if the
        users' own densities differ.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Of "folds": channel of the second round.
    shrink : bool
        Whether to shrink the coefficients by how fast they fall.
    project : bool
        Whether to project onto the densities; otherwise the value is the series.
    grid : int
        Cells.
    mode : {"default", "paper"}
        "paper" has folds, whatever the method and the basis, takes the level of [1, eq. (49)] with
        c = 1/100 for its unnamed constant and the paper's plan in each fold (of all samples), and
        neither shrinks nor projects. The value is then the series at the midpoints of the cells.
    truth_level : int
        Terms of the series that :meth:`truth` takes from the samples; for evaluation only.
    salt : int
        Public salt of the cohorts; those of folds and points are derived from it.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~server.trust.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive. Each user answers one
    epsilon-LDP query: about its vector, its distance from a centre, the bin of one of its samples,
    or (folds) one scalar in [-1, 1]. Level, plan and groups of users come from public numbers,
    centres and radii from other users' messages. The rest is post-processing.

    Error
    -----
    Integrated squared error (ise) of order (n T epsilon^2)^(-2 beta / (2 beta + 2)) or (n
    epsilon^2)^(-2 beta), whichever is larger, up to logarithms [1, Theorem 9]. Before shrinkage and
    projection, for epsilon <= 1: about 16 J^2 / (n T epsilon^2) with several stages, and 7 J^2 / (n
    epsilon^2) from the bins of one sample.

    ``stderr`` is that of the series, before shrinkage and projection. ``predicted_ise`` adds what
    the series leaves out of a density as smooth as declared. ``unseen`` is as in
    :class:`~server.means.mean_l2.MeanL2`.

    Examples
    --------
    >>> protocol = Density(epsilon=1.0, n_users=20_000, samples_per_user=100)
    >>> protocol.terms, protocol.max_rounds
    (15, 5)
    """

    name: ClassVar[str] = "density"
    paper: ClassVar[str] = (
        "own stages on the cosine basis (Efromovich 1999); folds: Kent, Berrett & Yu, "
        "arXiv 2405.11923, Section 5"
    )
    revision: ClassVar[int] = 5
    epsilon: float
    n_users: int
    samples_per_user: float
    smoothness: float | None = None
    radius: float | None = None
    level: int | None = None
    mean_scale: float | None = None
    kind: str = "auto"
    shrink: bool = True
    project: bool = True
    grid: int = GRID
    mode: Mode = "default"
    truth_level: int = 65
    salt: int = 1
    basis: BasisName = "cosine"
    method: Literal["centred", "folds"] = "centred"
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.check_mode()
        self.check_fields(self.mean_scale)
        if self.method == "folds" and self.basis != "fourier" and self.mode == "default":
            raise ValueError(f'method = "folds" has the basis "fourier", got {self.basis!r}')
        self.check_series()
        _ = self.plan if self.uses_folds else self.series_plan
        self.check_trust()

    @property
    def n_folds(self) -> int:
        """Of "folds": coefficients."""
        return max(self.terms - 1, 1)

    @property
    def uses_folds(self) -> bool:
        return self.method == "folds"

    @property
    def series(self) -> BasisName:
        return "fourier" if self.uses_folds else self.basis

    @property
    def ellipsoid(self) -> tuple[float, float]:
        """Return beta and r of the Sobolev ellipsoid that is planned with."""
        beta, r = (1.0, 1.5) if self.uses_folds else (2.0, 9.0)
        return (
            beta if self.smoothness is None else self.smoothness,
            r if self.radius is None else self.radius,
        )

    @property
    def terms(self) -> int:
        if self.level is not None:
            return self.level
        if not self.uses_folds:
            return self.series_plan.n_coefficients + 1
        n, most = self.n_users, self.grid - 1
        return density_level(n, self.scale, self.epsilon, self.channel_kind, *self.ellipsoid, most)

    @property
    def series_plan(self) -> SeriesPlan:
        """Of "centred": coefficients, bins and stages; from public numbers only."""
        return plan_series(
            self.n_users,
            float(self.samples_per_user),
            float(self.epsilon),
            self.basis,
            *self.ellipsoid,
            min(self.grid - 2, MOST_COEFFICIENTS),
            None if self.level is None else self.level - 1,
            self.mean_scale,
        )

    @property
    def plan(self) -> Plan:
        """Of "folds": bins, shares and widths of one fold; from public numbers only."""
        return self.fold_plan(self.n_users / max(1, self.terms - 1), 1.0)

    @property
    def scale(self) -> float:
        """Standard deviation of a user's coefficient, over sqrt(2), that is planned with."""
        return self.mean_scale or 1 / math.sqrt(2 * self.samples_per_user)

    @property
    def max_rounds(self) -> int:
        """A stage and the vote before it, but for the first; none for the uniform density."""
        if self.terms == 1:
            return 0
        if self.uses_folds:
            return super().max_rounds
        stages = self.series_plan.stages
        return stages.n_rounds if stages else 0

    def rounds(self, server: Curator) -> Script:
        if self.terms == 1:
            return self.uniform()
        if self.uses_folds:
            return (yield from self._folds())
        planned, basis = self.series_plan, self.basis
        k, n_bins, stages = planned.n_coefficients, planned.n_bins, planned.stages
        if stages is None:
            return self.uniform()
        matrix = of_bins(basis, n_bins, k) if n_bins else np.zeros(0)

        def ask(cohort: Cohort | None) -> BinReports:  # users without samples count as uniform
            return BinReports(n_bins, float(self.epsilon), cohort)

        result = yield from centred_mean(
            SeriesMeans(basis, k),
            stages,
            epsilon=self.epsilon,
            salt=self.salt,
            project=lambda theta: nearest_density(basis, theta),
            opening=Opening(ask, lambda s: matrix @ ask(None).masses(s)) if n_bins else None,
        )
        if isinstance(result, Estimate):
            return result
        each = np.ones(k)
        if n_bins and stages.n_stages == 1:  # a wave that is short against the bins has more
            each = np.sinc(frequencies(basis, k) / n_bins) ** -2.0
        stderr = np.sqrt(result.error * each / each.sum())
        public = {
            "level": float(self.terms),
            "bins": float(n_bins),
            "predicted_ise": result.error + planned.energy,
        }
        return self.density(result.value, stderr, result.public | public, result.warnings)

    @property
    def empty_record(self) -> str:
        if self.uses_folds:
            return "the middle of its interval"
        stages = self.series_plan.stages
        return "the uniform density" if stages is None or stages.n_stages == 1 else ""

    def _folds(self) -> Generator[Query, Summary, Estimate]:
        """Estimate the coefficients fold by fold."""
        plan, k = self.plan, self.terms - 1
        if not plan.feasible:
            return Estimate.refused(self.too_few(k, 1.0))
        result = yield from self.ask(Fourier(k), plan)
        if result.value is None or result.stderr is None:
            return result
        root, ise = math.sqrt(2), 2 * k * plan.risk + self.tail
        public = {**result.public, "level": float(self.terms), "predicted_ise": ise}
        return self.density(root * result.value, root * result.stderr, public, result.warnings)

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, n_users=800, samples_per_user=64, level=5, grid=256, truth_level=5)


def density_of(estimate: Estimate) -> Callable[[ArrayLike], Floats]:
    """Make a function of what :class:`Density` returned; ValueError if it has no value.

    It is constant on the grid's cells, on an edge that of the cell to its right, and 0 elsewhere.
    """
    values = estimate.needed("density_of")

    def density(x: ArrayLike) -> Floats:
        points = np.asarray(x, dtype=np.float64)
        inside = (points >= 0) & (points <= 1)
        at = np.where(inside, points * len(values), 0.0).astype(np.int64)
        return np.where(inside, values[np.minimum(at, len(values) - 1)], 0.0)

    return density
