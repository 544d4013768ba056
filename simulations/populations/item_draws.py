"""Draws of synthetic users' items: laws as tables, and items by user, counted.

What is drawn follows from words (:mod:`simulations.populations.draws`) and integers alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64
from numba.cpython.unsafe.numbers import trailing_zeros

from fedhist.base.arrays import Array, Floats, Integers, Words
from fedhist.base.hashing import GOLDEN, mix, unit1
from simulations.populations.draws import start_of

GUIDE = 16, 18
"""Logarithms of the cells of the least and the largest guide into a table: the first for some 1,000
items; at 10^5 the last spares a third of the time. Draws do not depend on it."""
FEW_ITEMS, MANY_ITEMS, SHORT = 1 << 16, 1 << 19, 16
"""A user's items are put in order by marks up to FEW_ITEMS, by sorting above MANY_ITEMS; in between
rows of at most SHORT draws are sorted. Marks of many items do not stay in a cache."""


class Choice:
    """A law over d items, as tables: item j has its probability rounded to a multiple of 2^-32.

    ``weights``: (d,) float64, not negative, in proportion to the probabilities. ``last``: (d,)
    uint32, the last of 2^32 steps that belongs to each item; ``guide``: (2^16 to 2^18,) uint32, the
    item of the first step of equal cells: where the search begins.
    """

    def __init__(self, weights: Floats) -> None:
        below = np.cumsum(weights)
        upto = np.floor(below * (2.0**32 / below[-1]) + 0.5)
        upto[-1] = 2.0**32
        self.weights = weights
        self.last = (np.clip(upto, 1.0, 2.0**32) - 1.0).astype(np.uint32)
        bits = min(max(len(weights).bit_length() + 3, GUIDE[0]), GUIDE[1])
        steps = np.arange(1 << bits, dtype=np.uint32) << np.uint32(32 - bits)
        self.guide = np.searchsorted(self.last, steps).astype(np.uint32)

    def of(self, words: Words) -> Array:
        """Return the items at the upper halves of words: uint32, of their shape."""
        out = np.empty(words.shape, dtype=np.uint32)
        _choice_kernel(words.reshape(-1), self.last, self.guide, out.reshape(-1))
        return out


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def _shift(guide: Any) -> Any:
    """Return how many bits of a step lie within a cell."""
    return uint64(32) - uint64(trailing_zeros(uint64(len(guide))))


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def _item(step: Any, last: Any, guide: Any, shift: Any) -> Any:
    """Return the item that one of 2^32 steps belongs to."""
    j = guide[step >> shift]
    while last[j] < step:
        j += np.uint32(1)
    return j


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _choice_kernel(drawn: Words, last: Any, guide: Any, out: Any) -> None:
    shift = _shift(guide)
    for i in range(len(drawn)):
        out[i] = _item(drawn[i] >> uint64(32), last, guide, shift)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def urn_kernel(key: Any, first: Any, indptr: Integers, concentration: float, values: Any) -> None:
    """Make users' independent draws those of own laws, Dirichlet around the common one; in place.

    Draw i stays what it is with probability a / (a + i), and otherwise repeats one of the i
    draws before it: Polya's urn, whose shares are Dirichlet(a p).
    """
    for u in range(len(indptr) - 1):
        _urn(start_of(key, first + uint64(u)), concentration, values[indptr[u] : indptr[u + 1]])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _urn(counter: Any, concentration: float, row: Any) -> None:
    for i in range(1, len(row)):
        counter += uint64(GOLDEN)
        before = unit1(mix(counter)) * (concentration + i)
        if before < i:  # compared as it is: beyond 2^63 there is no integer of it
            row[i] = row[int(before)]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def items_kernel(
    keys: Words,
    first: Any,
    sizes: Integers,
    last: Any,
    guide: Any,
    concentration: float,
    turned: Any,
    indptr: Integers,
    item: Any,
    count: Any,
) -> None:
    """Draw and count users' items, two draws a word.

    ``keys``: (2,) uint64, of the draws and of the urn; ``first``: number of the first user;
    ``sizes``: (n,) int64, draws of each user; ``last``, ``guide``: see :class:`Choice`;
    ``concentration``: of users' own Dirichlet laws; 0: they are alike; ``turned``: (n,) bool, users
    for whom item j + 1 changes places with item d - j; ``indptr``: (n + 1,) int64; ``item``,
    ``count``: (sum of min(sizes, d),) uint32, filled up to indptr[n].
    """
    d, shift, most = len(last), _shift(guide), max(1, sizes.max())
    drawn = np.empty(most // 2 + 1, dtype=np.uint64)
    row, other = np.empty((2, 2 * len(drawn)), dtype=np.uint32)
    bins = np.empty(256, dtype=np.uint32)
    tally = np.zeros(d, dtype=np.uint32)
    # of items, and of words of marks; two sides: what was just written is not read again at once
    marks = np.zeros(((d >> 6) + 1, 2), dtype=np.uint64)
    tops = np.zeros(((d >> 12) + 1, 2), dtype=np.uint64)
    end = uint64(0)
    indptr[0] = 0
    for u in range(len(sizes)):
        size = uint64(sizes[u])
        half = (size + uint64(1)) >> uint64(1)
        counter = start_of(keys[0], first + uint64(u))
        for i in range(uint64(0), half):  # apart from the search, so that it is vectorised
            drawn[i] = mix(counter + (i + uint64(1)) * uint64(GOLDEN))
        for i in range(uint64(0), half):
            row[i + i] = _item(drawn[i] >> uint64(32), last, guide, shift)
            row[i + i + uint64(1)] = _item(drawn[i] & uint64(0xFFFFFFFF), last, guide, shift)
        if concentration > 0.0:
            _urn(start_of(keys[1], first + uint64(u)), concentration, row[:size])
        if turned[u]:
            for i in range(size):
                row[i] = d - 1 - row[i]
        if d > FEW_ITEMS and (d > MANY_ITEMS or size <= SHORT):
            sort_row(row, size, other, bins)
            end = _count_runs(row, size, item, count, end)
        else:
            end = _count_marks(row, size, tally, marks, tops, item, count, end)
        indptr[u + 1] = end


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _count_marks(
    row: Any, size: Any, tally: Any, marks: Any, tops: Any, item: Any, count: Any, end: Any
) -> Any:
    """Write a row's items and their counts from ``end`` on, found by marks; clear these."""
    for i in range(uint64(0), size):  # unsigned, which spares a test an access
        j, side = uint64(row[i]), i & uint64(1)
        high = j >> uint64(6)
        tally[j] += np.uint32(1)
        marks[high, side] |= uint64(1) << (j & uint64(63))
        tops[high >> uint64(6), side] |= uint64(1) << (high & uint64(63))
    for a in range(uint64(len(tops))):
        top = tops[a, 0] | tops[a, 1]
        tops[a] = uint64(0)
        while top:
            b = (a << uint64(6)) + uint64(trailing_zeros(top))
            top &= top - uint64(1)
            mark = marks[b, 0] | marks[b, 1]
            marks[b] = uint64(0)
            while mark:
                j = (b << uint64(6)) + uint64(trailing_zeros(mark))
                mark &= mark - uint64(1)
                item[end] = j
                count[end] = tally[j]
                tally[j] = np.uint32(0)
                end += uint64(1)
    return end


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def sort_row(row: Any, size: Any, other: Any, bins: Any) -> None:
    """Sort the first ``size`` of a row in place: by insertion, or by one byte after the other."""
    if size <= SHORT:
        for i in range(uint64(1), size):
            x, k = row[i], i
            while k > uint64(0) and row[k - uint64(1)] > x:
                row[k] = row[k - uint64(1)]
                k -= uint64(1)
            row[k] = x
        return
    top, shift = uint64(0), uint64(0)
    for i in range(uint64(0), size):
        top |= uint64(row[i])
    while top >> shift:
        bins[:] = 0
        for i in range(uint64(0), size):
            bins[(uint64(row[i]) >> shift) & uint64(255)] += np.uint32(1)
        before = np.uint32(0)
        for byte in range(256):
            here = bins[byte]
            bins[byte] = before
            before += here
        for i in range(uint64(0), size):
            byte = (uint64(row[i]) >> shift) & uint64(255)
            other[uint64(bins[byte])] = row[i]
            bins[byte] += np.uint32(1)
        for i in range(uint64(0), size):
            row[i] = other[i]
        shift += uint64(8)


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _count_runs(row: Any, size: Any, item: Any, count: Any, end: Any) -> Any:
    """Write the items of a row in order, and their counts, from ``end`` on."""
    if size == uint64(0):
        return end
    item[end], held = row[0], np.uint32(1)
    for i in range(uint64(1), size):  # without branches: nobody could foretell them
        new = row[i] != row[i - uint64(1)]
        count[end] = held
        held = np.uint32(1) if new else held + np.uint32(1)
        end += uint64(new)
        item[end] = row[i]
    count[end] = held
    return end + uint64(1)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def distinct_kernel(
    key: Any, first: Any, last: Any, guide: Any, weights: Floats, indptr: Integers, item: Any
) -> None:
    """Draw users' items one after the other without replacement; at most d each.

    An item that the user has is drawn again. After d of those the rest is raced for, which has
    the same law: an item of weight w arrives after an exponential time of mean 1 / w. A user's
    items are in no order. Weights are at least 1e-300, so that times are finite.
    """
    d, shift = len(last), _shift(guide)
    held = np.zeros(d, dtype=np.bool_)
    arrival = np.empty(d, dtype=np.float64)
    for u in range(len(indptr) - 1):
        start, stop = indptr[u], indptr[u + 1]
        counter = start_of(key, first + uint64(u))
        missed, end = 0, start
        while end < stop and missed < d:
            counter += uint64(GOLDEN)
            j = _item(mix(counter) >> uint64(32), last, guide, shift)
            if held[j]:
                missed += 1
            else:
                held[j] = True
                item[end] = j
                end += 1
        if end < stop:
            for j in range(d):
                counter += uint64(GOLDEN)
                arrival[j] = -math.log(unit1(mix(counter))) / weights[j]
                if held[j]:
                    arrival[j] = math.inf
            bound = np.sort(arrival)[stop - end - 1]
            for j in range(d):
                if arrival[j] <= bound and end < stop:
                    item[end] = j
                    end += 1
        for i in range(start, stop):
            held[item[i]] = False
