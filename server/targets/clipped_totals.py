"""What clipping does to a population: norms of users, true and clipped totals. NOT PRIVATE.

A path of its own for evaluation only: a prediction can contradict a measurement. Liu et al., ICML
2023, Sections 4 and A.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import domain_lookup
from fedhist.base.arrays import Array, Floats
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard


def in_domain(
    users: Shard, domain: Keys
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64], Floats]]:
    """Walk batches of users: their number, and of every entry in the domain user, item, count."""
    for batch in users.blocks(1 << 15):
        v, places = batch.counts, domain_lookup(domain, batch.counts.vocabulary)
        user = np.repeat(np.arange(len(batch)), np.diff(v.indptr))
        item, count = v.item.astype(np.int64), v.count.astype(np.float64)
        if places is not None:
            inside = places[item] >= 0
            user, item, count = user[inside], places[item[inside]].astype(np.int64), count[inside]
        yield len(batch), user, item, count


def user_norms(users: Shard, domain: Keys) -> tuple[Floats, Floats]:
    """Compute l1 and l2 norms of every user's in-domain counts: two (n,) arrays."""
    sums = [np.zeros((2, 0))]
    for n, user, _, count in in_domain(users, domain):
        sums.append(np.array([np.bincount(user, count**norm, n) for norm in (1, 2)]))
    l1, squares = np.hstack(sums)
    return l1, np.sqrt(squares)


def totals(users: Shard, domain: Keys, most: float = math.inf) -> Floats:
    """Compute the true histogram over the domain, (d,), of counts cut at ``most`` an item."""
    out = np.zeros(len(domain))
    for _, _, item, count in in_domain(users, domain):
        out += np.bincount(item, np.minimum(count, most), len(domain))
    return out


def whole_and_kept(
    users: Shard, domain: Keys, clip: float, norm: int, grid: float = 0.0
) -> tuple[Floats, Floats]:
    """Compute the totals before and after clipping each user to a norm, (d,) each."""
    whole, kept = np.zeros((2, len(domain)))
    for n, user, item, count in in_domain(users, domain):
        size = np.bincount(user, count**norm, n) ** (1 / norm)
        part = (clip / np.maximum(np.maximum(size, clip), 1e-300))[user] * count
        if grid > 0:
            part = grid * np.floor(part / grid * (1 + 2e-15))
        whole += np.bincount(item, count, len(domain))
        kept += np.bincount(item, part, len(domain))
    return whole, kept


def users_shares(users: Shard, domain: Keys) -> dict[str, Array]:
    """Add up users' own shares, their squares, and the users without items of the domain."""
    first, second = np.zeros((2, len(domain)))
    empty = 0
    for n, user, item, count in in_domain(users, domain):
        size = np.bincount(user, count, n)
        share = count / size[user]
        first += np.bincount(item, share, len(domain))
        second += np.bincount(item, np.square(share), len(domain))
        empty += int(np.count_nonzero(size == 0))
    return {"shares": first, "squares": second, "empty": np.array([empty])}
