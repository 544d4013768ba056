"""Features and a response: users whose samples follow one linear or logistic model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedhist.base.arrays import Floats
from simulations.config.reading import Finite, Must, Natural, NonNegative, Whole, one_of
from simulations.populations.base import Loaded, PopulationSpec
from simulations.populations.synthetic import (
    Leading,
    Sizes,
    check_leading,
    draw_sizes,
    leading,
    sampled_users,
)


@dataclass(frozen=True, kw_only=True)
class Regression(PopulationSpec):
    """Samples of ``dimension`` Gaussian features and a response, which is the last column.

    Feature j has variance condition^(-j / (d - 1)), from 1 down to 1 / condition. The response is
    x theta_u plus Gaussian noise, or 1 with probability 1 / (1 + exp(-x theta_u)) and otherwise
    -1. A user's own parameters theta_u are ``theta`` plus a Gaussian shift.

    Parameters
    ----------
    n_users : int
    samples_per_user : int or [lo, hi]
        A pair gives ragged users: the number of samples is log-uniform on lo, ..., hi.
    dimension : int
        Features, d.
    model : {"least-squares", "logistic"}
    theta : float or list of float
        Common parameters: one value for all features, or the leading ones (the others are zero).
    noise : float
        Standard deviation of the response around x theta_u; not used by the logistic model.
    user_spread : float
        Standard deviation of each entry of a user's shift; 0: all users are alike.
    condition : float
        Largest over smallest variance of a feature.
    seed : int
    """

    kind: ClassVar[str] = "regression"

    n_users: Whole
    samples_per_user: Sizes
    dimension: Whole
    model: Annotated[str, one_of("least-squares", "logistic")] = "least-squares"
    theta: Leading = 0.5
    noise: NonNegative = 1.0
    user_spread: NonNegative = 0.0
    condition: Annotated[Finite, Must("at least 1", lambda c: c >= 1)] = 1.0
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_leading("theta", self.theta, self.dimension, "features")

    @property
    def parameters(self) -> Floats:
        """The common parameters: (dimension,) float64."""
        return leading(self.theta, self.dimension)

    @property
    def variances(self) -> Floats:
        """Variances of the features: (dimension,) float64, falling."""
        exponent = np.arange(self.dimension) / max(1, self.dimension - 1)
        return np.asarray(self.condition**-exponent, dtype=np.float64)

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        each = self.samples_per_user
        pair = (each, each) if isinstance(each, int) else each  # a size is drawn in either case
        sizes = draw_sizes(rng, self.n_users, pair)
        values = np.empty((int(sizes.sum()), self.dimension + 1))
        x = values[:, :-1]
        x[:] = rng.standard_normal(x.shape) * np.sqrt(self.variances)
        z = x @ self.parameters
        if self.user_spread:
            shift = self.user_spread * rng.standard_normal((self.n_users, self.dimension))
            z += np.einsum("ij,ij->i", x, np.repeat(shift, sizes, axis=0))
        if self.model == "logistic":
            values[:, -1] = np.where(rng.random(len(z)) * (1 + np.exp(-z)) < 1, 1.0, -1.0)
        else:
            values[:, -1] = z + self.noise * rng.standard_normal(len(z))
        users, told = sampled_users(sizes, values)
        what = "linear" if self.model == "least-squares" else "logistic"
        return Loaded(users, f"{what} regression on {self.dimension} features: {told}")
