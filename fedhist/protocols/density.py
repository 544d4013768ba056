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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from clients.functionals import Fourier
from fedhist.errors import PopulationError
from fedhist.keys import Keys, user_ids
from fedhist.protocol import ErrorBound, Estimate, Script
from fedhist.protocols.fold_protocol import FoldProtocol
from fedhist.protocols.localize_refine import (
    FoldEstimates,
)
from fedhist.protocols.mean import one_dimension
from fedhist.query import Array
from fedhist.registry import register_protocol
from fedhist.users import Users
from server.density import (
    GRID,
    GridDensity,
    TrigonometricDensity,
    coefficient_scale,
    coefficients_of,
    density_level,
    paper_level,
    project_density,
    shrink,
    standard_error,
    tail_energy,
)
from server.localize import Plan, plan_paper, plan_univariate

if TYPE_CHECKING:
    from fedhist.curator import Curator

MOST_GRID = 1 << 20


@register_protocol
@dataclass(frozen=True)
class Density(FoldProtocol):
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
        :func:`~server.density.density_level`, from public numbers. With 1, which is chosen where
        the users are too few for anything better, nobody is asked.
    mean_scale : float, optional
        Standard deviation of a user's mean of phi_j / sqrt(2) around the common one; by default
        1 / sqrt(2 T), which holds on average over the two coefficients of a frequency. Enlarge it
        if the users' own densities differ.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of the second round.
    shrink : bool
        Whether to shrink each coefficient towards zero (positive-part James-Stein).
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
    target: ClassVar[str] = "density"
    epsilon: float
    n_users: int
    samples_per_user: float
    smoothness: float = 1.0
    radius: float = 1.5
    level: int | None = None
    mean_scale: float | None = None
    kind: str = "auto"
    shrink: bool = True
    grid: int = GRID
    mode: Literal["default", "paper"] = "default"
    truth_level: int = 65
    salt: int = 1

    def __post_init__(self) -> None:
        self.check_fields(self.mean_scale)
        for name in ("smoothness", "radius"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")
        if not 2 <= self.grid <= MOST_GRID:
            raise ValueError(f"grid must lie in [2, {MOST_GRID}], got {self.grid}")
        for name in ("level", "truth_level"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < self.grid:
                raise ValueError(f"{name} must lie in [1, grid = {self.grid}), got {value}")
        _ = self.plan

    @property
    def terms(self) -> int:
        """Terms J of the series in use, the known one included."""
        n, beta, most = self.n_users, self.smoothness, self.grid - 1
        if self.level is not None:
            return self.level
        if self.mode == "paper":
            return paper_level(n, self.samples_per_user, self.epsilon, beta, most)
        kind = self.channel_kind
        return density_level(n, self.scale, self.epsilon, kind, beta, self.radius, most)

    @property
    def plan(self) -> Plan:
        """Bins, shares and widths of one fold; from public numbers only."""
        n = self.n_users / max(1, self.terms - 1)
        if self.mode == "paper":
            return plan_paper(n, self.samples_per_user, self.scale, 1.0, self.epsilon)
        return plan_univariate(n, self.scale, 1.0, self.epsilon, self.channel_kind)

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
        tail = tail_energy(self.terms, self.smoothness, self.radius)
        if k == 0:
            return Estimate.ok(
                np.ones(self.grid),
                public={"level": 1.0, "predicted_ise": tail},
                warnings=("one term is the uniform density: nobody was asked, nothing was spent",),
            )
        if not plan.feasible:
            return Estimate.refused(self.too_few(k, 1.0))
        found = yield from self.ask(Fourier(k), plan)
        if isinstance(found, Estimate):
            return found
        public = {"level": float(self.terms), "predicted_ise": 2 * k * plan.risk + tail}
        return self._conclude(found, found.public | public)

    def _conclude(self, found: FoldEstimates, public: Mapping[str, float]) -> Estimate:
        theta = math.sqrt(2) * found.value  # of phi_2, ...; that of phi_1 is known to be 1
        stderr = math.sqrt(2) * found.stderr
        corrected = self.mode != "paper"
        if corrected and self.shrink and not math.isinf(self.epsilon):
            theta = shrink(theta, stderr)
        values = TrigonometricDensity(np.append(1.0, theta)).on_grid(self.grid)
        return Estimate.ok(
            project_density(values) if corrected else values,
            stderr=standard_error(np.append(0.0, stderr), self.grid),
            public=public,
            warnings=found.warnings,
        )

    def error(self, users: Users) -> ErrorBound:
        """Predict the integrated squared error: the plan's risk, and the energy left out.

        The variance is that of the series, which shrinkage and projection lower; the energy is
        that of the terms from J + 1 on in :meth:`truth`. NOT PRIVATE.
        """
        k = self.terms - 1
        left_out = self._coefficients(users)[self.terms :]
        expected = 2 * k * self.plan.risk + float(np.square(left_out).sum())
        source = "the plans' risks and the energy left out, for Kent et al., Theorem 9"
        return ErrorBound("ise", expected, exact=False, source=source)

    def truth(self, users: Users) -> Array:
        """Return the series of the samples themselves on the grid: (grid,). NOT PRIVATE.

        Its terms up to ``truth_level``, or the estimate's level if that is larger, each the
        average of the users' own means. It stands for the density that the samples come from,
        which users do not know: apart from the terms left out, its integrated squared error
        around it is at most (truth_level - 1) avg(1 / T_i) / n on average, plus that of clipping
        samples to [0, 1]. Users without usable samples do not count here; in a run each counts
        as the middle of its fold's interval.

        Where the density is known, measure against that instead: ``loss_of(estimate, users,
        truth=TrigonometricDensity(theta).on_grid(grid))``.
        """
        return TrigonometricDensity(self._coefficients(users)).on_grid(self.grid)

    def _coefficients(self, users: Users) -> Array:
        """Average the users' own coefficients. NOT PRIVATE."""
        samples, sizes = one_dimension(users), users.n_items()
        owner = np.repeat(np.arange(len(users)), sizes)
        x = samples.values[:, 0]
        bad = np.bincount(owner, np.isnan(x), len(users)) > 0
        usable = (sizes > 0) & ~bad
        if not usable.any():
            raise PopulationError("no user has usable samples; there is no density")
        weight = (usable / np.maximum(sizes, 1) / np.count_nonzero(usable))[owner]
        clipped = np.clip(np.where(np.isnan(x), 0.0, x), 0.0, 1.0)
        return coefficients_of(clipped, weight, max(self.terms, self.truth_level))

    def loss(self, value: Array, truth: Array) -> float:
        """Integrated squared error, by the midpoint rule: exact for series of the grid's terms."""
        return float(np.mean(np.square(value - truth)))

    @classmethod
    def example(cls) -> Self:
        """Build a small instance with two rounds, for four coefficients."""
        return cls(epsilon=2.0, n_users=800, samples_per_user=64, level=5, grid=256, truth_level=5)

    @classmethod
    def example_users(cls) -> Users:
        """Make users who all hold the same 64 samples: the quantiles of a smooth density.

        Then every fold's average is that of all users, so that without noise the truth returns.
        """
        f = TrigonometricDensity(np.array([1.0, 0.35, -0.2, 0.1, 0.15]))
        x = (np.arange(4096) + 0.5) / 4096
        below = np.cumsum(f.evaluate(x)) / 4096
        sample = np.interp((np.arange(64) + 0.5) / 64, below, x)
        ids = user_ids(Keys.range(800))
        return Users.from_samples(ids, np.arange(801) * 64, np.tile(sample, 800))


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
