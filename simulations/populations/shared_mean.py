"""Real samples in a public range around one mean that users share, or around their own."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedhist.base.arrays import Floats, Words
from fedhist.users.batch import Users
from simulations.config.reading import Finite, Natural, Positive, Whole
from simulations.populations.base import Plan
from simulations.populations.draws import each, normal_of, unit, words
from simulations.populations.synthetic import (
    Leading,
    Sizes,
    Synthetic,
    check_leading,
    leading,
    sampled_users,
    samples_told,
)


@dataclass(frozen=True, kw_only=True)
class SharedMean(Synthetic):
    """Real samples in a public range; users' samples have one mean, or a mean of their own each.

    Parameters
    ----------
    n_users : int
    samples_per_user : int or [lo, hi]
        A pair gives ragged users: the number of samples is log-uniform on lo, ..., hi.
    mean : float or list of float
        One value for all dimensions, or the leading ones of ``dimension`` values; the others
        are zero (a sparse mean).
    low, high : float
        Public range of every coordinate.
    dimension : int, default 1
    users : {"alike", "normal"}, default "alike"
        How the users' own means lie around ``mean``. "normal": independent normals, clipped to
        the range, which moves their mean where they reach it.
    user_spread : float, default 0.1
        Standard deviation of the users' own means in each coordinate, where they differ.
    seed : int
    """

    n_users: Whole
    samples_per_user: Sizes
    mean: Leading = 0.0
    low: Finite = -1.0
    high: Finite = 1.0
    dimension: Whole = 1
    users: Literal["alike", "normal"] = "alike"
    user_spread: Positive = 0.1
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"need low < high, got [{self.low}, {self.high}]")
        check_leading("mean", self.mean, self.dimension, "dimensions")
        outside = [float(c) for c in self.centre if not self.low <= c <= self.high]
        if outside:
            raise ValueError(f"mean {outside[0]} lies outside [{self.low}, {self.high}]")
        self._check_samples()

    @property
    def means_range(self) -> tuple[float, float]:
        """Where a user's mean may lie."""
        return self.low, self.high

    @property
    def centre(self) -> Floats:
        """The mean over users: (dimension,) float64."""
        return leading(self.mean, self.dimension)

    @property
    def what(self) -> str:
        """What the samples are, in words."""
        return f"{self.kind} samples"

    @abstractmethod
    def draw(self, drawn: Words, centre: Floats) -> Floats:
        """Turn words into a sample around each row: both (samples, dimension)."""

    def plan(self) -> Plan:
        told = samples_told(self.n_users, self.samples_per_user)
        told += "" if self.users == "alike" else f", users {self.users}"
        title, span = f"{self.what}: {told}", (self.low, self.high)
        return Plan(self.made, title, value_range=span)

    def make(self, first: int, n: int) -> Users:
        indptr = self.indptr(first, n, self.samples_per_user, self.dimension)
        rows = np.broadcast_to(self.centre, (int(indptr[-1]), self.dimension))
        if self.users == "normal":
            drawn = normal_of(words(self.key("means"), first, each(n), self.dimension))
            own = np.clip(self.centre + self.user_spread * drawn, *self.means_range)
            rows = np.repeat(own, np.diff(indptr), axis=0)
        values = self.draw(words(self.key("samples"), first, indptr, self.dimension), rows)
        return sampled_users(self.ids(first, n), indptr, np.clip(values, self.low, self.high))

    def _check_samples(self) -> None:
        """Raise ValueError if the samples of users with one mean could leave the range."""


@dataclass(frozen=True, kw_only=True)
class _Spread(SharedMean):
    """Samples of a scale around the mean.

    Parameters
    ----------
    spread : float, default 0.25
        Scale of one sample around its user's mean.
    """

    spread: Positive = 0.25


@dataclass(frozen=True, kw_only=True)
class _Within(_Spread):
    """Samples that reach ``spread`` to both sides of the mean, and may not leave the range."""

    @property
    def means_range(self) -> tuple[float, float]:
        return self.low + self.spread, self.high - self.spread

    def _check_samples(self) -> None:
        lo, hi = self.centre.min() - self.spread, self.centre.max() + self.spread
        if lo < self.low or hi > self.high:
            raise ValueError(
                f"mean and spread reach from {lo} to {hi}, outside [{self.low}, {self.high}]"
            )


@dataclass(frozen=True, kw_only=True)
class Uniform(_Within):
    """Samples uniform on [mean - spread, mean + spread], which must lie in [low, high]."""

    kind: ClassVar[str] = "uniform"

    def draw(self, drawn: Words, centre: Floats) -> Floats:
        return np.asarray(centre + self.spread * (2.0 * unit(drawn) - 1.0))


@dataclass(frozen=True, kw_only=True)
class TwoPoint(_Within):
    """Samples mean - spread or mean + spread with probability 1/2 each, both in [low, high]."""

    kind: ClassVar[str] = "two-point"

    def draw(self, drawn: Words, centre: Floats) -> Floats:
        steps = np.array([-self.spread, self.spread])
        return np.asarray(centre + steps[drawn >> np.uint64(63)])


@dataclass(frozen=True, kw_only=True)
class Gaussian(_Spread):
    """Samples N(mean, spread^2), independent over dimensions, clipped to [low, high].

    A normal is the quantile, to 16 digits, at one of 2^52 equally likely levels. Clipping moves the
    mean of a sample towards the middle of the range.
    """

    kind: ClassVar[str] = "gaussian"

    @property
    def what(self) -> str:
        """The range belongs to the law."""
        return f"Gaussian samples clipped to [{self.low:g}, {self.high:g}]"

    def draw(self, drawn: Words, centre: Floats) -> Floats:
        return np.asarray(centre + self.spread * normal_of(drawn))
