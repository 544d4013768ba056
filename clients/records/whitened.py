"""A user's shares less a public centre, each over a public spread, and scaled into a ball."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers
from fedhist.base.lazy import kernel

FRAME_STEPS = 1 << 20
"""Steps per radius in which scaled rows are sent: integers, whose sums are exact."""

Unsigned = NDArray[np.unsignedinteger[Any]]
Rows = tuple[Integers, Unsigned, Unsigned]
"""Bounds of the users' entries, and their items and counts."""
Frame = tuple[Floats, Floats, int]
"""Centre (k,), spread (k,), and what counts are divided by; 0: the user's own number of items."""


def row_norms(rows: Rows, frame: Frame) -> Floats:
    """Return ||(counts / whole - centre) / spread||_2 of every user, 0 without items: (n,)."""
    out = np.zeros(len(rows[0]) - 1)
    _walk(*rows, *frame, math.inf, np.empty(len(frame[0])), np.zeros((len(out), 0), np.int32), out)
    return out


def scaled_rows(rows: Rows, frame: Frame, radius: float) -> NDArray[np.int32]:
    """Scale rows of a norm above ``radius`` down to it, and cut them to steps: (n, k) int32.

    A step is radius / 2^20, and entries are rounded towards zero: in steps no row is longer than
    2^20. A user without items has the zero row.
    """
    out = np.zeros((len(rows[0]) - 1, len(frame[0])), dtype=np.int32)
    _walk(*rows, *frame, radius, np.empty(len(frame[0])), out, np.zeros(len(out)))
    return out


@kernel()
def _walk(
    indptr: Integers,
    item: Any,
    count: Any,
    centre: Floats,
    spread: Floats,
    whole: int,
    radius: float,
    row: Floats,
    out: Any,
    norms: Floats,
) -> None:
    """Fill the norms, and the scaled rows if ``out`` has columns; an empty user's are zero."""
    for u in range(indptr.shape[0] - 1):
        size = 0.0
        for e in range(indptr[u], indptr[u + 1]):
            size += float(count[e])
        if not size > 0.0:
            continue
        if whole > 0:
            size = float(whole)
        for i in range(row.shape[0]):
            row[i] = -centre[i]
        for e in range(indptr[u], indptr[u + 1]):
            row[item[e]] += float(count[e]) / size
        square = 0.0
        for i in range(row.shape[0]):
            row[i] /= spread[i]
            square += row[i] * row[i]
        norms[u] = math.sqrt(square)
        # a little less than to the radius: rounding cannot bring a row outside again
        scale = (1 - 1e-12) * FRAME_STEPS / max(norms[u], radius)
        for i in range(out.shape[1]):
            out[u, i] = np.int64(row[i] * scale)
