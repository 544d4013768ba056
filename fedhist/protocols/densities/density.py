"""Density of samples on [0, 1] under user-level local differential privacy, in two rounds [1]_.

The coefficients of the trigonometric series are means of bounded functions of a sample. The users
are split into folds, one for each coefficient; a user votes on, or reports about, the one of its
fold only.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5, eq. (49), (50), Theorem 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from clients.records.functionals import Fourier
from fedhist.model.modes import Mode, TwoModes
from fedhist.model.protocol import ErrorBound, Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.results import Goal, ResultsRow
from fedhist.protocols.densities.density_target import DensityTarget
from fedhist.protocols.localize.protocol import FoldProtocol
from fedhist.users.batch import Users
from server.densities.series import GRID, GridDensity, coefficient_scale, density_level
from server.means.localize import Plan

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


@register_protocol
@dataclass(frozen=True)
class Density(TwoModes, DensityTarget, FoldProtocol):
    """Smooth density of the samples that all users draw from, on [0, 1].

    The value is the density on ``grid`` equal cells, non-negative and with mean 1;
    :func:`density_of` makes a function of it. The series is periodic: a density that differs at
    the two ends of [0, 1] is approximated slowly.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off, and the series is then not shrunk.
    n_users : int
        Public planning value; the estimate uses the number who answered.
    samples_per_user : float
        Public planning value T; ``"harmonic-mean"`` in a configuration, see :class:`Mean`.
    smoothness, radius : float
        beta and r of the Sobolev ellipsoid sum_j j^(2 beta) theta_j^2 <= r^2 that the level is
        chosen for [1, eq. (19)].
    level : int, optional
        Terms J of the series, the known one included; by default
        :func:`~server.densities.series.density_level`, from public numbers. With 1, which is chosen
        where the users are too few for anything better, nobody is asked.
    mean_scale : float, optional
        Standard deviation of a user's mean of phi_j / sqrt(2) around the common one; by default
        1 / sqrt(2 T), which holds on average over the two coefficients of a frequency. Enlarge it
        if the users' own densities differ.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of the second round.
    shrink : bool
        Whether to shrink each coefficient towards zero (positive-part James-Stein).
    project : bool
        Whether to project onto the densities. The value of an estimate that is not is the series.
    grid : int
        Cells.
    mode : {"default", "paper"}
        "paper" takes the level of [1, eq. (49)] with c = 1/100 for its unnamed constant and the
        paper's plan in each fold (of all samples), and neither shrinks nor projects. The value
        is then the series at the midpoints of the cells.
    truth_level : int
        Terms of the series that :meth:`truth` takes from the samples; for evaluation only.
    salt : int
        Public salt of the cohorts; that of the folds is derived from it.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: each user answers one
    epsilon-LDP query about one scalar in [-1, 1]. Level, plan, folds and cohorts come from public
    numbers; everything after the reports is post-processing.

    Error
    -----
    Integrated squared error of order (n T epsilon^2)^(-2 beta / (2 beta + 2)) or
    (n epsilon^2)^(-2 beta), whichever is larger, up to logarithms [1, Theorem 9].

    Examples
    --------
    >>> Density(epsilon=1.0, n_users=20_000, samples_per_user=100).terms
    19
    """

    name: ClassVar[str] = "density"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 5"
    goals: ClassVar[tuple[Goal, ...]] = (Goal(0.05, words="two bumps"),)
    epsilon: float
    n_users: int
    samples_per_user: float
    smoothness: float = 1.0
    radius: float = 1.5
    level: int | None = None
    mean_scale: float | None = None
    kind: str = "auto"
    shrink: bool = True
    project: bool = True
    grid: int = GRID
    mode: Mode = "default"
    truth_level: int = 65
    salt: int = 1

    def __post_init__(self) -> None:
        self.check_mode()
        self.check_fields(self.mean_scale)
        self.check_series()
        _ = self.plan

    @property
    def terms(self) -> int:
        """Terms J of the series in use, the known one included."""
        n, beta, most = self.n_users, self.smoothness, self.grid - 1
        if self.level is not None:
            return self.level
        kind = self.channel_kind
        return density_level(n, self.scale, self.epsilon, kind, beta, self.radius, most)

    @property
    def plan(self) -> Plan:
        """Bins, shares and widths of one fold; from public numbers only."""
        return self.fold_plan(self.n_users / max(1, self.terms - 1), 1.0)

    @property
    def scale(self) -> float:
        """Standard deviation of a user's coefficient, over sqrt(2), that is planned with."""
        return self.mean_scale or coefficient_scale(self.samples_per_user)

    @property
    def max_rounds(self) -> int:
        """Two; one where a vote would not help; none for the uniform density."""
        return 0 if self.terms == 1 else super().max_rounds

    def rounds(self, server: Curator) -> Script:
        """Estimate the coefficients fold by fold, then make a density of their series."""
        plan, k = self.plan, self.terms - 1
        if k == 0:
            return self.uniform()
        if not plan.feasible:
            return Estimate.refused(self.too_few(k, 1.0))
        found = yield from self.ask(Fourier(k), plan)
        if isinstance(found, Estimate):
            return found
        public = {"level": float(self.terms), "predicted_ise": 2 * k * plan.risk + self.tail}
        root = math.sqrt(2)
        return self.density(
            root * found.value,
            root * found.stderr,
            found.public | public,
            found.warnings,
        )

    def error(self, users: Users) -> ErrorBound:
        """Predict the integrated squared error: the plan's risk, and the energy left out.

        The variance is that of the series, which shrinkage and projection lower; the energy is
        that of the terms from J + 1 on in :meth:`truth`. NOT PRIVATE.
        """
        k = self.terms - 1
        expected = 2 * k * self.plan.risk + self.left_out(users)
        source = "the plans' risks and the energy left out, for Kent et al., Theorem 9"
        return ErrorBound("ise", expected, exact=False, source=source)

    @classmethod
    def results(cls) -> Sequence[ResultsRow]:
        """Hold the prediction against runs."""
        many = {"kind": "density", "n_users": 20_000, "samples_per_user": 50}
        few = {**many, "n_users": 2000}
        base = {"epsilon": 1.0, "samples_per_user": 50}
        plain, label = {**base, "shrink": False}, "n=20000 T=50 eps=1, not shrunk"
        return (
            ResultsRow(label, plain, many, 30, (0.4, 1.1), anew=True),
            ResultsRow("n=20000 T=50 eps=1", base, many, 30, (0.25, 1.0), anew=True),
            ResultsRow("EDGE n=2000 T=50 eps=1", base, few, 100, (0.25, 1.1), anew=True),
        )

    @classmethod
    def example(cls) -> Self:
        """Build a small instance with two rounds, for four coefficients."""
        return cls(epsilon=2.0, n_users=800, samples_per_user=64, level=5, grid=256, truth_level=5)


def density_of(estimate: Estimate) -> GridDensity:
    """Make a function of what :class:`Density` returned: constant on the grid's cells.

    Raises
    ------
    ValueError
        If the estimate has no value.
    """
    if estimate.value is None:
        raise ValueError(f"an estimate with a value is needed, got {estimate.status}")
    return GridDensity(estimate.value)
