"""Real samples in a public range around one mean that users share, or around their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Floats
from simulations.config.reading import Finite, Natural, Positive, Whole
from simulations.populations.base import Loaded, PopulationSpec
from simulations.populations.differing import MeansDiffer, check_means, own_means
from simulations.populations.synthetic import (
    Leading,
    Sizes,
    check_leading,
    draw_sizes,
    leading,
    sampled_users,
)


@dataclass(frozen=True, kw_only=True)
class SharedMean(PopulationSpec):
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
    users : {"alike", "normal", "beta", "two-clusters", "outliers"}, default "alike"
        How the users' own means lie around ``mean``, see
        :func:`~simulations.populations.differing.own_means`.
    user_spread : float, default 0.1
        Standard deviation of the users' own means in each coordinate, where they differ.
    decimals : int, optional
        Samples are rounded to so many: grades, or amounts in cents.
    seed : int
    """

    n_users: Whole
    samples_per_user: Sizes
    mean: Leading = 0.0
    low: Finite = -1.0
    high: Finite = 1.0
    dimension: Whole = 1
    users: MeansDiffer = "alike"
    user_spread: Positive = 0.1
    decimals: Natural | None = None
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
        check_means(self.users, self.centre, self.user_spread, *self.means_range)

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
    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        """Draw one sample around each row: (samples, dimension)."""

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        sizes = draw_sizes(rng, self.n_users, self.samples_per_user)
        own = own_means(
            self.users, self.centre, self.user_spread, self.n_users, *self.means_range, rng
        )
        alike = self.users == "alike"
        shape = int(sizes.sum()), self.dimension
        rows = np.broadcast_to(self.centre, shape) if alike else np.repeat(own, sizes, axis=0)
        values = self.draw(rng, rows)
        inside = np.clip(values, self.low, self.high)
        if self.decimals is not None:
            inside = np.clip(np.round(inside, self.decimals), self.low, self.high)
        users, told = sampled_users(sizes, inside)
        dropped = self._clipped(values)
        span = (self.low, self.high)
        told += "" if self.users == "alike" else f", users {self.users}"
        return Loaded(users, f"{self.what}: {told}", value_range=span, dropped=dropped)

    def _check_samples(self) -> None:
        """Raise ValueError if the samples of users who are alike could leave the range."""

    def _clipped(self, values: Floats) -> Mapping[str, int]:
        """Nothing is: what lies outside is a rounding."""
        return {}


@dataclass(frozen=True, kw_only=True)
class _Spread(SharedMean):
    """Samples of a scale around the mean.

    Parameters
    ----------
    spread : float
        Scale of one sample around its user's mean; see the kind.
    """

    spread: Positive = 0.25


@dataclass(frozen=True, kw_only=True)
class _Within(_Spread):
    """Samples that reach ``spread`` to both sides of the mean, and may not leave the range."""

    @property
    def means_range(self) -> tuple[float, float]:
        """A spread from both ends."""
        return self.low + self.spread, self.high - self.spread

    def _check_samples(self) -> None:
        lo, hi = self.centre.min() - self.spread, self.centre.max() + self.spread
        if lo < self.low or hi > self.high:
            raise ValueError(
                f"mean and spread reach from {lo} to {hi}, outside [{self.low}, {self.high}]"
            )


@dataclass(frozen=True, kw_only=True)
class Uniform(_Within):
    """Samples uniform on [mean - spread, mean + spread], which must lie in [low, high].

    See :class:`SharedMean` for the parameters.
    """

    kind: ClassVar[str] = "uniform"

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        """Draw from the box."""
        return np.asarray(centre + self.spread * rng.uniform(-1, 1, centre.shape))


@dataclass(frozen=True, kw_only=True)
class TwoPoint(_Within):
    """Samples mean - spread or mean + spread with probability 1/2 each, both in [low, high].

    See :class:`SharedMean` for the parameters.
    """

    kind: ClassVar[str] = "two-point"

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        """Toss a coin for every coordinate."""
        side = np.where(rng.random(centre.shape) < 0.5, 1.0, -1.0)
        return np.asarray(centre + self.spread * side)


@dataclass(frozen=True, kw_only=True)
class Coins(SharedMean):
    """Samples at an end of the range in every coordinate: coins that show ``high`` or ``low``.

    Mean and user_spread alone make the law: users = "beta" has coins of Beta(a, b) means. See
    :class:`SharedMean` for the parameters.
    """

    kind: ClassVar[str] = "coins"

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        """Toss every coordinate's own coin."""
        up = self.low + (self.high - self.low) * rng.random(centre.shape) < centre
        return np.where(up, self.high, self.low)


@dataclass(frozen=True, kw_only=True)
class RankOne(SharedMean):
    """Samples v or -v: one coin for all coordinates, along the user's own mean.

    v has the direction of the user's mean and the length ``length``; a user whose own mean is
    longer has that length. See :class:`SharedMean` for the other parameters; the range must be
    symmetric and hold v.

    Parameters
    ----------
    length : float, default 1.0
        l2 norm of every sample.
    """

    kind: ClassVar[str] = "rank-one"
    length: Positive = 1.0

    def _check_samples(self) -> None:
        norm = float(np.linalg.norm(self.centre))
        if not 0 < norm <= self.length:
            raise ValueError(
                f"the mean's l2 norm must lie in (0, length = {self.length:g}], got {norm:g}"
            )
        if self.low != -self.high or self.length > self.high:
            raise ValueError(
                f"the range must be symmetric and hold the length {self.length:g}, "
                f"got [{self.low:g}, {self.high:g}]"
            )

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        """Toss one coin a sample."""
        norm = np.linalg.norm(centre, axis=1)
        side = np.where(rng.random(len(norm)) < (1 + np.minimum(norm / self.length, 1)) / 2, 1, -1)
        return np.asarray(centre * (side * self.length / norm)[:, None])


@dataclass(frozen=True, kw_only=True)
class Gaussian(_Spread):
    """Samples N(mean, spread^2), independent over dimensions, clipped to [low, high].

    Clipping moves the mean of a sample towards the middle of the range; how many values were
    clipped is stated in the diagnostics. See :class:`SharedMean` for the parameters.
    """

    kind: ClassVar[str] = "gaussian"

    @property
    def what(self) -> str:
        """The range belongs to the law."""
        return f"Gaussian samples clipped to [{self.low:g}, {self.high:g}]"

    def draw(self, rng: np.random.Generator, centre: Floats) -> Floats:
        """Draw normals, which may lie outside the range."""
        return rng.normal(centre, self.spread)

    def _clipped(self, values: Floats) -> Mapping[str, int]:
        n = int(np.count_nonzero((values < self.low) | (values > self.high)))
        return {"values clipped to the range": n} if n else {}
