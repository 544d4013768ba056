"""Contribution bounding: what one user adds to a histogram is clipped where the data are.

Two forms of the same vectors: rows (one ragged row per user, for a report) and their sum over a
node (fused, without keeping the rows). Both run the loops of :mod:`clients.bounding.kernels`, and
the sum equals folding the rows, bit for bit.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.bounding.kernels import (
    Lookup,
    clip_grid_values,
    clip_values,
    columns_of,
    sum_clipped,
    sum_grid,
)
from fedhist.base.arrays import offsets
from fedhist.users.columns import Items
from fedhist.users.keys import Keys

MOST_STEPS = 1 << 31
"""Grid steps per clip must stay below this, so that squared norms fit 64-bit integers."""


@lru_cache(maxsize=32)
def domain_lookup(domain: Keys, vocabulary: Keys) -> Lookup:
    """Map vocabulary positions to domain positions; None where the two are the same.

    >>> domain_lookup(Keys.of(["b", "a"]), Keys.of(["a", "b", "c"]))
    array([ 1,  0, -1], dtype=int32)
    """
    if domain == vocabulary:
        return None
    lookup = domain.positions(vocabulary)
    lookup.setflags(write=False)
    return lookup


def grid_limit(clip: float, grid: float, norm: int) -> int:
    """Largest integer norm of a clipped vector in grid steps, in exact arithmetic.

    >>> grid_limit(1.0, 0.25, 1), grid_limit(1.0, 0.4, 2)
    (4, 6)
    """
    steps = Fraction(clip) / Fraction(grid)
    if steps >= MOST_STEPS:
        raise ValueError(f"clip / grid must lie below 2^31, got {clip} / {grid}")
    return floor(steps if norm == 1 else steps**2)


def clip_rows(
    items: Items, lookup: Lookup, clip: float, norm: int, grid: float = 0.0
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[Any]]:
    """Clip every user's in-domain counts to a norm ball: w N with w = clip / max(clip, ||N||).

    Items outside the domain are dropped BEFORE any norm is computed.

    Privacy
    -------
    One user's row lies in the non-negative orthant of the ball. On a grid that holds exactly
    (integers are compared); otherwise up to the rounding of doubles.

    References
    ----------
    .. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under
       user-level privacy", ICML 2023, Algorithm 1, line 2.
    """
    columns = columns_of(items, lookup)
    value: NDArray[Any]
    if grid:
        value = np.empty(len(items.item), dtype=np.int64)
        clip_grid_values(columns, clip, grid, norm, grid_limit(clip, grid, norm), value)
    else:
        value = np.empty(len(items.item), dtype=np.float64)
        clip_values(columns, clip, norm, value)
    if lookup is None:
        return items.indptr, items.item.astype(np.uint32, copy=False), value
    position = lookup[items.item]
    inside = position >= 0
    before = offsets(inside)
    return before[items.indptr], position[inside].astype(np.uint32), value[inside]


def clipped_counts(
    items: Items, lookup: Lookup, d: int, clip: float, norm: int, grid: float, chunk: int
) -> NDArray[Any]:
    """Sum the rows of :func:`clip_rows` over all users, without keeping them."""
    columns = columns_of(items, lookup)
    if grid:
        steps = np.zeros(d, dtype=np.int64)
        sum_grid(columns, clip, grid, norm, grid_limit(clip, grid, norm), steps)
        return steps
    total = np.zeros(d)
    sum_clipped(columns, clip, norm, chunk, np.empty(d), total)
    return total
