"""Real samples in a public range around one mean that users share, or around their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.users.batch import Users
from fedhist.users.shards import Samples
from simulations.config.reading import Finite, Natural, Positive, Whole
from simulations.populations import Plan
from simulations.populations.draws import each, normal_of, words
from simulations.populations.synthetic import (
    Leading,
    Sizes,
    Synthetic,
    check_leading,
    leading,
    samples_told,
)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Synthetic):
    """Samples N(mean, spread^2), independent over dimensions, clipped to [low, high].

    Users' samples have one mean, or a mean of their own each. A normal is the quantile, to 16
    digits, at one of 2^52 equally likely levels. Clipping moves the mean of a sample towards the
    middle of the range.

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
    spread : float, default 0.25
        Standard deviation of one sample around its user's mean.
    """

    kind: ClassVar[str] = "gaussian"
    n_users: Whole
    samples_per_user: Sizes
    mean: Leading = 0.0
    low: Finite = -1.0
    high: Finite = 1.0
    dimension: Whole = 1
    users: Literal["alike", "normal"] = "alike"
    user_spread: Positive = 0.1
    seed: Natural = 0
    spread: Positive = 0.25

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
        """The mean over users: (dimension,) float64."""
        return leading(self.mean, self.dimension)

    def plan(self) -> Plan:
        told = samples_told(self.n_users, self.samples_per_user)
        told += "" if self.users == "alike" else f", users {self.users}"
        title = f"Gaussian samples clipped to [{self.low:g}, {self.high:g}]: {told}"
        return Plan(self.made, title, value_range=(self.low, self.high))

    def make(self, first: int, n: int) -> Users:
        indptr = self.indptr(first, n, self.samples_per_user, self.dimension)
        rows = np.broadcast_to(self.centre, (int(indptr[-1]), self.dimension))
        if self.users == "normal":
            drawn = normal_of(words(self.key("means"), first, each(n), self.dimension))
            own = np.clip(self.centre + self.user_spread * drawn, self.low, self.high)
            rows = np.repeat(own, np.diff(indptr), axis=0)
        drawn = normal_of(words(self.key("samples"), first, indptr, self.dimension))
        values = np.clip(rows + self.spread * drawn, self.low, self.high)
        return Users(self.ids(first, n), samples=Samples(indptr, values))
