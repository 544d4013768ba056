"""What clipping does to a population: norms of users, true totals and clipped totals. NOT PRIVATE.

It reads private data, block by block, and is for evaluation only. Clipped totals are a path of
their own, that shares nothing with the estimator, so that a prediction can contradict a
measurement; the compiled loops have slow obvious counterparts in the tests.

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
from numba import int64, njit, uint64
from numpy.typing import NDArray

from clients.bounding.contribution import columns_of
from clients.bounding.contribution import user_norms as fill_norms
from fedhist.base.arrays import Array, Floats
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard


@lru_cache(maxsize=32)
def _places(domain: Keys, vocabulary: Keys) -> NDArray[np.int32]:
    """Say where in the domain the items of a vocabulary are; -1 for nowhere."""
    return domain.positions(vocabulary)


def in_domain(users: Shard, domain: Keys) -> Iterator[tuple[int, NDArray[np.int64], Floats]]:
    """Walk batches of users: (number of users, flat user * d + item, counts), domain only."""
    d = len(domain)
    for batch in users.blocks(1 << 15):
        v = batch.counts
        user = np.repeat(np.arange(len(batch)), np.diff(v.indptr))
        item = _places(domain, v.vocabulary)[v.item].astype(np.int64)
        inside = item >= 0
        yield len(batch), user[inside] * d + item[inside], v.count[inside].astype(np.float64)


def _columns(block: Users, domain: Keys) -> tuple[Any, Any, Any, Any]:
    v = block.counts
    return columns_of(v, None if domain == v.vocabulary else _places(domain, v.vocabulary))


def user_norms(users: Shard, domain: Keys) -> tuple[Floats, Floats]:
    """Compute l1 and l2 norms of every user's in-domain counts: two (n,) arrays."""
    out, start = np.empty((2, len(users))), 0
    for block in users.blocks():
        stop = start + len(block)
        for norm in (1, 2):
            fill_norms(_columns(block, domain), norm, out[norm - 1, start:stop])
        start = stop
    return out[0], out[1]


def totals(users: Shard, domain: Keys, most: float = math.inf) -> Floats:
    """Compute the true histogram over the domain, (d,), of counts cut at ``most`` an item."""
    out = np.zeros(len(domain) + 1)
    for block in users.blocks():
        _, item, count, places = _columns(block, domain)
        at = item if places is None else places[item]
        np.add.at(out, at, np.minimum(count, most))  # nowhere, -1, is the last
    return out[:-1]


def whole_and_kept(
    users: Shard, domain: Keys, clip: float, norm: int, grid: float = 0.0
) -> tuple[Floats, Floats]:
    """Compute the totals before and after clipping each user to a norm, (d,) each.

    On a grid, what is left is rounded down to it.
    """
    whole, kept = np.zeros(len(domain)), np.zeros(len(domain))
    for block in users.blocks():
        _add_clipped(_columns(block, domain), (float(clip), norm, float(grid)), whole, kept)
    return whole, kept


def own_shares(
    users: Shard, domain: Keys, padding: float = 0.0
) -> tuple[Floats, Floats, Floats, int]:
    """Add up counts, users' own shares of max(their total, padding), squares; users without any."""
    whole, first, second = (np.zeros(len(domain)) for _ in range(3))
    empty = 0
    for block in users.blocks():
        empty += _add_shares(_columns(block, domain), float(padding), whole, first, second)
    return whole, first, second, empty


def users_shares(users: Users, domain: Keys) -> dict[str, Array]:
    """Add up users' own shares, and the users without items of the domain."""
    _, shares, _, empty = own_shares(users, domain)
    return {"shares": shares, "empty": np.array([empty])}


# -- loops -----------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _place(places: Any, j: Any) -> Any:
    return int64(j) if places is None else int64(places[j])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_clipped(columns: Any, law: tuple[float, int, float], whole: Floats, kept: Floats) -> None:
    """Add up counts by item, and what of them a clip to (radius, norm, grid) leaves: (d,) each."""
    indptr, item, count, places = columns
    clip, norm, grid = law
    n = indptr.shape[0] - 1
    factor = np.empty(n)
    for u in range(n):  # apart from what follows, which waits for it: the next user's needs not
        size = 0.0
        for k in range(uint64(indptr[u]), uint64(indptr[u + 1])):
            if _place(places, item[k]) >= 0:
                c = float(count[k])
                size += c if norm == 1 else c * c
        size = size if norm == 1 else math.sqrt(size)
        factor[u] = clip / max(max(size, clip), 1e-300)
    for u in range(n):
        w = factor[u]
        for k in range(uint64(indptr[u]), uint64(indptr[u + 1])):
            j = _place(places, item[k])
            if j >= 0:
                c = float(count[k])
                part = w * c
                if grid > 0:
                    part = grid * math.floor(part / grid * (1 + 2e-15))
                whole[uint64(j)] += c
                kept[uint64(j)] += part


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_shares(columns: Any, padding: float, whole: Floats, first: Floats, second: Floats) -> int:
    """Add up by item counts, shares of max(user's total, padding), their squares: (d,) each.

    Returns the number of users without an item of the domain.
    """
    indptr, item, count, places = columns
    empty = 0
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        total = 0.0
        for k in range(start, stop):
            if _place(places, item[k]) >= 0:
                total += float(count[k])
        empty += total == 0
        total = max(total, padding)
        for k in range(start, stop):
            j = _place(places, item[k])
            if j >= 0:
                c = float(count[k])
                share = c / total
                whole[uint64(j)] += c
                first[uint64(j)] += share
                second[uint64(j)] += share * share
    return empty
