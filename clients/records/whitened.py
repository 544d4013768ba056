"""A user's shares less a public centre, each over a public spread, and scaled into a ball."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers

FRAME_STEPS = 1 << 20
"""Steps per radius in which scaled rows are sent: integers, whose sums are exact."""

INSIDE = 1 - 1e-12
"""Scales a row by a little less than to the radius: rounding cannot bring it outside again."""

Unsigned = NDArray[np.unsignedinteger[Any]]
Rows = tuple[Integers, Unsigned, Unsigned]
"""Bounds of the users' entries, and their items and counts."""
Frame = tuple[Floats, Floats, int]
"""Centre (k,), spread (k,), and what counts are divided by; 0: the user's own number of items."""


def row_norms(rows: Rows, frame: Frame) -> Floats:
    """Return ||(counts / whole - centre) / spread||_2 of every user, 0 without items: (n,)."""
    out = np.zeros(len(rows[0]) - 1)
    _norms(*rows, *frame, np.empty(len(frame[0])), out)
    return out


def scaled_rows(rows: Rows, frame: Frame, radius: float) -> NDArray[np.int32]:
    """Scale rows of a norm above ``radius`` down to it, and cut them to steps: (n, k) int32.

    A step is radius / 2^20, and entries are rounded towards zero: in steps no row is longer than
    2^20. A user without items has the zero row.
    """
    out = np.zeros((len(rows[0]) - 1, len(frame[0])), dtype=np.int32)
    _add_scaled(*rows, *frame, radius, np.empty(len(frame[0])), 1, out)
    return out


def add_scaled_rows(rows: Rows, frame: Frame, radius: float, total: Integers) -> None:
    """Add the rows of :func:`scaled_rows` to ``total`` (k,), without keeping them."""
    _add_scaled(*rows, *frame, radius, np.empty(len(frame[0])), 0, total[None])


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _row(
    start: Any,
    stop: Any,
    item: Any,
    count: Any,
    centre: Floats,
    spread: Floats,
    whole: int,
    row: Floats,
) -> float:
    """Write one user's row, and return its norm; -1, and nothing written, for an empty user."""
    size = 0.0
    for e in range(start, stop):
        size += float(count[e])
    if not size > 0.0:
        return -1.0
    if whole > 0:
        size = float(whole)
    for i in range(row.shape[0]):
        row[i] = -centre[i]
    for e in range(start, stop):
        row[item[e]] += float(count[e]) / size
    square = 0.0
    for i in range(row.shape[0]):
        row[i] /= spread[i]
        square += row[i] * row[i]
    return math.sqrt(square)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _norms(
    indptr: Integers,
    item: Any,
    count: Any,
    centre: Floats,
    spread: Floats,
    whole: int,
    row: Floats,
    out: Floats,
) -> None:
    for u in range(indptr.shape[0] - 1):
        norm = _row(indptr[u], indptr[u + 1], item, count, centre, spread, whole, row)
        out[u] = max(norm, 0.0)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_scaled(
    indptr: Integers,
    item: Any,
    count: Any,
    centre: Floats,
    spread: Floats,
    whole: int,
    radius: float,
    row: Floats,
    apart: int,
    out: Any,
) -> None:
    """Add user u's scaled row to row ``apart * u`` of ``out``: its own (1), or that of all (0)."""
    for u in range(indptr.shape[0] - 1):
        norm = _row(indptr[u], indptr[u + 1], item, count, centre, spread, whole, row)
        if norm >= 0.0:
            scale = INSIDE * FRAME_STEPS / max(norm, radius)
            for i in range(row.shape[0]):
                out[apart * u, i] += np.int64(row[i] * scale)
