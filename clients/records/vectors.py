"""A vector of a user's record, in a ball: what reports of whole vectors are about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.bounding.contribution import domain_lookup
from clients.randomizers.sphere import ball_means
from clients.records.functionals import check_columns, samples_of
from clients.records.user_rows import clipped_points, share_rows
from fedhist.base.arrays import Array, Floats, Integers, offsets
from fedhist.base.checks import check_scale, check_within
from fedhist.channels.rank_unit import MAX_DIMENSION
from fedhist.model.part import VectorPart
from fedhist.model.registry import register_part
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

MOST_LEAN = 300.0
"""sinh is finite there."""


@register_part
@dataclass(frozen=True)
class BallMean(VectorPart):
    """The mean of a user's samples, each scaled onto a ball first.

    Parameters
    ----------
    dimension : int
        Columns of the samples.
    radius : float

    Notes
    -----
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
        """The samples' columns."""
        return self.dimension

    @property
    def bound(self) -> float:
        """The radius."""
        return float(self.radius)

    def vectors(self, users: Users) -> Floats:
        """Average each user's samples: (n, d); NaN for none, or one that is not finite."""
        samples = samples_of(users, self.dimension)
        means = ball_means(samples, self.bound)
        bad = offsets(~np.isfinite(samples.values).all(axis=1))
        indptr = samples.indptr
        unusable = (np.diff(indptr) == 0) | (bad[indptr[1:]] > bad[indptr[:-1]])
        means[unusable] = np.nan
        return means


@register_part
@dataclass(frozen=True)
class BoxMean(VectorPart):
    """Some coordinates of the mean of a user's samples, each of which is clipped to a box first.

    Parameters
    ----------
    dimension : int
        Columns of the samples.
    radius : float
        Of the box [-radius, radius]^d.
    columns : (k,) int64
        The coordinates, in this order.

    Notes
    -----
    A user with a NaN in one of these coordinates is unusable; an infinity is clipped.
    """

    wire_name: ClassVar[str] = "box-mean"
    dimension: int
    radius: float
    columns: Integers

    def __post_init__(self) -> None:
        check_within("dimension", self.dimension, 1, MAX_DIMENSION)
        check_scale("radius", self.radius)
        check_columns(self.columns, self.dimension)

    @property
    def n_coordinates(self) -> int:
        """The columns."""
        return len(self.columns)

    @property
    def bound(self) -> float:
        """Norm of a corner of the box."""
        return float(self.radius) * math.sqrt(self.n_coordinates)

    def vectors(self, users: Users) -> Floats:
        """Average each user's clipped samples: (n, k); NaN for none, or a NaN among them."""
        R = float(self.radius)
        rows = clipped_points(samples_of(users, self.dimension), -R, R)[:, self.columns]
        rows[np.isnan(rows).any(axis=1)] = np.nan
        return rows


@register_part
@dataclass(frozen=True)
class Leaning(VectorPart):
    """Where a user's mean leans beyond noise: the direction of sinh(lean min(|x|, most) / scale).

    Coordinate by coordinate, with the sign of x. sinh is the score of a Gaussian mean that is
    0 or +-lean scales: small coordinates, which are noise, hardly count, and none counts for more
    than one that noise does not reach.

    Parameters
    ----------
    dimension : int
        Columns of the samples.
    radius : float
        Samples are clipped to [-radius, radius]^d.
    scale : float
        Standard deviation of a coordinate of a user's mean.
    lean : float
    most : float
        In scales.

    Notes
    -----
    A user with a NaN is unusable; one with the mean 0 leans nowhere.
    """

    wire_name: ClassVar[str] = "leaning"
    dimension: int
    radius: float
    scale: float
    lean: float
    most: float

    def __post_init__(self) -> None:
        check_within("dimension", self.dimension, 1, MAX_DIMENSION)
        for name in ("radius", "scale", "lean", "most"):
            check_scale(name, getattr(self, name))
        if self.lean * self.most > MOST_LEAN:
            raise ValueError(f"lean most must be at most {MOST_LEAN}, got {self.lean * self.most}")

    @property
    def n_coordinates(self) -> int:
        """The samples' columns."""
        return self.dimension

    @property
    def bound(self) -> float:
        """Of a direction."""
        return 1.0

    def vectors(self, users: Users) -> Floats:
        """Compute each user's direction: (n, d); NaN for a user without samples, or with a NaN."""
        R = float(self.radius)
        rows = clipped_points(samples_of(users, self.dimension), -R, R)
        size = np.minimum(np.abs(rows) / self.scale, self.most)
        rows = np.sign(rows) * np.sinh(self.lean * size)
        norm = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows /= np.where(norm > 0, norm, 1.0)[:, None]
        rows[np.isnan(norm)] = np.nan
        return np.asarray(rows)


@register_part
@dataclass(frozen=True)
class CentredShares(VectorPart):
    """A user's item shares less 1 / k each, in an orthonormal basis: k - 1 coordinates.

    The basis is Helmert's, see :func:`to_sum_zero`: distances are those of the shares.

    Parameters
    ----------
    domain : Keys
        The k >= 2 items that count; a user's other items are dropped.
    """

    wire_name: ClassVar[str] = "centred-shares"
    domain: Keys

    def __post_init__(self) -> None:
        check_within("the number of items", len(self.domain), 2, MAX_DIMENSION)

    @property
    def n_coordinates(self) -> int:
        """One less than the items."""
        return len(self.domain) - 1

    @property
    def bound(self) -> float:
        """Distance of a corner of the simplex from its middle: sqrt(1 - 1 / k)."""
        return math.sqrt(1 - 1 / len(self.domain))

    def vectors(self, users: Users) -> Floats:
        """Compute each user's shares in the basis; NaN for a user without items that count."""
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
