"""A user's record as one row: the mean of its samples, or the shares of its items.

What a user sends of a record that cannot be used (no samples, NaN or infinite values, no known
item) is the null record, the zero vector. It is never dropped: the number of users is public and
stays what it is. A row of NaN marks such a record where nothing is sent.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from clients.bounding.kernels import Lookup
from fedhist.base.arrays import Floats, Integers, read_only
from fedhist.users.batch import Users
from fedhist.users.columns import Items, Samples


def user_points(samples: Samples) -> Floats:
    """Average each user's samples, coordinate by coordinate, without clipping: (n, d).

    A row of NaN for a user without samples, or whose mean is not finite.

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
    """Average each user's samples, clipped to [low, high], as :func:`coordinate_points` does."""
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
    """Average each user's samples and shorten the mean to the norm ``box``: (n, d) float64."""
    return shorten(np.nan_to_num(user_points(samples), copy=False, nan=0.0), box)


def shorten(rows: Floats, box: float) -> Floats:
    """Scale rows of norm above ``box`` down to it; finite rows of any size.

    By pairwise sums, whose rounding grows with log d: rows have the norm ``box`` to some 1e-15.
    """
    largest = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1e-300)
    # squares of the scaled entries can neither overflow nor vanish
    unit = rows / largest[:, None]
    root = np.sqrt(np.square(unit).sum(axis=1))
    with np.errstate(over="ignore"):
        long = root > box / largest
    rows[long] = unit[long] * (box / np.maximum(root[long], 1.0))[:, None]
    return rows


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def shrink(x: Any, i: int, radius: float) -> tuple[float, float]:
    """Find (a, b) such that a (b x_i) is row i scaled onto the ball; NaN for one not finite.

    The row is no slice: a view of it would cost more than the row.
    """
    d = x.shape[1]
    # four sums at a time, in an order that is the same on every machine
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = d - d % 4
    for k in range(0, whole, 4):
        s0 += x[i, k] * x[i, k]
        s1 += x[i, k + 1] * x[i, k + 1]
        s2 += x[i, k + 2] * x[i, k + 2]
        s3 += x[i, k + 3] * x[i, k + 3]
    for k in range(whole, d):
        s0 += x[i, k] * x[i, k]
    squares = (s0 + s1) + (s2 + s3)
    if 1e-200 < squares < 1e200:
        norm = math.sqrt(squares)
        return (radius / norm if norm > radius else 1.0), 1.0
    most, total = 0.0, 0.0
    for k in range(x.shape[1]):
        total += x[i, k] * 0.0  # NaN where one entry is not finite
        most = max(most, abs(x[i, k]))
    if total != 0.0:
        return np.nan, 1.0
    if most == 0.0:
        return 1.0, 1.0
    squares = 0.0
    for k in range(x.shape[1]):
        squares += (x[i, k] / most) ** 2  # in proportion, so that nothing overflows
    norm = math.sqrt(squares)
    if radius / most < norm:
        return radius / norm, 1.0 / most
    return 1.0, 1.0


def share_rows(items: Items, lookup: Lookup, d: int) -> Floats:
    """Divide each user's counts of the known items by their sum: (n, d) float64.

    ``lookup`` has the position of every item of the vocabulary in the domain, negative for unknown
    ones; None: the two are the same.
    """
    n = len(items.indptr) - 1
    item = items.item.astype(np.int64)
    place = item if lookup is None else lookup[item]
    known = place >= 0
    user = np.repeat(np.arange(n), np.diff(items.indptr))[known]
    rows = np.zeros((n, d))
    rows[user, place[known]] = items.count[known]  # items are distinct within a user
    return np.asarray(rows / np.maximum(rows.sum(axis=1, keepdims=True), 1.0))


def ball_means(samples: Samples, radius: float) -> Floats:
    """Average each user's samples, every sample scaled onto the ball first: (n, d) float64.

    Zero, the null record, for a user without samples or with one that is not finite.

    >>> x = np.array([[3.0, 4.0], [0.0, 1.0], [np.nan, 0.0]])
    >>> ball_means(Samples(np.array([0, 2, 3]), x), 1.0)
    array([[0.3, 0.9],
           [0. , 0. ]])
    """
    out = np.zeros((len(samples.indptr) - 1, samples.values.shape[1]))
    _ball_means(samples.indptr, samples.values, float(radius), out)
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _ball_means(indptr: Any, values: Any, radius: float, out: Floats) -> None:
    d = values.shape[1]
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        for k in range(start, stop):
            a, b = shrink(values, k, radius)
            for j in range(d):
                out[u, j] += a * (b * values[k, j])
        usable = True
        for j in range(d):
            out[u, j] /= max(stop - start, 1)
            usable &= not np.isnan(out[u, j])
        if not usable:
            out[u] = 0.0


def fourier_rows(samples: Samples, n_frequencies: int, steps: int) -> NDArray[np.int32]:
    """Average cos(2 pi k x) and sin(2 pi k x), k = 1, ..., K, over each user's samples.

    (n, 2 K) int32: cosine 1, sine 1, cosine 2, ... of samples of one dimension, clipped into
    [0, 1], each mean rounded to the nearest of ``steps`` per unit, below 2^31. A row of zeros for a
    user without samples or with a NaN among them.

    Examples
    --------
    >>> two = Samples(np.array([0, 1, 3]), np.array([[0.0], [0.0], [0.25]]))
    >>> fourier_rows(two, 2, 100).tolist()
    [[100, 0, 100, 0], [50, 50, 0, 0]]
    """
    out = np.zeros((len(samples.indptr) - 1, 2 * n_frequencies), dtype=np.int32)
    _fill(samples.indptr, samples.values, float(steps), out)
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fill(indptr: Integers, values: Floats, steps: float, out: NDArray[np.int32]) -> None:
    width = out.shape[1]
    total = np.empty(width)
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        total[:] = 0.0
        for i in range(start, stop):
            x = values[i, 0]
            x = 0.0 if x < 0.0 else (1.0 if x > 1.0 else x)  # a NaN stays, and spoils every sum
            c, s = math.cos(2.0 * math.pi * x), math.sin(2.0 * math.pi * x)
            re, im = 1.0, 0.0
            for j in range(0, width, 2):  # one turn more for the next frequency
                re, im = re * c - im * s, re * s + im * c
                total[j] += re
                total[j + 1] += im
        if stop > start and not np.isnan(total[0]):
            for j in range(width):
                out[u, j] = np.int32(np.rint(total[j] / (stop - start) * steps))
