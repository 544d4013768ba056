"""Real samples in a public range around one mean that all users share: three laws."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Floats
from simulations.config.reading import Finite, Natural, Positive, Whole
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
class SharedMean(PopulationSpec):
    """Real samples in a public range; all users' samples have one and the same mean.

    Parameters
    ----------
    n_users : int
    samples_per_user : int or [lo, hi]
        A pair gives ragged users: the number of samples is log-uniform on lo, ..., hi.
    mean : float or list of float
        One value for all dimensions, or the leading ones of ``dimension`` values; the others
        are zero (a sparse mean).
    spread : float
        Scale of one sample around the mean; see the kind.
    low, high : float
        Public range of every coordinate.
    dimension : int, default 1
    seed : int
    """

    n_users: Whole
    samples_per_user: Sizes
    mean: Leading = 0.0
    spread: Positive = 0.25
    low: Finite = -1.0
    high: Finite = 1.0
    dimension: Whole = 1
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"need low < high, got [{self.low}, {self.high}]")
        check_leading("mean", self.mean, self.dimension, "dimensions")
        outside = [float(c) for c in self.centre if not self.low <= c <= self.high]
        if outside:
            raise ValueError(f"mean {outside[0]} lies outside [{self.low}, {self.high}]")

    @property
    def centre(self) -> Floats:
        """The mean that all users share: (dimension,) float64."""
        return leading(self.mean, self.dimension)

    @property
    def what(self) -> str:
        """What the samples are, in words."""
        return f"{self.kind} samples"

    @abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """Draw samples around the mean: of that shape, (samples, dimension)."""

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        sizes = draw_sizes(rng, self.n_users, self.samples_per_user)
        values = self.draw(rng, (int(sizes.sum()), self.dimension))
        users, told = sampled_users(sizes, np.clip(values, self.low, self.high))
        dropped = self._clipped(values)
        span = (self.low, self.high)
        return Loaded(users, f"{self.what}: {told}", value_range=span, dropped=dropped)

    def _clipped(self, values: Floats) -> Mapping[str, int]:
        """Nothing is: what lies outside is a rounding."""
        return {}


@dataclass(frozen=True, kw_only=True)
class _Within(SharedMean):
    """Samples that reach ``spread`` to both sides of the mean, and may not leave the range."""

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """Draw from the box."""
        return np.asarray(self.centre + self.spread * rng.uniform(-1, 1, shape))


@dataclass(frozen=True, kw_only=True)
class TwoPoint(_Within):
    """Samples mean - spread or mean + spread with probability 1/2 each, both in [low, high].

    See :class:`SharedMean` for the parameters.
    """

    kind: ClassVar[str] = "two-point"

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """Toss a coin for every coordinate."""
        return np.asarray(self.centre + self.spread * np.where(rng.random(shape) < 0.5, 1.0, -1.0))


@dataclass(frozen=True, kw_only=True)
class Gaussian(SharedMean):
    """Samples N(mean, spread^2), independent over dimensions, clipped to [low, high].

    Clipping moves the mean of a sample towards the middle of the range; how many values were
    clipped is stated in the diagnostics. See :class:`SharedMean` for the parameters.
    """

    kind: ClassVar[str] = "gaussian"

    @property
    def what(self) -> str:
        """The range belongs to the law."""
        return f"Gaussian samples clipped to [{self.low:g}, {self.high:g}]"

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """Draw normals, which may lie outside the range."""
        return rng.normal(self.centre, self.spread, shape)

    def _clipped(self, values: Floats) -> Mapping[str, int]:
        n = int(np.count_nonzero((values < self.low) | (values > self.high)))
        return {"values clipped to the range": n} if n else {}
