"""How a user's items over a public domain are cut to m and encoded: the linear encodings of [1]_.

Everything here depends on one user's record and private word alone. Items outside the domain are
dropped before anything is counted, so that they change neither the cut nor the draw.

The input of hypothesis selection is where each count lies between public thresholds: a count x
falls in cell c if exactly c of the thresholds lie below x. Cell 0, which holds the counts of 0, is
not sent: so a user sends at most one entry for every symbol that it has.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from clients.bounding.contribution import domain_lookup
from clients.bounding.kernels import Columns, columns_of, place
from clients.bounding.sampling import add_random_clip, random_clip
from fedhist.base.arrays import Words, offsets
from fedhist.users.columns import Items
from fedhist.users.keys import Keys

Int64s = NDArray[np.int64]
Unsigned = NDArray[np.unsignedinteger[Any]]
Table = NDArray[np.int32]


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


# -- cells of counts


def cell_table(thresholds: tuple[int, ...], m: int) -> Table:
    """Tabulate the cell of every count: (m + 1,) int32.

    >>> cell_table((0, 2), 4)
    array([0, 1, 1, 2, 2], dtype=int32)
    """
    return np.searchsorted(np.array(thresholds), np.arange(m + 1)).astype(np.int32)


def threshold_rows(
    items: Items, domain: Keys, m: int, width: int, table: Table, words: Words
) -> tuple[Int64s, NDArray[np.uint32]]:
    """Cut each user to m in-domain items and name the cells of its counts."""
    indptr, item, count = cut_rows(items, domain, m, words)
    cell = table[count.astype(np.int64)]
    sent = cell > 0
    before = offsets(sent)
    where = item[sent].astype(np.int64) * width + cell[sent] - 1
    return np.asarray(before[indptr], dtype=np.int64), where.astype(np.uint32)


def add_exceedances(
    items: Items,
    domain: Keys,
    m: int,
    width: int,
    table: Table,
    words: Callable[[Int64s], Words],
    total: Int64s,
) -> None:
    """Add the rows of :func:`threshold_rows` to ``total`` (k * width,), without keeping them."""
    over = np.zeros(len(items.indptr) - 1, dtype=np.bool_)
    columns = columns_of(items, domain_lookup(domain, items.vocabulary))
    _add_cells(columns, uint64(m), width, table, total, over)
    rows = np.flatnonzero(over)
    if len(rows):
        few = in_domain(_take(items, rows), domain)
        _, cell = threshold_rows(few, domain, m, width, table, words(rows))
        np.add.at(total, cell, 1)


def _take(items: Items, rows: Int64s) -> Items:
    """Copy some users' records."""
    sizes = np.diff(items.indptr)[rows]
    indptr = offsets(sizes)
    at = np.arange(indptr[-1]) + np.repeat(items.indptr[:-1][rows] - indptr[:-1], sizes)
    return Items(items.vocabulary, indptr, items.item[at], items.count[at])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_cells(
    columns: Columns, m: Any, width: int, table: Table, total: Int64s, over: NDArray[np.bool_]
) -> None:
    """Add the cells of users with at most m in-domain items; mark the others and skip them."""
    indptr, item, count, lookup = columns
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        left = m
        for k in range(start, stop):
            if place(lookup, item[k]) >= 0:
                c = uint64(count[k])
                if c > left:
                    over[u] = True
                    break
                left -= c
        if over[u]:
            continue
        for k in range(start, stop):
            j = place(lookup, item[k])
            if j >= 0:
                cell = table[count[k]]
                if cell > 0:
                    total[uint64(j * width + cell - 1)] += 1
