"""Random clipping: a user keeps a uniform sample of its tokens, drawn without replacement.

A histogram is read as a bag of tokens, one per count. Of m tokens min(m, C) are kept, every subset
of that size being equally likely (multivariate hypergeometric counts). A user whose tokens all fit
is left as it is and draws nothing.

Every user has one private 64-bit word, which the loops expand (:mod:`clients.bounding.drawing`). So
what a user keeps depends on its own record and word alone, memory does not grow with the number of
tokens, and draws can be rejected: ranks are integers without bias, given ideal words.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Section 5 (rand-clip).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from clients.bounding.drawing import Scratch, draw, draw_set, scratch_for, size_of
from clients.bounding.kernels import columns_of
from fedhist.base.arrays import Words
from fedhist.base.hashing import MASK64
from fedhist.users.columns import Items

Int64s = NDArray[np.int64]
Unsigned = NDArray[np.unsignedinteger[Any]]

DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
BIT_NUMBER = np.zeros(64, dtype=np.uint64)
"""Number of the one bit of x, at ``(x * DE_BRUIJN) >> 58``."""
BIT_NUMBER[[(0x03F79D71B4CB0A89 << k & MASK64) >> 58 for k in range(64)]] = np.arange(64)

MOST_CLIP = 1 << 31
"""Largest number of tokens that a user may keep."""


def random_clip(
    items: Items, clip: int, words: Words, *, keep_zeros: bool = False
) -> tuple[Int64s, Unsigned, NDArray[np.uint64]]:
    """Sample min(m, clip) of each user's m tokens.

    Parameters
    ----------
    items : Items
    clip : int
        C, at least 1.
    words : (n,) uint64
        One private word per user.
    keep_zeros : bool
        Also name the items of which nothing was kept, with count 0.

    Returns
    -------
    indptr : (n + 1,) int64
        User u owns entries ``indptr[u]`` to ``indptr[u + 1]`` of the other two.
    item : (k,) unsigned
        Vocabulary positions, in the order of the user's record.
    count : (k,) uint64

    Privacy
    -------
    A row adds up to exactly min(m, clip), whatever the words are.

    Cost
    ----
    O(s + c log s) time for a user of s items, c = min(clip, m - clip) tokens being drawn (those
    that stay, or those that go); O(s sqrt(c / s)) for c beyond 16 (s + 4). O(s) memory.
    """
    sizes = items.indptr[1:] - items.indptr[:-1]
    most = sizes if keep_zeros else np.minimum(sizes, clip)
    indptr = np.zeros(len(sizes) + 1, dtype=np.int64)
    item = np.empty(int(most.sum()) + 1, dtype=items.item.dtype)  # one is written beyond the end
    count = np.empty(len(item), dtype=np.uint64)
    scratch = scratch_for(int(sizes.max(initial=0)), clip)
    _clip_rows(
        *columns_of(items, None)[:3], uint64(clip), words, scratch, keep_zeros, indptr, item, count
    )
    n = int(indptr[-1])
    return indptr, item[:n], count[:n]


def add_random_clip(
    items: Items, clip: int, words: Words, total: Int64s, held: NDArray[np.bool_] | None = None
) -> None:
    """Add what :func:`random_clip` keeps to ``total`` (len(vocabulary),), without keeping rows.

    Parameters
    ----------
    items, clip, words
        As in :func:`random_clip`; equal words give equal samples.
    total : (len(vocabulary),) int64
    held : (len(vocabulary),) bool, optional
        Set where some user has the item, kept or not.
    """
    scratch = scratch_for(int(np.diff(items.indptr).max(initial=0)), clip)
    _add_clipped(*columns_of(items, None)[:3], uint64(clip), words, scratch, total)
    if held is not None:
        held[items.item] = True


# -- all users -------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _clip_rows(
    indptr: Int64s,
    item: Any,
    count: Any,
    clip: Any,
    words: Words,
    scratch: Scratch,
    keep_zeros: bool,
    indptr_out: Int64s,
    item_out: Any,
    count_out: Words,
) -> None:
    """Write every user's sample."""
    bits, kept, n = scratch[0], scratch[1], uint64(0)
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        s = stop - start
        m, shift = size_of(start, stop, count)
        gone = m - clip < clip  # then it is less work to draw what goes
        c = m - clip if gone else clip
        if m <= clip:
            for k in range(start, stop):
                item_out[n], count_out[n] = item[k], count[k]
                n += uint64(1)
        elif m == s and keep_zeros:
            draw_set(s, c, gone, words[u], bits)
            for k in range(s):
                item_out[n] = item[start + k]
                count_out[n] = (bits[k >> uint64(6)] >> (k & uint64(63))) & uint64(1)
                n += uint64(1)
        elif m == s:
            for b in range(draw_set(s, c, gone, words[u], bits)):
                rest, base = bits[b], start + (uint64(b) << uint64(6))
                while rest:
                    low = rest & (~rest + uint64(1))
                    k = base + BIT_NUMBER[(low * DE_BRUIJN) >> uint64(58)]
                    item_out[n], count_out[n] = item[k], uint64(1)
                    n += uint64(1)
                    rest ^= low
        else:
            draw(s, m, c, start, count, shift, words[u], scratch)
            for k in range(s):
                x = uint64(count[start + k]) - kept[k] if gone else kept[k]
                item_out[n], count_out[n] = item[start + k], x
                n += uint64(keep_zeros or x > uint64(0))
        indptr_out[u + 1] = n


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_clipped(
    indptr: Int64s,
    item: Any,
    count: Any,
    clip: Any,
    words: Words,
    scratch: Scratch,
    total: Int64s,
) -> None:
    """Add every user's sample to ``total``."""
    bits, kept = scratch[0], scratch[1]
    for u in range(indptr.shape[0] - 1):
        start, stop = uint64(indptr[u]), uint64(indptr[u + 1])
        s = stop - start
        m, shift = size_of(start, stop, count)
        gone = m - clip < clip
        c = m - clip if gone else clip
        if m <= clip:
            for k in range(start, stop):
                total[item[k]] += np.int64(count[k])
        elif m == s:
            for b in range(draw_set(s, c, gone, words[u], bits)):
                rest, base = bits[b], start + (uint64(b) << uint64(6))
                while rest:
                    low = rest & (~rest + uint64(1))
                    total[item[base + BIT_NUMBER[(low * DE_BRUIJN) >> uint64(58)]]] += 1
                    rest ^= low
        else:
            draw(s, m, c, start, count, shift, words[u], scratch)
            for k in range(s):
                x = uint64(count[start + k]) - kept[k] if gone else kept[k]
                total[item[start + k]] += np.int64(x)
