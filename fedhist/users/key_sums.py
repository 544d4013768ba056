"""Numbers under keys, added up: one walk over two sets of keys in byte order, some 50 ns a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedhist.base.arrays import Array
from fedhist.users.keys import Keys

Positions = NDArray[np.int64]


def add_up(parts: Sequence[tuple[Keys, Array]]) -> tuple[Keys, Array]:
    """Add values under equal keys, those of neighbours first, then those of pairs of neighbours.

    So what many parts cost does not grow with the keys that are there already.

    Parameters
    ----------
    parts : sequence of (keys, values)
        At least one; values of a part: (number of keys, ...), of one shape and dtype in all parts.

    Returns
    -------
    keys : Keys
        In byte order.
    values : (number of keys, ...) array
        New: it shares nothing with the parts.
    """
    found = [*parts, (Keys.of(()), parts[0][1][:0])] if len(parts) == 1 else list(parts)
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        found = [_added(*pair) for pair in pairs] + found[len(found) & ~1 :]
    return found[0]


def _added(a: tuple[Keys, Array], b: tuple[Keys, Array]) -> tuple[Keys, Array]:
    keys, at_a, at_b = union(a[0], b[0])
    values = np.zeros((len(keys), *a[1].shape[1:]), dtype=a[1].dtype)
    values[at_a] = a[1]
    values[at_b] += b[1]
    return keys, values


def union(a: Keys, b: Keys) -> tuple[Keys, Positions, Positions]:
    """Unite two sets of keys, each in whatever order.

    Returns
    -------
    keys : Keys
        In byte order.
    at_a, at_b : (len(a),) and (len(b),) int64
        Where each key of either is.
    """
    alike = np.array_equal(a.offsets, b.offsets) and np.array_equal(a.data, b.data)
    a, back_a = _ascending(a)
    if alike:
        here = np.arange(len(a)) if back_a is None else back_a
        return a, here, here
    b, back_b = _ascending(b)
    at_a, at_b = np.empty(len(a), np.int64), np.empty(len(b), np.int64)
    offsets = np.empty(len(a) + len(b) + 1, np.int64)
    data = np.empty(len(a.data) + len(b.data), np.uint8)
    n = _unite(a.offsets, a.data, b.offsets, b.data, at_a, at_b, offsets, data)
    same = a if n == len(a) else b if n == len(b) else None
    if same is None:
        same = Keys.known(offsets[: n + 1].copy(), data[: offsets[n]].copy())
    return same, at_a if back_a is None else at_a[back_a], at_b if back_b is None else at_b[back_b]


def _ascending(keys: Keys) -> tuple[Keys, Positions | None]:
    """Return keys in byte order and, unless they were, where each one has gone."""
    if _is_ascending(keys.offsets, keys.data):
        return keys, None
    order = keys.byte_order
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return Keys.of(keys[i] for i in order.tolist()), back


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _compare(x: Any, i: int, i_end: int, y: Any, j: int, j_end: int) -> int:
    """Compare two strings of bytes: negative, zero or positive."""
    while i < i_end and j < j_end:
        if x[i] != y[j]:
            return -1 if x[i] < y[j] else 1
        i += 1
        j += 1
    return int(i < i_end) - int(j < j_end)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _is_ascending(offsets: Any, data: Any) -> bool:
    for i in range(len(offsets) - 2):
        if _compare(data, offsets[i], offsets[i + 1], data, offsets[i + 1], offsets[i + 2]) >= 0:
            return False
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _unite(
    starts_a: Any, a: Any, starts_b: Any, b: Any, at_a: Any, at_b: Any, offsets: Any, data: Any
) -> int:
    """Fill where keys go and the union's own offsets and bytes; return how many keys it has."""
    n_a, n_b = len(starts_a) - 1, len(starts_b) - 1
    i = j = n = end = 0
    offsets[0] = 0
    while i < n_a or j < n_b:
        if i == n_a:
            which = 1
        elif j == n_b:
            which = -1
        else:
            which = _compare(a, starts_a[i], starts_a[i + 1], b, starts_b[j], starts_b[j + 1])
        if which <= 0:
            for k in range(starts_a[i], starts_a[i + 1]):
                data[end] = a[k]
                end += 1
            at_a[i] = n
            i += 1
            if which == 0:
                at_b[j] = n
                j += 1
        else:
            for k in range(starts_b[j], starts_b[j + 1]):
                data[end] = b[k]
                end += 1
            at_b[j] = n
            j += 1
        n += 1
        offsets[n] = end
    return n
