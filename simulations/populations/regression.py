"""Features and a response: users whose samples follow one linear or logistic model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.users.batch import Users
from fedhist.users.shards import Samples
from simulations.config.reading import Finite, Must, Natural, NonNegative, Whole, one_of
from simulations.populations import Plan
from simulations.populations.draws import each, normal_of, unit, words
from simulations.populations.synthetic import (
    Leading,
    Sizes,
    Synthetic,
    check_leading,
    leading,
    samples_told,
)


@dataclass(frozen=True, kw_only=True)
class Regression(Synthetic):
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
        return np.asarray(self.condition**-exponent)

    def plan(self) -> Plan:
        what = "linear" if self.model == "least-squares" else "logistic"
        told = samples_told(self.n_users, self.samples_per_user)
        return Plan(self.made, f"{what} regression on {self.dimension} features: {told}")

    def make(self, first: int, n: int) -> Users:
        d = self.dimension
        indptr = self.indptr(first, n, self.samples_per_user, d + 1)
        drawn = words(self.key("samples"), first, indptr, d + 1)
        theta, scale = self.parameters, np.sqrt(self.variances)
        own = np.zeros((n, d))
        if self.user_spread:
            own = self.user_spread * normal_of(words(self.key("shifts"), first, each(n), d))
        user = np.repeat(np.arange(n), np.diff(indptr))
        values, z = np.empty(drawn.shape), np.zeros(len(drawn))
        for j in range(d):  # sums in this order on every machine
            values[:, j] = normal_of(drawn[:, j]) * scale[j]
            z += values[:, j] * (theta[j] + own[user, j])
        if self.model == "logistic":
            values[:, d] = np.where(unit(drawn[:, d]) * (1 + np.exp(-z)) < 1, 1.0, -1.0)
        else:
            values[:, d] = z + self.noise * normal_of(drawn[:, d])
        return Users(self.ids(first, n), samples=Samples(indptr, values))
