"""Contribution bounding: what one user adds to a histogram is clipped where the data are.

Two forms of the same vectors: rows (one ragged row per user, for a report) and their sum over a
node (fused, without keeping the rows); the sum equals folding the rows, bit for bit. The compiled
loops each have a short obvious NumPy counterpart in the tests. Indices are unsigned, which spares
the loops the test for negative ones. Nothing here copies the data: the loops walk the users'
columns as they lie in memory.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers, offsets, read_only
from fedhist.base.lazy import kernel
from fedhist.users.keys import Keys
from fedhist.users.shards import Items

Lookup = NDArray[np.int32] | None
Unsigned = NDArray[np.unsignedinteger[Any]]
Columns = tuple[Integers, Unsigned, Unsigned, Lookup]
"""Users' records as they lie in memory, and the places of the vocabulary in a public domain."""


def columns_of(items: Items, lookup: Lookup) -> Columns:
    """Return what the loops walk over, read-only: wherever it lies, they are compiled once."""
    places = None if lookup is None else read_only(lookup)
    return read_only(items.indptr), read_only(items.item), read_only(items.count), places


@kernel(forceinline=True)
def place(lookup: Any, j: Any) -> Any:
    """Position of vocabulary item j in the domain; negative if it lies outside."""
    return np.int64(j) if lookup is None else np.int64(lookup[j])


@kernel(forceinline=True)
def _norm(start: Any, stop: Any, columns: Any, norm: Any) -> Any:
    """l1 or l2 norm of one user's in-domain counts.

    Sums run in 64-bit integers, which vectorise and are exact; a user whose counts could overflow
    them is summed again in doubles. The choice depends on that user's record alone.
    """
    _, item, count, lookup = columns
    bits, total = uint64(0), uint64(0)
    if norm == 1:
        for k in range(start, stop):
            c = uint64(count[k]) if place(lookup, item[k]) >= 0 else uint64(0)
            bits |= c
            total += c
        if bits >> uint64(40) == uint64(0) and stop - start < uint64(1 << 24):
            return float(total)
    else:
        for k in range(start, stop):
            c = uint64(count[k]) if place(lookup, item[k]) >= 0 else uint64(0)
            bits |= c
            total += c * c
        if bits >> uint64(24) == uint64(0) and stop - start < uint64(1 << 16):
            return math.sqrt(float(total))
    large = 0.0
    for k in range(start, stop):
        x = float(count[k]) if place(lookup, item[k]) >= 0 else 0.0
        large += x if norm == 1 else x * x
    return large if norm == 1 else math.sqrt(large)


Law = tuple[float, float, int, int]
"""Clip, grid (0: real values), norm, and on a grid the largest norm in steps, for l2 its square."""


@kernel(forceinline=True)
def _weight(start: Any, stop: Any, columns: Any, law: Any) -> Any:
    """Scale one user's counts into the ball by this factor, at most 1; on a grid to whole steps.

    There floor(w count) has an integer norm (l1, or l2 squared) of at most the limit. It is added
    up in integers, hence exact; where rounding has carried it past the limit, the weight is shaved
    by 2^-50, 2^-49, ... until it fits.
    """
    _, item, count, lookup = columns
    clip, grid, norm, limit = law
    size = _norm(start, stop, columns, norm)
    w = clip / size if size > clip else 1.0
    w = w / grid * (1.0 + 2.0**-50) if grid > 0.0 else w  # onto a grid point just above
    shave = 2.0**-50
    while grid > 0.0:
        used = uint64(0)
        for k in range(start, stop):
            h = uint64(math.floor(w * float(count[k])))
            if place(lookup, item[k]) < 0:
                h = uint64(0)
            used += h if norm == 1 else h * h
        if used <= uint64(limit):
            break
        w *= 1.0 - shave
        shave *= 2.0
    return w


@kernel()
def clip_values(columns: Columns, law: Law, out: Any) -> None:
    """Fill ``out[k]`` with the clipped value of entry k; entries outside the domain get 0.

    On a grid in whole steps, rounded down.
    """
    indptr, item, count, lookup = columns
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        w = _weight(start, stop, columns, law)
        for k in range(start, stop):
            x = w * float(count[k]) if place(lookup, item[k]) >= 0 else 0.0
            out[k] = x if law[1] == 0.0 else math.floor(x)


@kernel()
def sum_clipped(columns: Columns, law: Law, chunk: int, part: Any, out: Any) -> None:
    """Add every user's clipped counts to ``out``; ``part`` (d,) is scratch.

    Additions happen in the order of folding the values of :func:`clip_values` chunk by chunk and
    merging the chunks, so that both ways agree to the last bit. Steps of a chunk, below 2^31 each,
    add up exactly in doubles.
    """
    indptr, item, count, lookup = columns
    n, real = indptr.shape[0] - 1, law[1] == 0.0
    for first in range(0, n, chunk):
        part[:] = 0
        for u in range(first, min(first + chunk, n)):
            start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
            w = _weight(start, stop, columns, law)
            for k in range(start, stop):
                j = place(lookup, item[k])
                if j >= 0:
                    x = w * float(count[k])
                    if real:
                        part[uint64(j)] += x
                    else:
                        part[uint64(j)] += np.int64(math.floor(x))
        for j in range(part.shape[0]):
            out[j] += part[j]


@kernel()
def user_norms(columns: Columns, norm: int, out: Floats) -> None:
    """Fill every user's l1 or l2 norm of its in-domain counts."""
    indptr = columns[0]
    for u in range(indptr.shape[0] - 1):
        out[u] = _norm(uint64(indptr[u]), uint64(indptr[u + 1]), columns, norm)


@kernel()
def flip_at(positions: Integers, n_bits: int, most: int, bits: Any) -> None:
    """Flip the bits of row u of ``bits`` that row u of ``positions`` names, in place.

    Entries outside [0, n_bits) and repeated ones stand for none; only the first ``most`` valid
    entries of a row count, repetitions included.
    """
    for u in range(positions.shape[0]):
        left = most
        for k in range(positions.shape[1]):
            j = positions[u, k]
            if j < 0 or j >= n_bits or left == 0:
                continue
            left -= 1
            again = False
            for earlier in range(k):
                again = again or positions[u, earlier] == j
            if not again:
                bits[u, j >> 6] ^= uint64(1) << uint64(j & 63)


# -- what queries send -------------------------------------------------------------------------


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
    if steps >= 1 << 31:  # squared norms fit 64-bit integers
        raise ValueError(f"clip / grid must lie below 2^31, got {clip} / {grid}")
    return math.floor(steps if norm == 1 else steps**2)


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
    value: NDArray[Any] = np.empty(len(items.item), np.int64 if grid else np.float64)
    clip_values(columns_of(items, lookup), _law(clip, norm, grid), value)
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
    part, total = np.zeros((2, d), np.int64 if grid else np.float64)
    sum_clipped(columns_of(items, lookup), _law(clip, norm, grid), chunk, part, total)
    return total


def _law(clip: float, norm: int, grid: float) -> Law:
    return float(clip), float(grid), norm, grid_limit(clip, grid, norm) if grid else 0
