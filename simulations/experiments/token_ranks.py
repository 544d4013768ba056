"""What uniform sampling of C tokens keeps, for every C at once: compiled loops over users.

Put each user's tokens in one uniformly random order. Its first C tokens are a uniform sample of C
without replacement, for every C: so a token of rank r is kept at exactly the thresholds C >= r, and
one histogram over (rank, item) holds the clipped totals of the whole grid. Each column of it has
the law of a real run at that threshold; the columns are coupled, which is what a curve over C
wants.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.hashing import GOLDEN, mix
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams

Counts = NDArray[np.int64]
Unsigned = NDArray[np.unsignedinteger[Any]]

SHUFFLED = 1 << 16
"""Users with more tokens than this (and than four times the largest threshold) are sampled by
position, without a list of their tokens."""


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def _below(word: Any, bound: Any) -> Any:
    """Map a uniform word to [0, bound): the high half of their 128-bit product.

    Uneven by less than bound / 2^64, which no experiment can see.
    """
    low = uint64(0xFFFFFFFF)
    a, b = word >> uint64(32), word & low
    c, d = bound >> uint64(32), bound & low
    middle = a * d + ((b * d) >> uint64(32))
    other = b * c + (middle & low)
    return a * c + (middle >> uint64(32)) + (other >> uint64(32))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def add_margins(
    indptr: Counts, item: Unsigned, count: Unsigned, sizes: Counts, totals: Counts
) -> None:
    """Add every count to its user's size, (n,), and to its item's total, (d,)."""
    for u in range(indptr.shape[0] - 1):
        for k in range(uint64(indptr[u]), uint64(indptr[u + 1])):
            sizes[u] += np.int64(count[k])
            totals[item[k]] += np.int64(count[k])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def add_rank_bins(
    keys: Words,
    indptr: Counts,
    item: Unsigned,
    count: Unsigned,
    cell: Counts,
    tokens: NDArray[np.uint32],
    taken: Counts,
    out: Counts,
) -> None:
    """Add every token of rank r <= r_max to ``out[cell[r - 1], item]``.

    ``keys``: (n,) uint64, one key per user; draw k of a user is word k of its stream; ``indptr``,
    ``item``, ``count``: the users' records; ``cell``: (r_max,) int64, bin of each rank; ``out``:
    (bins, d) int64.
    """
    most = cell.shape[0]
    mask = uint64(taken.shape[0] - 1)
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        size = uint64(0)
        for k in range(start, stop):
            size += uint64(count[k])
        if size == uint64(0):
            continue
        last = min(most, np.int64(size))
        if cell[last - 1] == cell[0] and np.int64(size) == last:
            for k in range(start, stop):  # all ranks fall in one bin: their order is idle
                out[cell[0], item[k]] += np.int64(count[k])
            continue
        counter = keys[u]
        if size <= uint64(tokens.shape[0]):
            n = 0
            for k in range(start, stop):
                for _ in range(count[k]):
                    tokens[n] = item[k]
                    n += 1
            for r in range(last):
                counter += uint64(GOLDEN)
                j = uint64(r) + _below(mix(counter), uint64(n - r))
                j_item = tokens[j]
                tokens[j] = tokens[r]
                out[cell[r], j_item] += 1
            continue
        # Distinct positions by rejection, then the item that owns each.
        taken[:] = -1
        r = 0
        while r < last:
            counter += uint64(GOLDEN)
            place = _below(mix(counter), size)
            slot = mix(place) & mask
            while taken[slot] >= 0 and uint64(taken[slot]) != place:
                slot = (slot + uint64(1)) & mask
            if taken[slot] >= 0:
                continue
            taken[slot] = np.int64(place)
            k = start
            while place >= uint64(count[k]):
                place -= uint64(count[k])
                k += uint64(1)
            out[cell[r], item[k]] += 1
            r += 1


def margins(users: Users) -> tuple[Counts, Counts]:
    """Count each user's tokens, (n,), and each item's, (len(vocabulary),). NOT PRIVATE."""
    v = users.counts
    sizes, totals = np.zeros(len(users), np.int64), np.zeros(len(v.vocabulary), np.int64)
    add_margins(v.indptr, v.item, v.count, sizes, totals)
    return sizes, totals


def kept_totals(users: Users, clips: Counts, seed: int, context: str) -> Counts:
    """Total the tokens that rand-clip keeps, for each threshold, in one pass. NOT PRIVATE.

    ``clips``: (K,) int64, increasing, from 1 on; ``context``: names the run: another name, another
    order of every user's tokens. Returns (K, len(vocabulary)) int64, a function of users, seed and
    context: neither the number of threads nor the packing of the users matters. Raises ValueError
    if the thresholds do not increase from at least 1.

    Cost
    ----
    About 5 ns per token of rank up to the largest threshold; 8 K d bytes per thread.
    """
    clips = np.asarray(clips, dtype=np.int64)
    if not len(clips) or clips[0] < 1 or (np.diff(clips) <= 0).any():
        raise ValueError(f"thresholds must increase from at least 1, got {clips[:5].tolist()}...")
    cell = np.searchsorted(clips, np.arange(1, clips[-1] + 1))
    shape = len(clips), len(users.vocabulary)
    listed = max(SHUFFLED, 4 * int(clips[-1]))
    table = 1 << (4 * int(clips[-1]) - 1).bit_length()

    def part(batch: Users) -> Counts:
        out = np.zeros(shape, dtype=np.int64)
        v = batch.counts
        keys = SeededStreams(batch.ids, seed, context).keys
        tokens = np.empty(listed, dtype=np.uint32)
        taken = np.empty(table, dtype=np.int64)
        add_rank_bins(keys, v.indptr, v.item, v.count, cell, tokens, taken, out)
        return out

    n_threads = max(1, min(len(os.sched_getaffinity(0)), len(users)))
    with ThreadPoolExecutor(n_threads) as pool:
        total: Counts = sum(pool.map(part, users.split(n_threads)), np.zeros(shape, np.int64))
    return np.cumsum(total, axis=0)
