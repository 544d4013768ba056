"""A user's record as one row: the mean of its samples, or the shares of its items.

What a user sends of a record that cannot be used (no samples, NaN or infinite values, no known
item) is the null record, the zero vector. It is never dropped: the number of users is public and
stays what it is. A row of NaN marks such a record where nothing is sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from clients.bounding.kernels import Lookup
from fedhist.base.arrays import Floats, read_only
from fedhist.users.batch import Users
from fedhist.users.columns import Items, Samples


def user_points(samples: Samples) -> Floats:
    """Average each user's samples, coordinate by coordinate, without clipping.

    Returns
    -------
    (n, d) float64
        A row of NaN for a user without samples, or whose mean is not finite.

    Examples
    --------
    >>> user_points(Samples(np.array([0, 2, 2]), np.array([[1.0, 0.0], [3.0, 1.0]])))
    array([[2. , 0.5],
           [nan, nan]])
    """
    points: Floats = _means(read_only(samples.indptr), read_only(samples.values))
    return points


def coordinate_points(samples: Samples, low: float, high: float) -> Floats:
    """Average each user's samples where every coordinate is reported about by itself.

    A NaN spoils its own coordinate only, and an infinity stands for the end of the range
    [low, high] that it is clipped to. What is finite is not clipped.

    Returns
    -------
    (n, d) float64
        NaN in the coordinates that a user has no usable samples of.

    Examples
    --------
    >>> x = np.array([[np.inf, 7.0], [0.0, np.nan]])
    >>> coordinate_points(Samples(np.array([0, 2]), x), -1.0, 1.0)
    array([[0.5, nan]])
    """
    points: Floats = _box_means(
        read_only(samples.indptr), read_only(samples.values), low, high, False
    )
    return points


def clipped_points(samples: Samples, low: float, high: float) -> Floats:
    """Average each user's samples, clipped to [low, high], as :func:`coordinate_points` does.

    Examples
    --------
    >>> x = np.array([[np.inf, 7.0], [0.0, np.nan]])
    >>> clipped_points(Samples(np.array([0, 2]), x), -1.0, 1.0)
    array([[0.5, nan]])
    """
    points: Floats = _box_means(
        read_only(samples.indptr), read_only(samples.values), low, high, True
    )
    return points


def user_means(users: Users, low: float, high: float) -> Floats:
    """Average each user's samples, every number being clipped to [low, high] first.

    Returns
    -------
    (n, d) float64
        In [low, high]; a row of NaN for a user without samples, or with a NaN among them.

    Examples
    --------
    >>> users = Users.from_samples([1, 2], [0, 2, 2], [0.5, np.inf])
    >>> user_means(users, 0.0, 1.0).tolist()
    [[0.75], [nan]]
    """
    samples = users.reals
    clipped = np.clip(samples.values, low, high)
    return np.clip(user_points(Samples(samples.indptr, clipped)), low, high)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _means(indptr: Any, values: Any) -> Floats:
    """Average each user's rows, in their order; NaN without any, or where one is not finite."""
    n, d = len(indptr) - 1, values.shape[1]
    out = np.zeros((n, d))
    for user in range(n):
        size = indptr[user + 1] - indptr[user]
        if size == 1 and d == 1:  # users of one number are the many
            x = values[indptr[user], 0]
            out[user, 0] = x + 0.0 if np.isfinite(x) else np.nan  # of -0, too, the sum is 0
            continue
        for row in range(indptr[user], indptr[user + 1]):
            for j in range(d):
                out[user, j] += values[row, j]
        finite = size > 0
        for j in range(d):
            out[user, j] = out[user, j] / max(size, 1)
            finite &= np.isfinite(out[user, j])
        if not finite:
            out[user] = np.nan
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _box_means(indptr: Any, values: Any, low: float, high: float, every: bool) -> Floats:
    """Average each user's rows, in their order, ``every`` number clipped or infinite ones only."""
    n, d = len(indptr) - 1, values.shape[1]
    out = np.zeros((n, d))
    for user in range(n):
        size = indptr[user + 1] - indptr[user]
        for row in range(indptr[user], indptr[user + 1]):
            for j in range(d):
                x = values[row, j]
                if every or np.isinf(x):
                    x = low if x < low else high if x > high else x
                out[user, j] += x
        for j in range(d):
            x = out[user, j] / size if size else np.nan
            out[user, j] = (low if x < 0 else high) if np.isinf(x) else x
    return out


def mean_rows(samples: Samples, box: float) -> Floats:
    """Average each user's samples and shorten the mean to the norm ``box``: (n, d) float64.

    Examples
    --------
    >>> s = Samples(np.array([0, 2, 2, 3]), np.array([[1.0, 0.0], [3.0, 0.0], [np.nan, 1.0]]))
    >>> mean_rows(s, box=1.0)
    array([[1., 0.],
           [0., 0.],
           [0., 0.]])
    """
    return shorten(np.nan_to_num(user_points(samples), copy=False, nan=0.0), box)


def shorten(rows: Floats, box: float) -> Floats:
    """Scale rows of norm above ``box`` down to it; finite rows of any size."""
    largest = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1e-300)
    # squares of the scaled entries can neither overflow nor vanish
    unit = rows / largest[:, None]
    root = np.sqrt(np.square(unit).sum(axis=1))
    with np.errstate(over="ignore"):
        long = root > box / largest
    rows[long] = unit[long] * (box / np.maximum(root[long], 1.0))[:, None]
    return rows


def share_rows(items: Items, lookup: Lookup, d: int) -> Floats:
    """Divide each user's counts of the known items by their sum: (n, d) float64.

    Parameters
    ----------
    items : Items
    lookup : (vocabulary,) int32 or None
        Position of every item of the vocabulary in the domain, negative for unknown ones; None:
        the two are the same.
    d : int
        Size of the domain.
    """
    n = len(items.indptr) - 1
    item = items.item.astype(np.int64)
    place = item if lookup is None else lookup[item]
    known = place >= 0
    user = np.repeat(np.arange(n), np.diff(items.indptr))[known]
    rows = np.zeros((n, d))
    rows[user, place[known]] = items.count[known]  # items are distinct within a user
    return np.asarray(rows / np.maximum(rows.sum(axis=1, keepdims=True), 1.0))
