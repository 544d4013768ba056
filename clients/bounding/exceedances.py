"""Where each of a user's counts lies between public thresholds: the input of hypothesis selection.

A count x falls in cell c if exactly c of the thresholds lie below x. Cell 0, which holds the counts
of 0, is not sent: so a user sends at most one entry for every symbol that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from clients.bounding.contribution import domain_lookup
from clients.bounding.item_encodings import cut_rows, in_domain
from clients.bounding.kernels import Columns, columns_of, place
from fedhist.base.arrays import Words, offsets
from fedhist.users.columns import Items
from fedhist.users.keys import Keys

Int64s = NDArray[np.int64]
Table = NDArray[np.int32]


def cell_table(thresholds: tuple[int, ...], m: int) -> Table:
    """Tabulate the cell of every count: (m + 1,) int32.

    >>> cell_table((0, 2), 4)
    array([0, 1, 1, 2, 2], dtype=int32)
    """
    return np.searchsorted(np.array(thresholds), np.arange(m + 1)).astype(np.int32)


def threshold_rows(
    items: Items, domain: Keys, m: int, width: int, table: Table, words: Words
) -> tuple[Int64s, NDArray[np.uint32]]:
    """Cut each user to m in-domain items and name the cells of its counts.

    Parameters
    ----------
    items : Items
    domain : Keys
    m : int
    width : int
        Number of thresholds; cells 1, ..., width are sent.
    table : (m + 1,) int32
        From :func:`cell_table`.
    words : (n,) uint64
        One private word per user, for the cut.

    Returns
    -------
    indptr : (n + 1,) int64
    cell : (entries,) uint32
        position in the domain * width + cell - 1.
    """
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
    """Add the rows of :func:`threshold_rows` to ``total`` (k * width,), without keeping them.

    Parameters
    ----------
    words : callable of (r,) int64 to (r,) uint64
        Private words of the users at these rows. Asked only for users who hold more than m items.
    """
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
