"""What clipping does to a population: norms of users, true totals and clipped totals.

An obvious NumPy path of its own, that shares nothing with the estimator, so that a prediction can
contradict a measurement. It reads private data and is for evaluation only.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Sections 4 and A.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

BATCH = 1 << 15


def in_domain(users: Users, domain: Keys) -> Iterator[tuple[int, NDArray[np.int64], Floats]]:
    """Walk batches of users: (number of users, flat user * d + item, counts), domain only."""
    d = len(domain)
    position = domain.positions(users.vocabulary).astype(np.int64)
    for batch in users.chunks(BATCH):
        v = batch.counts
        user = np.repeat(np.arange(len(batch)), np.diff(v.indptr))
        item = position[v.item]
        inside = item >= 0
        yield len(batch), user[inside] * d + item[inside], v.count[inside].astype(np.float64)


def user_norms(users: Users, domain: Keys) -> tuple[Floats, Floats]:
    """Compute l1 and l2 norms of every user's in-domain counts: two (n,) arrays."""
    d = len(domain)
    l1, l2 = [np.zeros(0)], [np.zeros(0)]
    for n, flat, count in in_domain(users, domain):
        l1.append(np.asarray(np.bincount(flat // d, count, n), dtype=np.float64))
        l2.append(np.sqrt(np.bincount(flat // d, count**2, n)))
    return np.concatenate(l1), np.concatenate(l2)


def totals(users: Users, domain: Keys, most: float = math.inf) -> Floats:
    """Compute the true histogram over the domain, (d,), of counts cut at ``most`` an item."""
    d = len(domain)
    out = np.zeros(d)
    for _, flat, count in in_domain(users, domain):
        out += np.bincount(flat % d, np.minimum(count, most), d)
    return out


def count_table(users: Users, domain: Keys) -> Floats:
    """Hold every user's count of every item, (n, d)."""
    d = len(domain)
    parts = [np.bincount(f, c, n * d).reshape(n, d) for n, f, c in in_domain(users, domain)]
    return np.concatenate([np.zeros((0, d)), *parts])


def clipped_totals(users: Users, domain: Keys, clip: float, norm: int, grid: float = 0.0) -> Floats:
    """Compute the totals after clipping each user to a norm (and rounding down to a grid), (d,)."""
    d = len(domain)
    out = np.zeros(d)
    for n, flat, count in in_domain(users, domain):
        user = flat // d
        size = np.bincount(user, count**norm, n) ** (1 / norm)
        kept = count * (clip / np.maximum(np.maximum(size, clip), 1e-300))[user]
        if grid:
            kept = grid * np.floor(kept / grid * (1 + 2e-15))
        out += np.bincount(flat % d, kept, d)
    return out


def clipped_curve(users: Users, domain: Keys, clips: Floats, norm: int) -> Floats:
    """Compute the clipped totals for many thresholds in one pass over the users.

    With v the users' norms, the total at C is the sum of N over v <= C plus C times the sum of
    N / v over v > C; both are cumulative over bins of v.

    Parameters
    ----------
    clips : (K,) float64
        Increasing.

    Returns
    -------
    (K, d) float64
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
