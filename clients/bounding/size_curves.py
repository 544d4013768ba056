"""What clipping at every threshold of a grid would leave, from one walk over the users.

Cut to C of its m tokens at random, a user is expected to keep min(1, C / m) N_j of item j [1]_. On
a grid of thresholds that is a piecewise linear function of C with a bend at m, and values at grid
points a < m <= b do not change if the bend is shared out between them:

    min(C, m) = theta min(C, b) + (1 - theta) min(C, a),     theta = (m - a) / (b - a),

for every C on the grid. So a user adds two numbers per item, theta N_j / m at b and the rest of
N_j / m at a, and their sums over the users give the expected histogram at ALL thresholds.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithm 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from fedhist.base.lazy import kernel
from fedhist.users.keys import Keys
from fedhist.users.shards import Items

Int64s = NDArray[np.int64]

SHARE_PARTS = 1 << 32
"""Steps per unit share: integers, whose sums are exact in any order."""


def size_curves(items: Items, grid: tuple[int, ...]) -> tuple[Keys, Int64s, Int64s, Int64s]:
    """Add up every user's shares by item and grid point; users and sizes by grid bin.

    Returns the items that occur in byte order, (items, K) shares in steps of 2^-32, and (K,) users
    and sums of min(m, grid[-1]) with m in (grid[k], grid[k + 1]], the last bin being open above.

    Privacy
    -------
    What one user adds to any expected count is non-negative, and over all items it is at most
    min(m, C): every share is rounded down, in exact comparison with its real value.

    Error
    -----
    The expected count of an item at C is too low by less than C / 2^30 per user who has it.
    """
    row, order = _occurring(items)
    keys, k = items.vocabulary.take(order), len(grid)
    shares = np.zeros((len(keys), k), dtype=np.int64)
    users, sizes = np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64)
    points = np.array(grid, dtype=np.int64)
    add_curves(items.indptr, items.count, row, points, shares, users, sizes)
    return keys, shares, users, sizes


def _occurring(items: Items) -> tuple[Int64s, Int64s]:
    """Find the items that occur, in byte order: the row of every entry, and every row's item."""
    vocabulary = items.vocabulary
    occurs = np.zeros(len(vocabulary), dtype=np.bool_)
    occurs[items.item] = True
    order = vocabulary.byte_order[occurs[vocabulary.byte_order]]
    rank = np.zeros(len(vocabulary), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[items.item], order


@kernel(forceinline=True)
def _total(start: Any, stop: Any, count: Any) -> Any:
    """Size m of one user, as a double; the only rounding is that of the exact sum."""
    high, low = uint64(0), uint64(0)
    for k in range(start, stop):
        c = uint64(count[k])
        high += c >> uint64(32)
        low += c & uint64(0xFFFFFFFF)
    return float(high) * 4294967296.0 + float(low)


@kernel()
def add_curves(
    indptr: Int64s,
    count: Any,
    row: Int64s,
    grid: Int64s,
    shares: Int64s,
    users: Int64s,
    sizes: Int64s,
) -> None:
    """Add every user's shares to ``shares``, and its size to ``users`` and ``sizes``."""
    lower = 1.0 - 2.0**-48  # pulls a weight below its exact value, whatever rounding does
    last = grid.shape[0] - 1
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        m = _total(start, stop, count)
        if m == 0.0:
            continue
        b = np.searchsorted(grid, np.int64(m)) if m <= grid[last] else last + 1
        if b > 0:
            users[b - 1] += 1
            sizes[b - 1] += np.int64(min(m, float(grid[last])))
        above, below = 0.0, 0.0
        if b > last:
            b, above = last, 4294967296.0 / m * lower
        else:
            a = float(grid[b - 1]) if b > 0 else 0.0
            width = float(grid[b]) - a
            above = (m - a) / width * (4294967296.0 / m) * lower
            below = (float(grid[b]) - m) / width * (4294967296.0 / m) * lower
        for k in range(start, stop):
            j, c = row[k], float(count[k])
            shares[j, b] += np.int64(c * above)
            if b > 0:
                shares[j, b - 1] += np.int64(c * below)
