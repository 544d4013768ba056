"""Features and a response: users whose samples follow one linear or logistic model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.base.checks import check_integer
from fedhist.users.batch import Samples, Users
from simulations.populations.base import (
    Loaded,
    PopulationSpec,
    finite,
    positive,
)
from simulations.populations.synthetic import synthetic_ids


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

    n_users: int
    samples_per_user: int | list[int] | tuple[int, int]
    dimension: int
    model: str = "least-squares"
    theta: float | list[float] | tuple[float, ...] = 0.5
    noise: float = 1.0
    user_spread: float = 0.0
    condition: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("n_users", self.n_users)
        check_integer("dimension", self.dimension)
        check_integer("seed", self.seed, least=0)
        if self.model not in ("least-squares", "logistic"):
            raise ValueError(f'model must be "least-squares" or "logistic", got {self.model!r}')
        pair = self._range
        for size in pair:
            check_integer("samples_per_user", size)
        if len(pair) != 2 or pair[0] > pair[1]:
            raise ValueError(
                f"samples_per_user must be a number or [lo, hi], got {self.samples_per_user!r}"
            )
        values = self.theta if isinstance(self.theta, list | tuple) else [self.theta]
        if not 1 <= len(values) <= self.dimension:
            raise ValueError(f"theta has {len(values)} values for {self.dimension} features")
        for value in values:
            finite("theta", value)
        for name in ("noise", "user_spread"):
            finite(name, getattr(self, name))
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be non-negative, got {getattr(self, name)!r}")
        positive("condition", self.condition)
        if self.condition < 1:
            raise ValueError(f"condition must be at least 1, got {self.condition!r}")

    @property
    def _range(self) -> list[int]:
        sizes = self.samples_per_user
        return list(sizes) if isinstance(sizes, list | tuple) else [sizes, sizes]

    @property
    def parameters(self) -> NDArray[np.float64]:
        """The common parameters: (dimension,) float64."""
        if not isinstance(self.theta, list | tuple):
            return np.full(self.dimension, float(self.theta))
        out = np.zeros(self.dimension)
        out[: len(self.theta)] = self.theta
        return out

    @property
    def variances(self) -> NDArray[np.float64]:
        """Variances of the features: (dimension,) float64, falling."""
        exponent = np.arange(self.dimension) / max(1, self.dimension - 1)
        return np.asarray(self.condition**-exponent, dtype=np.float64)

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        lo, hi = self._range
        u = rng.random(self.n_users)
        sizes = np.clip(np.floor(lo * ((hi + 1) / lo) ** u), lo, hi).astype(np.int64)
        indptr = np.zeros(self.n_users + 1, dtype=np.int64)
        np.cumsum(sizes, out=indptr[1:])
        values = np.empty((indptr[-1], self.dimension + 1))
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
        users = Users(synthetic_ids(self.n_users), samples=Samples(indptr, values))
        size = f"{lo}" if lo == hi else f"{sizes.min()} to {sizes.max()}"
        what = "linear" if self.model == "least-squares" else "logistic"
        title = (
            f"{what} regression on {self.dimension} features: {self.n_users:,} users, "
            f"{size} samples each"
        )
        return Loaded(users, title)
