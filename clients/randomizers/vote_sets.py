"""Which coordinates a user votes for: those where its own mean is far from 0 [1]_.

One compiled walk over the record, O(own record) and memory O(d); no means are kept. A record that
cannot be used votes for nothing. Of equally far means a public hash of user and column decides, so
that no column is preferred: means of few samples tie often, and by the number of the column the
votes of most users would go to the same columns whether they hold a signal or not. Distances are
equal if they are in multiples of radius / 2^32: 1/6 and -1/6 as they are rounded are not.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1.1, eq. (39)-(41).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64

from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.hashing import GOLDEN, mix
from fedhist.users.columns import Samples


def vote_sets(
    keys: Words,
    samples: Samples,
    radius: float,
    threshold: float,
    max_votes: int,
    max_items: int = 0,
    signed: bool = False,
) -> tuple[Integers, Integers]:
    """Find the coordinates whose mean is at least a threshold from 0, the farthest ones only.

    Returns (n + 1,) bounds and the columns, increasing within a user; none for a user without
    samples or with a NaN among them. With ``signed``, j stands as ~j = -1 - j where the mean is
    below 0. ``keys`` are public hashes of the user ids, of no other purpose: of equally far columns
    j those of least mix(key + (j + 1) golden) come first, which differ for different columns.
    Samples are clipped to [-radius, radius]; with ``max_items`` only the first so many count.

    Examples
    --------
    >>> two = Samples(np.array([0, 1, 2]), np.array([[0.4, -0.9, 0.1], [0.5, np.nan, 0.5]]))
    >>> vote_sets(np.arange(2, dtype=np.uint64), two, 1.0, 0.3, 5)
    (array([0, 2, 2]), array([0, 1]))
    >>> vote_sets(np.arange(2, dtype=np.uint64), two, 1.0, 0.3, 5, signed=True)[1]
    array([ 0, -2])
    """
    indptr = np.zeros(len(samples.indptr), dtype=np.int64)
    limits = radius, threshold, max_votes, max_items, signed
    columns = _vote_sets(keys, samples.indptr, samples.values, *limits, indptr)
    return indptr, columns


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _vote_sets(
    keys: Words,
    rows: Integers,
    values: Floats,
    radius: float,
    threshold: float,
    max_votes: int,
    max_items: int,
    signed: bool,
    indptr: Integers,
) -> Any:
    """Fill ``indptr`` and return the columns; one user's means at a time."""
    d = values.shape[1]
    far, column = np.empty(d), np.empty(d, dtype=np.int64)
    out = np.empty(4 * rows.shape[0], dtype=np.int64)
    for u in range(rows.shape[0] - 1):
        start, stop = rows[u], rows[u + 1]
        if max_items > 0:
            stop = start + min(stop - start, max_items)
        found = _far_columns(values[start:stop], radius, threshold, signed, far, column)
        if found > max_votes:
            found = _farthest(keys[u], max_votes, far[:found], column)
        end = indptr[u] + found
        if end > out.shape[0]:
            more = np.empty(2 * end, dtype=np.int64)
            for k in range(indptr[u]):
                more[k] = out[k]
            out = more
        for k in range(found):
            out[indptr[u] + k] = column[k]
        indptr[u + 1] = end
    return out[: indptr[-1]].copy()


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _far_columns(
    values: Floats,
    radius: float,
    threshold: float,
    signed: bool,
    far: Floats,
    column: Integers,
) -> Any:
    """List the columns of one record whose mean is far from 0; return how many there are."""
    size = float(max(values.shape[0], 1))
    mean = np.zeros(far.shape[0])  # an array of its own, which lets the loops vectorise
    for t in range(values.shape[0]):
        for j in range(mean.shape[0]):
            x = values[t, j]  # a NaN passes both comparisons and stays in the sum
            x = radius if x > radius else x
            mean[j] += -radius if x < -radius else x
    found, usable = 0, values.shape[0] > 0
    for j in range(mean.shape[0]):
        x = abs(mean[j]) / size
        usable &= not np.isnan(x)
        far[found] = np.rint(x * (4294967296.0 / radius))
        column[found] = ~j if signed and mean[j] < 0 else j
        found += x >= threshold
    return found if usable else 0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _farthest(key: Any, max_votes: int, far: Floats, column: Integers) -> Any:
    """Keep the farthest columns in place, of equally far ones by hash; return how many."""
    least = np.sort(far)[len(far) - max_votes]  # a partition compiles for far longer
    ties = max_votes - np.count_nonzero(far > least)
    order = np.empty(np.count_nonzero(far == least), dtype=np.uint64)
    last = uint64(0xFFFFFFFFFFFFFFFF)
    if ties < len(order):
        tied = 0
        for i in range(len(far)):
            if far[i] == least:
                order[tied] = _tie_hash(key, column[i])
                tied += 1
        last = np.sort(order)[ties - 1]
    kept = 0
    for i in range(len(far)):
        if far[i] > least or (far[i] == least and _tie_hash(key, column[i]) <= last):
            column[kept] = column[i]
            kept += 1
    return kept


@njit(inline="always")  # type: ignore[untyped-decorator]
def _tie_hash(key: Any, column: Any) -> Any:
    """Return the word at a column of a user's public stream: a bijection of the column."""
    column = ~column if column < 0 else column
    return mix(key + uint64(column + 1) * uint64(GOLDEN))
