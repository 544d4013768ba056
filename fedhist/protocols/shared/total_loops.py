"""Compiled loops of evaluation: what is added up over users' counts. NOT PRIVATE.

They are written apart from those of the client half, so that a prediction can contradict a
measurement; each has a slow obvious counterpart in the tests. ``places`` says where in the domain
an item of the vocabulary is, -1 for nowhere; None: where it is in the vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import int64, njit, uint64

from fedhist.base.arrays import Floats


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _place(places: Any, j: Any) -> Any:
    return int64(j) if places is None else int64(places[j])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def add_totals(item: Any, count: Any, places: Any, most: float, out: Floats) -> None:
    """Add up counts by item, each cut at ``most``: (d,)."""
    cut = most < math.inf
    for k in range(item.shape[0]):
        j = _place(places, item[k])
        if j >= 0:
            c = float(count[k])
            out[uint64(j)] += most if cut and c > most else c


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def add_clipped(
    indptr: Any,
    item: Any,
    count: Any,
    places: Any,
    law: tuple[float, int, float],
    whole: Floats,
    kept: Floats,
) -> None:
    """Add up counts by item, and what of them a clip to (radius, norm, grid) leaves: (d,) each."""
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
def add_shares(
    indptr: Any,
    item: Any,
    count: Any,
    places: Any,
    padding: float,
    whole: Floats,
    first: Floats,
    second: Floats,
) -> int:
    """Add up by item counts, shares of max(user's total, padding), their squares: (d,) each.

    Returns the number of users without an item of the domain.
    """
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fill_norms(indptr: Any, item: Any, count: Any, places: Any, l1: Floats, l2: Floats) -> None:
    """Compute the l1 and l2 norms of every user's counts in the domain: (n,) each."""
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        total, square = 0.0, 0.0
        for k in range(start, stop):
            if _place(places, item[k]) >= 0:
                c = float(count[k])
                total += c
                square += c * c
        l1[u], l2[u] = total, math.sqrt(square)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def add_own_shares(
    indptr: Any, item: Any, count: Any, places: Any, shares: Floats, empty: Any
) -> None:
    """Add up users' own shares by item, (d,), and the users without items of the domain, (1,)."""
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        total = 0.0
        for k in range(start, stop):
            if _place(places, item[k]) >= 0:
                total += float(count[k])
        if total == 0:
            empty[0] += 1
            continue
        for k in range(start, stop):
            at = _place(places, item[k])
            if at >= 0:
                shares[uint64(at)] += float(count[k]) / total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fill_held(indptr: Any, count: Any, out: Floats) -> None:
    """Add up every user's counts, of whatever items: (n,)."""
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        total = 0.0
        for k in range(start, stop):
            total += float(count[k])
        out[u] = total
