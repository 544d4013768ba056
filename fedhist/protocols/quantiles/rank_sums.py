"""Ranks and order statistics of weighted numbers from sums, which add up over blocks of users.

Ranks at public points take one pass. A quantile is then narrowed down to one double: doubles in
their order are 2^64 integers, and each pass cuts the interval that holds it into 2^16 cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from fedhist.base.arrays import Floats, Words

CELLS = 1 << 16
SLACK = 1e-12
"""Share of all weights that rounding may leave below a level."""
_SIGN = 1 << 63
Interval = tuple[int, int]
"""Keys of doubles, from the first to before the last."""


@lru_cache(maxsize=64)
def bin_cuts(low: float, high: float, n_bins: int) -> Floats:
    """Return where ranks are asked for: ends of public bins, and around their middles."""
    edges = np.linspace(low, high, n_bins + 1)[1:-1]
    at = (np.arange(n_bins) + 0.5) / n_bins
    cuts = np.unique(np.concatenate((edges, *around(low * (1 - at) + high * at, low, high))))
    cuts.setflags(write=False)
    return cuts


def around(x: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Return the ends of what a number stands for: all within 1e-9 of the range, and no more."""
    near = 1e-9 * (high - low)
    return x - near, np.nextafter(x + near, np.inf)


def cell_weights(x: Floats, weight: Floats, cuts: Floats) -> Floats:
    """Add up the weights between increasing cuts, each in the cell above it: (len(cuts) + 1,)."""
    at = np.searchsorted(cuts, x, side="right")
    return np.bincount(at, weight, len(cuts) + 1).astype(np.float64)


def share_below(at: Floats, cuts: Floats, cells: Floats) -> Floats:
    """Return the share of the weights below points that are among the cuts."""
    upto = np.cumsum(cells)
    return np.asarray(upto[np.searchsorted(cuts, at)] / upto[-1])


def keys_of(x: Floats) -> Words:
    """Give doubles integers in the same order: (n,) uint64.

    >>> x = np.array([-np.inf, -2.0, -0.0, 0.0, 1e-300, np.inf])
    >>> bool((np.diff(keys_of(x).astype(float)) >= 0).all()), numbers_of(keys_of(x)).tolist()
    (True, [-inf, -2.0, 0.0, 0.0, 1e-300, inf])
    """
    bits = (x + 0.0).view(np.uint64)  # one zero
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(_SIGN))


def numbers_of(keys: Words) -> Floats:
    """Return the doubles of such numbers."""
    positive = keys >> np.uint64(63) == 1
    return np.where(positive, keys ^ np.uint64(_SIGN), ~keys).view(np.float64)


def interval_weights(x: Floats, weight: Floats, intervals: Sequence[Interval]) -> Floats:
    """Add up weights in the cells of some intervals: (intervals, CELLS)."""
    out = np.zeros((len(intervals), CELLS))
    for row, (low, high) in zip(out, intervals, strict=True):
        ends = numbers_of(np.array([low, high - 1], dtype=np.uint64))
        some = np.flatnonzero((x >= ends[0]) & (x <= ends[1]))  # the other zero as well
        keys = keys_of(x[some])
        inside = (keys >= np.uint64(low)) & (keys < np.uint64(high))
        at = (keys[inside] - np.uint64(low)) >> np.uint64(_shift(low, high))
        row += np.bincount(at.astype(np.int64), weight[some[inside]], CELLS)
    return out


def order_statistics(
    levels: Floats,
    cuts: Floats,
    cells: Floats,
    count: Callable[[Sequence[Interval]], Floats],
) -> Floats:
    """Find the least numbers that a share of the weights is at or below, for each level.

    Parameters
    ----------
    levels : (J,) float64
    cuts, cells : float64
        Of :func:`cell_weights`, all weights together.
    count : callable
        Adds up :func:`interval_weights` over all numbers.
    """
    ends = [int(keys_of(np.array([-np.inf]))[0]), *keys_of(cuts).tolist()]
    ends.append(int(keys_of(np.array([np.inf]))[0]) + 1)
    wanted = (levels - SLACK) * cells.sum()
    first = [_holding(cells, 0.0, want) for want in wanted]
    found = [(ends[k], ends[k + 1]) for k in first]
    below = [float(cells[:k].sum()) for k in first]
    while any(high - low > 1 for low, high in found):
        for j, row in enumerate(count(found)):
            low, high = found[j]
            if high - low > 1:
                k, shift = _holding(row, below[j], wanted[j]), _shift(low, high)
                below[j] += float(row[:k].sum())
                low += k << shift
                found[j] = low, min(high, low + (1 << shift))
    return numbers_of(np.array([low for low, _ in found], dtype=np.uint64))


def _shift(low: int, high: int) -> int:
    """Bits that a cell of an interval leaves open."""
    return max(0, (high - low - 1).bit_length() - 16)


def _holding(cells: Floats, below: float, wanted: float) -> int:
    """Find the first cell with weights up to whose end so much has come; the last one if none."""
    some = np.flatnonzero(cells)
    at = np.searchsorted(below + np.cumsum(cells[some]), wanted)
    return int(some[min(int(at), len(some) - 1)])
