"""What reports are about: one scalar of a user's record, by fold, or a vector of it in a ball.

Every functional averages over a user's own samples or items, O(own record),
with no transform. A scalar depends on that user's record and fold alone,
to the last bit, in whatever batch it is computed. A record without usable data has the scalar
NaN, which the randomizers turn into their null message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import domain_lookup
from clients.records.user_rows import (
    ball_means,
    clipped_points,
    coordinates_kernel,
    rotated_kernel,
    share_rows,
    user_points,
    wave_means,
)
from fedhist.base.arrays import Array, Floats, Integers, next_power_of_two, read_only
from fedhist.base.checks import check_choice, check_range, check_scale, check_size, check_within
from fedhist.base.errors import PopulationError
from fedhist.channels.covers import Cover
from fedhist.channels.sphere import MAX_DIMENSION
from fedhist.model.part import Functional, VectorPart
from fedhist.model.registry import register_part
from fedhist.users.batch import Users
from fedhist.users.cohort import MAX_FOLDS
from fedhist.users.keys import Keys, public_signs
from fedhist.users.shards import Samples


@register_part
@dataclass(frozen=True)
class Coordinates(Functional):
    """One coordinate of the mean of a user's samples.

    Parameters
    ----------
    dimension : int
        Columns of the samples.
    low, high : float
        Range of every coordinate; a sample outside is clipped before averaging.
    columns : (k,) int64, optional
        The coordinate of each fold; by default all of them in their order.
    max_items : int
        Use only a user's first so many samples; 0 for all.

    Notes
    -----
    A NaN makes a user unusable in the fold of its own coordinate only; an infinity is clipped.
    """

    wire_name: ClassVar[str] = "coordinates"
    dimension: int
    low: float = -1.0
    high: float = 1.0
    columns: Integers | None = None
    max_items: int = 0

    def __post_init__(self) -> None:
        check_within("dimension", self.dimension, 1, MAX_FOLDS)
        check_range(self.low, self.high)
        check_within("max_items", self.max_items, 0, math.inf, "[)")
        if self.columns is not None:
            check_columns(self.columns, self.dimension)

    @property
    def n_folds(self) -> int:
        return self.dimension if self.columns is None else len(self.columns)

    def scalars(self, users: Users, fold: Integers) -> Floats:
        samples = samples_of(users, self.dimension)
        folds = _checked(fold, users, self.n_folds)
        column = folds if self.columns is None else self.columns[folds]
        out = np.empty(len(users))
        low, high = float(self.low), float(self.high)
        coordinates_kernel(samples.indptr, samples.values, column, low, high, self.max_items, out)
        return out


def check_columns(columns: Integers, dimension: int) -> None:
    """Raise ValueError unless (k,) int64 with k >= 1 columns of so many."""
    c = columns
    if c.dtype != np.int64 or c.ndim != 1 or not 1 <= len(c) <= MAX_FOLDS:
        raise ValueError(f"columns must be (k,) int64 with k >= 1, got {c.dtype} {c.shape}")
    if c.min() < 0 or c.max() >= dimension:
        raise ValueError(f"columns must lie in [0, {dimension}), got {c.min()}, {c.max()}")


@register_part
@dataclass(frozen=True)
class Rotated(Functional):
    """One coordinate of a user's mean after a public random rotation of the ball.

    The rotation is U = d2^(-1/2) H D on zero-padded vectors, where d2 is the next power of two, H
    the Hadamard matrix and D random signs; Kent et al., arXiv 2405.11923, Section 3.3. A NaN or an
    infinity in any coordinate makes the user unusable.
    """

    wire_name: ClassVar[str] = "rotated"
    dimension: int
    radius: float  # samples of a larger l2 norm are scaled down to it first
    sign_salt: int
    clip: float | None = None  # of rotated coordinates; None: the radius, which none passes
    max_items: int = 0  # use only a user's first so many samples; 0 for all

    def __post_init__(self) -> None:
        check_within("dimension", self.dimension, 1, MAX_FOLDS)
        check_size("radius", self.radius)
        if self.clip is not None:
            check_size("clip", self.clip)
        check_range(self.low, self.high)
        check_within("max_items", self.max_items, 0, math.inf, "[)")
        check_within("sign_salt", self.sign_salt, 0, 1 << 63, "[)")

    @property
    def n_folds(self) -> int:
        """The next power of two, d2."""
        return next_power_of_two(self.dimension)

    @property
    def low(self) -> float:
        return -self.high

    @property
    def high(self) -> float:
        return float(self.radius if self.clip is None else self.clip)

    @property
    def signs(self) -> Floats:
        """The diagonal of D: (d2,) float64, +-1."""
        return rotation_signs(self.sign_salt, self.n_folds)

    def scalars(self, users: Users, fold: Integers) -> Floats:
        samples = samples_of(users, self.dimension)
        folds = _checked(fold, users, self.n_folds)
        out = np.empty(len(users))
        signs = self.signs[: self.dimension] / math.sqrt(self.n_folds)
        limits = float(self.radius), self.high, self.max_items, self.n_folds
        rotated_kernel(samples.indptr, samples.values, folds, signs, *limits, out)
        return out


class _Signed(Functional):
    """An average of numbers in [-1, 1]: of cosines, or of signs."""

    low = -1.0
    high = 1.0


@register_part
@dataclass(frozen=True)
class Fourier(_Signed):
    """One trigonometric coefficient of the distribution of a user's samples on [0, 1].

    With phi_1 = 1, phi_2k = sqrt(2) cos(2 pi k x) and phi_{2k+1} = sqrt(2) sin(2 pi k x), a user of
    fold f reports about the mean of phi_j / sqrt(2) for j = f + 2; the first one is known. Samples
    outside [0, 1] are clipped into it; a NaN makes a user unusable. Kent et al., arXiv 2405.11923,
    Section 3.5.
    """

    wire_name: ClassVar[str] = "fourier"
    n_coefficients: int

    def __post_init__(self) -> None:
        check_within("n_coefficients", self.n_coefficients, 1, MAX_FOLDS)

    @property
    def n_folds(self) -> int:
        return self.n_coefficients

    def scalars(self, users: Users, fold: Integers) -> Floats:
        samples, j = samples_of(users, 1), _checked(fold, users, self.n_folds) + 2
        owner = np.repeat(np.arange(len(users)), np.diff(samples.indptr))
        turns = j[owner] // 2 * np.clip(samples.values[:, 0], 0.0, 1.0)
        angle = 2.0 * math.pi * (turns - np.floor(turns))  # whole turns drop out exactly
        waves = np.where(j[owner] % 2, np.sin(angle), np.cos(angle))
        return _mean(np.bincount(owner, waves, len(users)), np.diff(samples.indptr))


@register_part
@dataclass(frozen=True)
class Cell(Functional):
    """The cell of a cover that holds the mean of a user's samples: j + 1/2 for cell j."""

    wire_name: ClassVar[str] = "cell"
    cover: Cover
    n_folds = 1
    low = 0.0

    @property
    def high(self) -> float:
        return float(self.cover.n_cells)

    def scalars(self, users: Users, fold: Integers) -> Floats:
        cells = self.cover.cells(user_points(samples_of(users, self.cover.dimension)))
        return np.where(cells < 0, np.nan, cells + 0.5)


@register_part
@dataclass(frozen=True)
class HadamardRows(_Signed):
    """One Hadamard row of a user's item shares: sum_x H[r, x] count_x / sum_x count_x.

    Items outside the domain are dropped. Fold f is row r = f + 1 of the Hadamard matrix of the next
    power of two: row 0 is known to be 1.
    """

    wire_name: ClassVar[str] = "hadamard-rows"
    domain: Keys

    def __post_init__(self) -> None:
        check_within("the number of items", len(self.domain), 2, MAX_FOLDS)

    @property
    def n_folds(self) -> int:
        return next_power_of_two(len(self.domain)) - 1

    def scalars(self, users: Users, fold: Integers) -> Floats:
        items = users.counts
        lookup = domain_lookup(self.domain, items.vocabulary)
        place = items.item.astype(np.int64) if lookup is None else lookup[items.item]
        owner = np.repeat(np.arange(len(users)), np.diff(items.indptr))[place >= 0]
        row = _checked(fold, users, self.n_folds)[owner] + 1
        count = items.count[place >= 0].astype(np.float64)  # sums are exact below 2^53 items
        odd = np.bitwise_count(row & place[place >= 0]) % 2
        signed = np.bincount(owner, np.where(odd, -count, count), len(users))
        return _mean(signed, np.bincount(owner, count, len(users)))


# -- whole vectors ---------------------------------------------------------------------------------


@register_part
@dataclass(frozen=True)
class BallMean(VectorPart):
    """The mean of a user's samples, each scaled onto a ball first."""

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
        return ball_means(samples_of(users, self.dimension), self.bound)


@register_part
@dataclass(frozen=True)
class Scalar(VectorPart):
    """One scalar of a user's record, less the middle of its range: a vector of one coordinate."""

    wire_name: ClassVar[str] = "scalar"
    functional: Functional  # of one fold

    def __post_init__(self) -> None:
        check_within("the folds of the functional", self.functional.n_folds, 1, 1)

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

    >>> to_sum_zero(np.array([0.5, 0.5, 0.0])).round(4) + 0.0
    array([0.    , 0.4082])
    """
    j = np.arange(1.0, rows.shape[-1])
    before = np.cumsum(rows[..., :-1], axis=-1)
    return np.asarray((before - j * rows[..., 1:]) / np.sqrt(j * (j + 1)))


def from_sum_zero(rows: Array) -> Floats:
    """Turn coordinates in Helmert's basis back into vectors of sum zero: (..., k-1) to (..., k).

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

    "cosine": sqrt(2) cos(pi j x), j = 1, 2, ...; "fourier": sqrt(2) cos(2 pi k x) and
    sqrt(2) sin(2 pi k x), k = 1, 2, ... Samples outside are clipped; a NaN makes a user unusable.
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
        waves = wave_means(samples_of(users, 1), self.n_coefficients, self.basis == "cosine")
        return np.asarray(math.sqrt(2) * waves)


# -- what all share ---------------------------------------------------------------------


def samples_of(users: Users, dimension: int) -> Samples:
    """Return the users' samples as rows of a dimension; PopulationError if they have other data.

    Where nobody has a sample there is no dimension either, and any will do: whether a phone
    refuses must not say that its owner's record is empty.

    >>> nobody = Users.from_samples([7], [0, 0], [])
    >>> samples_of(nobody, 3).values.shape
    (0, 3)
    """
    samples = users.reals
    if not len(samples.values):
        return Samples(samples.indptr, np.zeros((0, dimension)))
    if samples.values.shape[1] != dimension:
        raise PopulationError(
            f"this needs samples of dimension {dimension}, got {samples.values.shape[1]}"
        )
    return samples


@lru_cache(maxsize=16)
def rotation_signs(salt: int, d2: int) -> Floats:
    """Expand a public salt to the signs of a rotation: (d2,) float64, +-1, read-only."""
    return read_only(public_signs(salt, (d2,)).astype(np.float64))


def _checked(fold: Integers, users: Users, n_folds: int) -> Integers:
    """Compiled loops do not check their indices."""
    if fold.shape != (len(users),) or ((fold < 0) | (fold >= n_folds)).any():
        raise ValueError(f"need a fold in [0, {n_folds}) for each of {len(users)} users")
    return np.asarray(fold, dtype=np.int64)


def _mean(total: NDArray[Any], size: NDArray[Any]) -> Floats:
    """Divide sums of numbers in [-1, 1] by how many they are, in weight; NaN of none."""
    mean = np.where(size > 0, total, np.nan) / np.maximum(size, 1)
    return np.asarray(np.clip(mean, -1.0, 1.0))
