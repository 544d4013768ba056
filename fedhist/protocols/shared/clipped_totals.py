"""What clipping does to a population: norms of users, true totals and clipped totals.

A path of its own, that shares nothing with the estimator, so that a prediction can contradict a
measurement. It reads private data, block by block, and is for evaluation only.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Sections 4 and A.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Array, Floats
from fedhist.protocols.shared.total_loops import (
    add_clipped,
    add_own_shares,
    add_shares,
    add_totals,
    fill_norms,
)
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard

BATCH = 1 << 15


@lru_cache(maxsize=32)
def _places(domain: Keys, vocabulary: Keys) -> NDArray[np.int64]:
    """Say where in the domain the items of a vocabulary are; -1 for nowhere."""
    return domain.positions(vocabulary).astype(np.int64)


def in_domain(users: Shard, domain: Keys) -> Iterator[tuple[int, NDArray[np.int64], Floats]]:
    """Walk batches of users: (number of users, flat user * d + item, counts), domain only."""
    d = len(domain)
    for batch in users.blocks(BATCH):
        v = batch.counts
        user = np.repeat(np.arange(len(batch)), np.diff(v.indptr))
        item = _places(domain, v.vocabulary)[v.item]
        inside = item >= 0
        yield len(batch), user[inside] * d + item[inside], v.count[inside].astype(np.float64)


def _columns(block: Users, domain: Keys) -> tuple[Any, Any, Any, Any]:
    v = block.counts
    places = None if domain == v.vocabulary else _places(domain, v.vocabulary)
    return v.indptr, v.item, v.count, places


def user_norms(users: Shard, domain: Keys) -> tuple[Floats, Floats]:
    """Compute l1 and l2 norms of every user's in-domain counts: two (n,) arrays."""
    l1, l2, start = np.empty(len(users)), np.empty(len(users)), 0
    for block in users.blocks():
        stop = start + len(block)
        fill_norms(*_columns(block, domain), l1[start:stop], l2[start:stop])
        start = stop
    return l1, l2


def totals(users: Shard, domain: Keys, most: float = math.inf) -> Floats:
    """Compute the true histogram over the domain, (d,), of counts cut at ``most`` an item."""
    out = np.zeros(len(domain))
    for block in users.blocks():
        add_totals(*_columns(block, domain)[1:], float(most), out)
    return out


def whole_and_kept(
    users: Shard, domain: Keys, clip: float, norm: int, grid: float = 0.0
) -> tuple[Floats, Floats]:
    """Compute the totals before and after clipping each user to a norm, (d,) each.

    On a grid, what is left is rounded down to it.
    """
    whole, kept = np.zeros(len(domain)), np.zeros(len(domain))
    for block in users.blocks():
        add_clipped(*_columns(block, domain), (float(clip), norm, float(grid)), whole, kept)
    return whole, kept


def own_shares(
    users: Shard, domain: Keys, padding: float = 0.0
) -> tuple[Floats, Floats, Floats, int]:
    """Add up counts, users' own shares of max(their total, padding), squares; users without any."""
    whole, first, second = (np.zeros(len(domain)) for _ in range(3))
    empty = 0
    for block in users.blocks():
        empty += add_shares(*_columns(block, domain), float(padding), whole, first, second)
    return whole, first, second, empty


def users_shares(users: Users, domain: Keys) -> dict[str, Array]:
    """Add up users' own shares, and the users without items of the domain."""
    shares, empty = np.zeros(len(domain)), np.zeros(1, dtype=np.int64)
    add_own_shares(*_columns(users, domain), shares, empty)
    return {"shares": shares, "empty": empty}


def clipped_curve(users: Shard, domain: Keys, clips: Floats, norm: int) -> Floats:
    """Compute the clipped totals for many thresholds in one pass over the users.

    With v the users' norms, the total at C is the sum of N over v <= C plus C times the sum of
    N / v over v > C; both are cumulative over bins of v.
    """
    d, bins = len(domain), len(clips) + 1
    whole, shares = np.zeros((bins, d)), np.zeros((bins, d))
    for n, flat, count in in_domain(users, domain):
        user = flat // d
        size = np.bincount(user, count**norm, n) ** (1 / norm)
        cell = np.searchsorted(clips, size)[user] * d + flat % d  # first threshold >= the norm
        whole += np.bincount(cell, count, bins * d).reshape(bins, d)
        shares += np.bincount(cell, count / size[user], bins * d).reshape(bins, d)
    below = np.cumsum(whole, axis=0)[:-1]
    above = np.cumsum(shares[::-1], axis=0)[::-1][1:]
    return np.asarray(below + clips[:, None] * above)
