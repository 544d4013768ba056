"""Made users for benchmarks: many draws of items per user, generated fast and without copies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedhist.users.batch import Users
from fedhist.users.columns import Items
from fedhist.users.keys import Keys

CHUNK = 8192
CELLS = 1 << 16
EXPONENT = 0.9
"""With 1,000 items, 100 Zipf draws of this exponent are about 71 distinct items."""


def shoppers(n_users: int, d: int, draws: int, seed: int = 1) -> Users:
    """Make users who each draw ``draws`` items from a Zipf distribution over d items.

    The probabilities are rounded to multiples of 2^-16, so that a draw is one look into a table.

    Returns
    -------
    Users
        With item counts; user ids are arbitrary distinct numbers, in ascending order.
    """
    rng = np.random.default_rng(seed)
    table = _table(d)
    item = np.empty(n_users * draws, dtype=np.uint32)  # untouched pages cost no memory
    count = np.empty(n_users * draws, dtype=np.uint32)
    indptr = np.zeros(n_users + 1, dtype=np.int64)
    end = 0
    for first in range(0, n_users, CHUNK):
        n = min(CHUNK, n_users - first)
        drawn = table[rng.integers(0, CELLS, (n, draws), dtype=np.uint16)]
        drawn.sort(axis=1)
        new = np.ones((n, draws), dtype=bool)
        new[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
        starts = np.flatnonzero(new)
        stop = end + len(starts)
        item[end:stop] = drawn.reshape(-1)[starts]
        count[end:stop] = np.diff(starts, append=n * draws)
        indptr[first + 1 : first + n + 1] = end + np.cumsum(new.sum(axis=1))
        end = stop
    width = len(str(d - 1))
    keys = Keys.of(f"{j:0{width}}" for j in range(d))  # padded: numbers in byte order
    ids = np.arange(n_users, dtype=np.uint64) * np.uint64(7919) + np.uint64(1)
    return Users(ids, items=Items(keys, indptr, item[:end], count[:end]))


def _table(d: int) -> NDArray[np.uint16]:
    """Spread 2^16 cells over the items in proportion to their probabilities."""
    weight = np.arange(1, d + 1, dtype=np.float64) ** -EXPONENT
    edges = np.round(np.cumsum(weight) / weight.sum() * CELLS).astype(np.int64)
    sizes = np.diff(edges, prepend=0)
    ranked = np.repeat(np.arange(d), sizes).astype(np.uint16)
    order = np.random.default_rng(d).permutation(d).astype(np.uint16)  # rank is not position
    return order[ranked]


def samplers(n_users: int, seed: int = 1) -> Users:
    """Make users with one real sample each, uniform on [0, 1]."""
    rng = np.random.default_rng(seed)
    ids = np.arange(n_users, dtype=np.uint64) * np.uint64(104729) + np.uint64(1)
    return Users.from_samples(ids, np.arange(n_users + 1), rng.random(n_users))
