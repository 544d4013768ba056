"""What all protocols that estimate a density on [0, 1] share: series, value, truth and loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from clients.records.functionals import BasisName, samples_of
from fedhist.base.arrays import Array
from fedhist.base.checks import check_scale, check_within
from fedhist.base.errors import PopulationError, warned
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.truths import LowerBound, Truth
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from server.densities.plan import tail_energy
from server.densities.series import (
    coefficients_of,
    midpoints,
    project_density,
    series_at,
    series_stderr,
    shrink_by_decay,
)
from server.targets.lower_bounds import local_bounds, planned_sizes, waves
from server.targets.sample_sizes import held


class DensityTarget(Protocol):
    """A protocol whose estimate is a density on ``grid`` cells, by a trigonometric series."""

    target: ClassVar[str] = "density"
    loss_name: ClassVar[str] = "ise"
    display: ClassVar[Display | None] = Display(
        form="cells",
        label="density",
        entry="sample",
        interval="at each point (terms left out apart)",
    )
    epsilon: float
    smoothness: float | None
    radius: float | None
    level: int | None
    shrink: bool
    project: bool
    grid: int
    truth_level: int

    @property
    def estimates(self) -> Truth:
        return Truth.AVERAGE_OF_USERS

    @property
    @abstractmethod
    def terms(self) -> int:
        """Terms J of the series in use, the known one included; from public numbers only."""

    @property
    def ellipsoid(self) -> tuple[float, float]:
        """Return beta and r of the Sobolev ellipsoid that is planned with."""
        if self.smoothness is None or self.radius is None:
            raise ValueError("smoothness and radius must be given")
        return self.smoothness, self.radius

    @property
    def series(self) -> BasisName:
        """What the density is a series of."""
        return "fourier"

    @property
    def tail(self) -> float:
        """Largest energy of the terms left out, in the Sobolev ellipsoid."""
        return tail_energy(self.terms, *self.ellipsoid)

    def check_series(self) -> None:
        """Raise ValueError, with the value, unless the fields of the series are valid."""
        for name, value in zip(("smoothness", "radius"), self.ellipsoid, strict=True):
            check_scale(name, value)
        check_within("grid", self.grid, 2, 1 << 20)
        for name in ("level", "truth_level"):
            if getattr(self, name) is not None:
                check_within(name, getattr(self, name), 1, self.grid, "[)")

    def uniform(self) -> Estimate:
        """Return what one term says, which nobody needs to be asked for."""
        return Estimate.ok(
            np.ones(self.grid),
            public={"level": 1.0, "predicted_ise": self.tail},
            warnings=(
                warned(
                    "one term is the uniform density",
                    "nobody was asked, nothing was spent, and the estimate says nothing of them",
                    "more users or a larger epsilon are worth more terms",
                ),
            ),
        )

    def density(
        self,
        theta: Array,
        stderr: Array,
        public: Mapping[str, float],
        warnings: Sequence[str] = (),
    ) -> Estimate:
        """Make a density of a series; the standard error is that before shrinkage."""
        return Estimate.ok(
            self.finished(theta, stderr),
            stderr=series_stderr(self.series, stderr, self.grid),
            public=public,
            warnings=tuple(warnings),
        )

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the integrated squared error of any local protocol. NOT PRIVATE."""
        smoothness, radius = self.ellipsoid  # phi_2 has a coefficient of radius / 2^smoothness
        points = waves(radius / 2**smoothness), "about 1 +- D sqrt2 cos(2 pi x)"
        return local_bounds(self.guarantee, held(facts), planned_sizes(self), "ise", *points)

    def finished(self, theta: Array, stderr: Array) -> Array:
        """Shrink the coefficients, and project their series on the densities: (grid,)."""
        if self.shrink and self.guarantee.private:
            theta = shrink_by_decay(theta, stderr)
        values = series_at(self.series, theta, midpoints(self.grid))
        return project_density(values) if self.project else values

    def truth_of(self, facts: Facts) -> Array:
        """Return the series of the samples themselves on the grid: (grid,). NOT PRIVATE.

        It stands for the density that the samples come from, which users do not know: apart from
        the terms left out, its integrated squared error around it is at most (truth_level - 1)
        avg(1 / T_i) / n on average. Where the density is known, measure against that:
        ``loss_of(..., truth=values)``.
        """
        return series_at(self.series, self.coefficients(facts), midpoints(self.grid))

    def coefficients(self, facts: Facts) -> Array:
        """Average the users' own coefficients of phi_2, phi_3, ... NOT PRIVATE."""
        n = int(facts["usable"][0])
        if not n:
            raise PopulationError("no user has usable samples; there is no density")
        return np.asarray(facts["coefficients"] / n)

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        return {"unusable records": float(facts.n_users - facts["usable"][0])}

    def sums(self, users: Users) -> Mapping[str, Array]:
        samples, sizes = samples_of(users, 1), users.n_items()
        owner = np.repeat(np.arange(len(users)), sizes)
        x = samples.values[:, 0]
        bad = np.bincount(owner, np.isnan(x), len(users)) > 0
        usable = (sizes > 0) & ~bad
        weight = (usable / np.maximum(sizes, 1))[owner]
        clipped = np.clip(np.where(np.isnan(x), 0.0, x), 0.0, 1.0)
        n = max(self.terms, self.truth_level) - 1
        theta = coefficients_of(self.series, clipped, weight, n)
        return {"coefficients": theta, "usable": np.count_nonzero(usable, keepdims=True)}

    def loss(self, value: Array, truth: Array) -> float:
        return float(np.mean(np.square(value - truth)))

    @classmethod
    def example_users(cls) -> Users:
        """Make users who all hold the same 64 samples: the quantiles of a smooth density."""
        ids = user_ids(Keys.range(800))
        return Users.from_samples(ids, np.arange(801) * 64, np.tile(smooth_quantiles(64), 800))


def smooth_quantiles(n: int) -> Array:
    """Return n quantiles of a smooth density with four coefficients: (n,) float64."""
    x = midpoints(4096)
    below = np.cumsum(series_at("fourier", np.array([0.35, -0.2, 0.1, 0.15]), x)) / 4096
    return np.asarray(np.interp((np.arange(n) + 0.5) / n, below, x))
