"""How a user's items over a public domain are cut to m and encoded: the linear encodings of [1]_.

Everything here depends on one user's record and private word alone. Items outside the domain are
dropped before anything is counted, so that they change neither the cut nor the draw.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from clients.bounding.contribution import domain_lookup
from clients.bounding.sampling import add_random_clip, random_clip
from fedhist.base.arrays import Words, offsets
from fedhist.users.columns import Items
from fedhist.users.keys import Keys

Int64s = NDArray[np.int64]
Unsigned = NDArray[np.unsignedinteger[Any]]


def in_domain(items: Items, domain: Keys) -> Items:
    """Keep the items of a public domain and number them by it; no copy where all are in it.

    Examples
    --------
    >>> one = np.array([0, 2]), np.array([0, 1], np.uint32), np.array([3, 4], np.uint32)
    >>> kept = in_domain(Items(Keys.of(["a", "b"]), *one), Keys.of(["b", "c"]))
    >>> kept.indptr, kept.item, kept.count
    (array([0, 1]), array([0], dtype=uint32), array([4], dtype=uint32))
    """
    lookup = domain_lookup(domain, items.vocabulary)
    if lookup is None:
        return items
    position = lookup[items.item]
    inside = position >= 0
    before = offsets(inside)
    item = position[inside].astype(np.uint32)
    return Items(domain, before[items.indptr], item, items.count[inside])


def cut_rows(items: Items, domain: Keys, m: int, words: Words) -> tuple[Int64s, Unsigned, Unsigned]:
    """Draw min(m, size) of each user's in-domain items, uniformly without replacement.

    Parameters
    ----------
    items : Items
    domain : Keys
    m : int
    words : (n,) uint64
        One private word per user.

    Returns
    -------
    indptr : (n + 1,) int64
    item : (entries,) uint32
        Domain positions, distinct within a user.
    count : (entries,) uint64
        Positive.

    Privacy
    -------
    A row adds up to at most m, whatever the record and the words: it is a point of the simplex
    m, with at most min(k, m) entries.
    """
    indptr, item, count = random_clip(in_domain(items, domain), m, words)
    return indptr, item.astype(np.uint32, copy=False), count


def add_cut(items: Items, domain: Keys, m: int, words: Words, total: Int64s) -> None:
    """Add the rows of :func:`cut_rows` to ``total`` (k,), without keeping them."""
    add_random_clip(in_domain(items, domain), m, words, total)


def add_presence(items: Items, domain: Keys, m: int, words: Words, total: Int64s) -> None:
    """Add 1 to ``total`` (k,) for every entry of :func:`cut_rows`."""
    inside = in_domain(items, domain)
    short = not exceeds(inside.indptr, inside.count, np.uint64(m))
    _add_ones(inside.item if short else random_clip(inside, m, words)[1], total)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def exceeds(indptr: Int64s, count: Any, m: Any) -> bool:
    """Say whether any user has more than m items (counts may be as large as 2^62)."""
    for u in range(indptr.shape[0] - 1):
        left = m
        for k in range(indptr[u], indptr[u + 1]):
            if count[k] > left:
                return True
            left -= count[k]
    return False


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_ones(item: Any, total: Int64s) -> None:
    for k in range(item.shape[0]):
        total[item[k]] += 1
