"""A vector of a user's record, in a ball: what reports of whole vectors are about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.bounding.contribution import domain_lookup
from clients.randomizers.sphere import ball_means
from clients.records.functionals import samples_of
from clients.records.user_rows import share_rows
from fedhist.base.arrays import Array, Floats, offsets
from fedhist.base.checks import check_scale, check_within
from fedhist.channels.rank_unit import MAX_DIMENSION
from fedhist.model.part import VectorPart
from fedhist.model.registry import register_part
from fedhist.users.batch import Users
from fedhist.users.keys import Keys


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
