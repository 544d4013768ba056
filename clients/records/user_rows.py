"""A user's record as one row: the mean of its samples, or the shares of its items.

What a user sends of a record that cannot be used (no samples, NaN or infinite values, no known
item) is the null record, the zero vector. It is never dropped: the number of users is public and
stays what it is. A row of NaN marks such a record where nothing is sent.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from clients.bounding.contribution import Lookup
from fedhist.base.arrays import Floats, Integers, read_only
from fedhist.base.lazy import kernel
from fedhist.users.batch import Users
from fedhist.users.shards import Items, Samples


@kernel(forceinline=True)
def clipped(x: Any, low: Any, high: Any) -> Any:
    """Clip a number; a NaN passes both comparisons, and spreads."""
    return low if x < low else high if x > high else x


def user_points(samples: Samples) -> Floats:
    """Average each user's samples, coordinate by coordinate, without clipping: (n, d).

    A row of NaN for a user without samples, or whose mean is not finite.

    >>> user_points(Samples(np.array([0, 2, 2]), np.array([[1.0, 0.0], [3.0, 1.0]])))
    array([[2. , 0.5],
           [nan, nan]])
    """
    return _averages(samples, -np.inf, np.inf, whole=True)


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
    return _averages(samples, low, high)


def clipped_points(samples: Samples, low: float, high: float, first: int = 0) -> Floats:
    """Average each user's samples (the ``first`` ones, if not 0), every number clipped before."""
    return _averages(samples, low, high, every=True, first=first)


def user_means(users: Users, low: float, high: float) -> Floats:
    """Average each user's samples, every number being clipped to [low, high] first.

    Returns
    -------
    (n, d) float64
        In [low, high]; a row of NaN for a user without samples, or with a NaN among them.

    Examples
    --------
    >>> users = Users.from_samples([1, 2], [0, 2, 2], [0.5, 9.0])
    >>> user_means(users, 0.0, 1.0).tolist()
    [[0.75], [nan]]
    """
    means = _averages(users.reals, low, high, every=True, whole=True)
    return np.clip(means, low, high)  # summation may leave the range by a rounding


def _averages(
    samples: Samples,
    low: float,
    high: float,
    *,
    every: bool = False,
    whole: bool = False,
    first: int = 0,
) -> Floats:
    out = np.zeros((len(samples.indptr) - 1, samples.values.shape[1]))
    indptr, values = read_only(samples.indptr), read_only(samples.values)
    _average(indptr, values, low, high, every, whole, first, out)
    return out


@kernel()
def _average(
    indptr: Any,
    values: Any,
    low: float,
    high: float,
    every: bool,
    whole: bool,
    first: int,
    out: Floats,
) -> None:
    """Average each user's rows in their order, ``every`` number clipped, or infinite ones only."""
    for user in range(out.shape[0]):
        start, stop = indptr[user], indptr[user + 1]
        if first > 0:
            stop = min(stop, start + first)
        for row in range(start, stop):
            for j in range(out.shape[1]):
                x = values[row, j]
                if every or np.isinf(x):
                    x = clipped(x, low, high)
                out[user, j] += x
        finite = True
        for j in range(out.shape[1]):
            x = out[user, j] / (stop - start) if stop > start else np.nan
            finite &= np.isfinite(x)
            out[user, j] = (low if x < 0 else high) if np.isinf(x) else x
        if whole and not finite:
            out[user] = np.nan


def mean_rows(samples: Samples, box: float) -> Floats:
    """Average each user's samples and shorten the mean to the norm ``box``: (n, d) float64."""
    return shorten(np.nan_to_num(user_points(samples), copy=False, nan=0.0), box)


def norms(rows: Floats) -> Floats:
    """Return l2 norms of rows of any finite size: (n,); NaN of a row with one."""
    return norms_and_units(rows)[0]


def norms_and_units(rows: Floats) -> tuple[Floats, Floats]:
    """Return l2 norms of rows, whose squares need not be finite, and the rows over them."""
    largest = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1e-300)
    unit = rows / largest[:, None]
    root = np.sqrt(np.square(unit).sum(axis=1))
    unit /= np.where(root == 0, 1.0, root)[:, None]
    return np.asarray(largest * root), np.asarray(unit)


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


@kernel()
def shrink(x: Any, i: int, radius: float) -> tuple[float, float]:
    """Find (a, b) such that a (b x_i) is row i scaled onto the ball; NaN for one not finite."""
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

    A row of NaN for a user without samples or with one that is not finite.

    >>> x = np.array([[3.0, 4.0], [0.0, 1.0], [np.nan, 0.0]])
    >>> ball_means(Samples(np.array([0, 2, 3]), x), 1.0)
    array([[0.3, 0.9],
           [nan, nan]])
    """
    out = np.zeros((len(samples.indptr) - 1, samples.values.shape[1]))
    _ball_means(samples.indptr, samples.values, float(radius), out)
    return out


@kernel()
def _ball_means(indptr: Any, values: Any, radius: float, out: Floats) -> None:
    for u in range(out.shape[0]):
        start, stop = indptr[u], indptr[u + 1]
        add_shrunk(values, start, stop, radius, out[u])
        for j in range(out.shape[1]):
            out[u, j] = out[u, j] / (stop - start) if stop > start else np.nan


@kernel()
def add_shrunk(values: Any, start: Any, stop: Any, radius: float, total: Floats) -> None:
    """Add up rows, each scaled onto the ball first."""
    for i in range(start, stop):
        a, b = shrink(values, i, radius)
        for j in range(total.shape[0]):
            total[j] += a * (b * values[i, j])


def wave_means(samples: Samples, n_waves: int, half_turns: bool) -> Floats:
    """Average waves of each user's samples of [0, 1]: (n, n_waves) float64.

    cos(pi j x), j = 1, 2, ..., of half turns; else cos(2 pi k x), sin(2 pi k x), k = 1, 2, ...
    Samples outside are clipped; NaN for a user without samples, or with a NaN among them.
    """
    out = np.zeros((len(samples.indptr) - 1, n_waves))
    _wave_means(samples.indptr, samples.values, half_turns, out)
    return out


@kernel()
def _wave_means(indptr: Integers, values: Floats, half_turns: bool, out: Floats) -> None:
    """Fill the means; one turn more for every next frequency."""
    width = out.shape[1]
    for u in range(out.shape[0]):
        start, stop, row = indptr[u], indptr[u + 1], out[u]
        for i in range(start, stop):
            x = clipped(values[i, 0], 0.0, 1.0)
            if half_turns:
                c = math.cos(math.pi * x)
                before, wave = 1.0, c
                for j in range(width):
                    row[j] += wave
                    before, wave = wave, 2.0 * c * wave - before
                continue
            c, s = math.cos(2.0 * math.pi * x), math.sin(2.0 * math.pi * x)
            re, im = 1.0, 0.0
            for j in range(0, width, 2):
                re, im = re * c - im * s, re * s + im * c
                row[j] += re
                if j + 1 < width:
                    row[j + 1] += im
        for j in range(width):
            row[j] = row[j] / (stop - start) if stop > start else np.nan


@kernel()
def coordinates_kernel(
    indptr: Integers,
    values: Floats,
    column: Integers,
    low: float,
    high: float,
    max_items: int,
    out: Floats,
) -> None:
    """Fill every user's mean of one column, each sample clipped to [low, high] first."""
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        if max_items > 0:
            stop = start + min(stop - start, max_items)
        c = column[u]
        total = 0.0 if stop > start else np.nan
        for i in range(start, stop):
            total += clipped(values[i, c], low, high)
        # summation may leave the range by a rounding
        out[u] = clipped(total / max(stop - start, 1), low, high)


@kernel()
def _signed_sum(t: Floats, row: int) -> Any:
    """Add up H[row, k] t_k, destroying ``t``, whose length is a power of two."""
    m = t.shape[0] // 2
    while m > 0:
        low, high = t[:m], t[m : 2 * m]
        if row & m:
            for k in range(m):
                low[k] -= high[k]
        else:
            for k in range(m):
                low[k] += high[k]
        m //= 2
    return t[0]


@kernel()
def rotated_kernel(
    indptr: Integers,
    values: Floats,
    fold: Integers,
    signs: Floats,
    radius: float,
    clip: float,
    max_items: int,
    d2: int,
    out: Floats,
) -> None:
    """Fill sum_k H[fold, k] signs_k mean_k; ``signs`` (d,) carries the factor of the transform."""
    d = values.shape[1]
    mean, scratch = np.empty(d), np.empty(d2)
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        if max_items > 0:
            stop = start + min(stop - start, max_items)
        mean[:] = 0.0
        add_shrunk(values, start, stop, radius, mean)
        scratch[d:] = 0.0
        for k in range(d):
            scratch[k] = signs[k] * mean[k]
        z = _signed_sum(scratch, fold[u]) / max(stop - start, 1)
        z = z if stop > start else np.nan
        out[u] = clipped(z, -clip, clip)
