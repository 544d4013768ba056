"""A vector of a user's record, in a ball: what reports of whole vectors are about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from clients.bounding.contribution import domain_lookup
from clients.records.functionals import check_columns, samples_of
from clients.records.user_rows import (
    ball_means,
    clipped_points,
    share_rows,
    wave_means,
)
from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.checks import check_choice, check_scale, check_within
from fedhist.channels.sphere import MAX_DIMENSION
from fedhist.model.part import Functional, VectorPart
from fedhist.model.registry import register_part
from fedhist.users.batch import Users
from fedhist.users.keys import Keys


@register_part
@dataclass(frozen=True)
class BallMean(VectorPart):
    """The mean of a user's samples, each scaled onto a ball first.

    A NaN or an infinity in any coordinate makes the user unusable.
    """

    wire_name: ClassVar[str] = "ball-mean"
    dimension: int
    radius: float

    def __post_init__(self) -> None:
        check_within("dimension", self.dimension, 1, MAX_DIMENSION)
        check_scale("radius", self.radius)

    @property
    def n_coordinates(self) -> int:
        return self.dimension

    @property
    def bound(self) -> float:
        return float(self.radius)

    def vectors(self, users: Users) -> Floats:
        """Average each user's samples: (n, d); NaN for none, or one that is not finite."""
        return ball_means(samples_of(users, self.dimension), self.bound)


@register_part
@dataclass(frozen=True)
class Scalar(VectorPart):
    """One scalar of a user's record, less the middle of its range: a vector of one coordinate.

    Parameters
    ----------
    functional : Functional
        Of one fold.
    """

    wire_name: ClassVar[str] = "scalar"
    functional: Functional

    def __post_init__(self) -> None:
        if self.functional.n_folds != 1:
            raise ValueError(f"the functional must have one fold, got {self.functional.n_folds}")

    @property
    def n_coordinates(self) -> int:
        return 1

    @property
    def bound(self) -> float:
        return self.functional.half_range

    @property
    def middle(self) -> float:
        """Of the range."""
        return (self.functional.low + self.functional.high) / 2

    def vectors(self, users: Users) -> Floats:
        """Compute each user's scalar: (n, 1); NaN for a record without usable data."""
        scalars = self.functional.scalars(users, np.zeros(len(users), dtype=np.int64))
        return (scalars - self.middle)[:, None]


@dataclass(frozen=True)
class _InBox(VectorPart):
    """What is made of a user's mean in the box [-radius, radius]^d; samples are clipped to it."""

    dimension: int
    radius: float

    def __post_init__(self) -> None:
        check_within("dimension", self.dimension, 1, MAX_DIMENSION)
        check_scale("radius", self.radius)

    def _means(self, users: Users) -> Floats:
        radius = float(self.radius)
        return clipped_points(samples_of(users, self.dimension), -radius, radius)


@register_part
@dataclass(frozen=True)
class BoxMean(_InBox):
    """Some coordinates of the mean of a user's samples, each of which is clipped to a box first.

    The box is [-radius, radius]^d, and ``columns`` are the coordinates in this order. A user with a
    NaN in one of them is unusable; an infinity is clipped.
    """

    wire_name: ClassVar[str] = "box-mean"
    columns: Integers

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(self.columns, self.dimension)

    @property
    def n_coordinates(self) -> int:
        return len(self.columns)

    @property
    def bound(self) -> float:
        return float(self.radius) * math.sqrt(self.n_coordinates)

    def vectors(self, users: Users) -> Floats:
        """Average each user's clipped samples: (n, k); NaN for none, or a NaN among them."""
        rows = self._means(users)[:, self.columns]
        rows[np.isnan(rows).any(axis=1)] = np.nan
        return rows


@register_part
@dataclass(frozen=True)
class Leaning(_InBox):
    """Where a user's mean leans beyond noise: the direction of sinh(min(|x| / scale, most)).

    Coordinate by coordinate, with the sign of x; ``most`` is in scales, at most 300, where sinh is
    finite. sinh is the score of a Gaussian mean that is 0 or +-1 scale: small coordinates, which
    are noise, hardly count, and none counts for more than one that noise does not reach. Samples
    are clipped to [-radius, radius]^d; ``scale`` is the standard deviation of a coordinate of a
    user's mean. A user with a NaN is unusable; one with the mean 0 leans nowhere.
    """

    wire_name: ClassVar[str] = "leaning"
    scale: float
    most: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale("scale", self.scale)
        check_within("most", self.most, 0, 300, "(]")

    @property
    def n_coordinates(self) -> int:
        return self.dimension

    @property
    def bound(self) -> float:
        return 1.0

    def vectors(self, users: Users) -> Floats:
        """Compute each user's direction: (n, d); NaN for a user without samples, or with a NaN."""
        means = self._means(users)
        rows = np.copysign(np.sinh(np.minimum(np.abs(means) / self.scale, self.most)), means)
        norm = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows /= np.where(norm > 0, norm, 1.0)[:, None]
        rows[np.isnan(norm)] = np.nan
        return np.asarray(rows)


@register_part
@dataclass(frozen=True)
class CentredShares(VectorPart):
    """A user's item shares less 1 / k each, in an orthonormal basis: k - 1 coordinates.

    The basis is Helmert's, see :func:`to_sum_zero`: distances are those of the shares. Items
    outside the domain of k >= 2 are dropped.
    """

    wire_name: ClassVar[str] = "centred-shares"
    domain: Keys

    def __post_init__(self) -> None:
        check_within("the number of items", len(self.domain), 2, MAX_DIMENSION)

    @property
    def n_coordinates(self) -> int:
        return len(self.domain) - 1

    @property
    def bound(self) -> float:
        """Distance of a corner of the simplex from its middle: sqrt(1 - 1 / k)."""
        return math.sqrt(1 - 1 / len(self.domain))

    def vectors(self, users: Users) -> Floats:
        items = users.counts
        shares = share_rows(items, domain_lookup(self.domain, items.vocabulary), len(self.domain))
        out = to_sum_zero(shares)
        out[~shares.any(axis=1)] = np.nan
        return out


def to_sum_zero(rows: Array) -> Floats:
    """Write vectors in Helmert's basis of those that add up to zero: (..., k) to (..., k - 1).

    Basis vector j = 1, ..., k - 1 is (1, ..., 1, -j, 0, ..., 0) / sqrt(j (j + 1)), with j ones.
    What a vector has along (1, ..., 1) is dropped. O(k) a vector.

    Examples
    --------
    >>> to_sum_zero(np.array([0.5, 0.5, 0.0])).round(4) + 0.0
    array([0.    , 0.4082])
    """
    j = np.arange(1.0, rows.shape[-1])
    before = np.cumsum(rows[..., :-1], axis=-1)
    return np.asarray((before - j * rows[..., 1:]) / np.sqrt(j * (j + 1)))


def from_sum_zero(rows: Array) -> Floats:
    """Turn coordinates in Helmert's basis back into vectors of sum zero: (..., k-1) to (..., k).

    Examples
    --------
    >>> x = np.array([0.2, -0.3, 0.1])
    >>> bool(np.allclose(from_sum_zero(to_sum_zero(x)), x))
    True
    """
    j = np.arange(1.0, rows.shape[-1] + 1)
    scaled = rows / np.sqrt(j * (j + 1))
    zero = np.zeros((*rows.shape[:-1], 1))
    above = np.cumsum(scaled[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(
        np.concatenate((above, zero), axis=-1) - np.concatenate((zero, j * scaled), axis=-1)
    )


BasisName = Literal["cosine", "fourier"]
MOST_COEFFICIENTS = 1 << 12


@register_part
@dataclass(frozen=True)
class SeriesMeans(VectorPart):
    """Coefficients of the distribution of a user's samples on [0, 1].

    Samples outside [0, 1] are clipped into it; a NaN makes a user unusable.

    Parameters
    ----------
    basis : {"cosine", "fourier"}
        "cosine": sqrt(2) cos(pi j x), j = 1, 2, ...; "fourier": sqrt(2) cos(2 pi k x) and
        sqrt(2) sin(2 pi k x), k = 1, 2, ...
    n_coefficients : int
    """

    wire_name: ClassVar[str] = "series-means"
    basis: BasisName
    n_coefficients: int

    def __post_init__(self) -> None:
        check_choice("basis", self.basis, get_args(BasisName))
        check_within("n_coefficients", self.n_coefficients, 1, MOST_COEFFICIENTS)

    @property
    def n_coordinates(self) -> int:
        return self.n_coefficients

    @property
    def bound(self) -> float:
        """At x = 0 all cosines are 1; a cosine and its sine always have the norm 1 together."""
        many = self.n_coefficients
        return math.sqrt(2 * (many if self.basis == "cosine" else (many + 1) // 2))

    def vectors(self, users: Users) -> Floats:
        """Average each user's basis functions: (n, n_coefficients); NaN for none, or a NaN."""
        waves = wave_means(samples_of(users, 1), self.n_coefficients, self.basis == "cosine")
        return np.asarray(math.sqrt(2) * waves)
