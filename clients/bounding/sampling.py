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

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from clients.bounding.contribution import columns_of, domain_lookup
from fedhist.base.arrays import Words, offsets
from fedhist.base.hashing import GOLDEN, mix, unit1
from fedhist.base.lazy import kernel
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Items
from fedhist.users.streams import Streams

Int64s = NDArray[np.int64]
Unsigned = NDArray[np.unsignedinteger[Any]]

MOST_TOKENS = 1 << 31
"""Largest number of tokens that a user may keep."""

Scratch = tuple[Words, Words, Words, Words, Words]

MANY = 16
"""Tokens per item from which counts are drawn item by item, and not token by token."""


def random_clip(
    items: Items, clip: int, words: Words, *, keep_zeros: bool = False
) -> tuple[Int64s, Unsigned, NDArray[np.uint64]]:
    """Sample min(m, clip) of each user's m tokens.

    Privacy
    -------
    A row adds up to exactly min(m, clip), whatever the words are.
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


def cut_words(rng: Streams) -> Words:
    """Draw what cuts to so many tokens take: a private word a user, whatever its record."""
    return rng.substream("random-clip").words(1)[:, 0]


# -- a public domain ------------------------------------------------------------------------------


def in_domain(items: Items, domain: Keys) -> Items:
    """Keep the items of a public domain and number them by it; no copy where all are in it.

    >>> one = np.array([0, 2]), np.array([0, 1], np.uint32), np.array([3, 4], np.uint32)
    >>> inside = in_domain(Items(Keys.of(["a", "b"]), *one), Keys.of(["b", "c"]))
    >>> inside.indptr, inside.item, inside.count
    (array([0, 1]), array([0], dtype=uint32), array([4], dtype=uint32))
    """
    lookup = domain_lookup(domain, items.vocabulary)
    if lookup is None:
        return items
    position = lookup[items.item]
    inside = position >= 0
    before = offsets(inside)
    item = position[inside].astype(np.uint32)
    return Items(domain, before[items.indptr], item, items.count[inside])


def out_of_domain(users: Users, domain: Keys | None) -> Users:
    """Leave the items of a public domain out of every record."""
    if domain is None:
        return users
    items, lookup = users.counts, domain_lookup(domain, users.vocabulary)
    outside = (lookup if lookup is not None else np.zeros(len(domain)))[items.item] < 0
    indptr = offsets(outside)[items.indptr]
    rest = Items(items.vocabulary, indptr, items.item[outside], items.count[outside])
    return replace(users, items=rest)


def cut_rows(items: Items, domain: Keys, m: int, words: Words) -> tuple[Int64s, Unsigned, Unsigned]:
    """Draw min(m, size) of each user's in-domain items, uniformly without replacement.

    Privacy
    -------
    A row adds up to at most m, whatever the record and the words: it is a point of the simplex
    m, with at most min(k, m) entries.
    """
    indptr, item, count = random_clip(in_domain(items, domain), m, words)
    return indptr, item.astype(np.uint32, copy=False), count


# -- one user -------------------------------------------------------------------------------------


def scratch_for(largest: int, clip: int) -> Scratch:
    """Room for a user of so many items: cumulative counts (or bits), counts, a set, two columns."""
    c = min(clip, MANY * (largest + 4))
    sizes = 2 * largest + 2, largest, 4 * c, c, c
    ends, kept, taken, ranks, at = (np.empty(k, np.uint64) for k in sizes)
    return ends, kept, taken, ranks, at


@kernel(forceinline=True)
def _below(n: Any, counter: Any) -> Any:
    """Uniform integer in [0, n) for 0 < n < 2^63, and the counter after the words it took [2]."""
    low32 = uint64(0xFFFFFFFF)
    while True:
        counter += uint64(GOLDEN)
        w = mix(counter)
        if n <= low32:
            product = (w >> uint64(32)) * n
            if product & low32 >= n or product & low32 >= (uint64(1 << 32) - n) % n:
                return product >> uint64(32), counter
        else:
            mask = n
            for shift in (1, 2, 4, 8, 16, 32):
                mask |= mask >> uint64(shift)
            if w & mask < n:
                return w & mask, counter


@kernel(forceinline=True)
def size_of(start: Any, stop: Any, count: Any) -> Any:
    """Tokens of one user, and the shift that keeps the sum of its shifted counts below 2^63.

    The shift is 0 unless a user has 2^63 tokens or more; then ranks are drawn among blocks of
    2^shift tokens of one item, which changes no probability by more than 2^-60 times the number
    of items.
    """
    bits, total = uint64(0), uint64(0)
    for k in range(start, stop):  # no way out early, so that it vectorises
        bits |= uint64(count[k])
        total += uint64(count[k])
    shift = uint64(0)
    if bits >> uint64(40) == uint64(0) and stop - start < uint64(1 << 23):
        return total, shift
    while True:
        total, fits = uint64(0), True
        for k in range(start, stop):
            total += uint64(count[k]) >> shift
            fits = fits and uint64(count[k]) >> shift < uint64(1 << 62) and total < uint64(1 << 62)
        if fits:
            return total, shift
        shift += uint64(1)


@kernel(forceinline=True)
def _draw_ranks(s: Any, m: Any, c: Any, start: Any, count: Any, counter: Any, scratch: Any) -> None:
    """Draw c of m tokens by their ranks, and count them by entry in ``kept``."""
    ends, kept, taken, ranks, at = scratch
    size, slots, shift = uint64(1), uint64(2), uint64(63)
    while size <= s:
        size *= uint64(2)
    while slots < uint64(2) * c:
        slots *= uint64(2)
        shift -= uint64(1)
    total = uint64(0)
    for k in range(s):
        total += uint64(count[start + k])
        ends[k] = total
        kept[k] = uint64(0)
    for k in range(s, size):
        ends[k] = ~uint64(0)
    for h in range(slots):
        taken[h] = ~uint64(0)
    for j in range(m - c, m):
        r, counter = _below(uint64(j) + uint64(1), counter)
        h = (r * uint64(GOLDEN)) >> shift
        while taken[h] != ~uint64(0) and taken[h] != r:
            h = (h + uint64(1)) & (slots - uint64(1))
        if taken[h] == r:  # taken: j is larger than every rank drawn so far
            r = uint64(j)
            h = (r * uint64(GOLDEN)) >> shift
            while taken[h] != ~uint64(0):
                h = (h + uint64(1)) & (slots - uint64(1))
        taken[h] = r
        ranks[uint64(j) - (m - c)], at[uint64(j) - (m - c)] = r, uint64(0)
    step = size >> uint64(1)
    while step:  # all ranks, level by level: a search at a time would wait for its loads
        for i in range(c):
            ahead = at[i] + step
            at[i] = ahead if ends[ahead - uint64(1)] <= ranks[i] else at[i]
        step >>= uint64(1)
    for i in range(c):
        kept[at[i]] += uint64(1)


@kernel()
def _hypergeometric(held: Any, others: Any, c: Any, u: Any) -> Any:
    """How many of c tokens drawn from held + others are held ones, by inversion at u in (0, 1).

    The probabilities are walked from near the mode outwards by their ratios, until they are below
    2^-70 of the largest; doubles, with a relative error of about 1e-15 times the steps walked.
    """
    low = max(0.0, c - others)
    high = min(held, c)
    middle = min(max(math.floor((c + 1.0) * ((held + 1.0) / (held + others + 2.0))), low), high)
    left, total = middle, 1.0
    p = 1.0
    while left > low and p > 2.0**-70:
        p *= left * (others - c + left) / ((held - left + 1.0) * (c - left + 1.0))
        left -= 1.0
        total += p
    right, q = middle, 1.0
    while right < high and q > 2.0**-70:
        q *= (held - right) * (c - right) / ((right + 1.0) * (others - c + right + 1.0))
        right += 1.0
        total += q
    rest = u * total
    x = left  # from the left end upwards: p is its weight
    while x < right:
        rest -= p
        if rest < 0.0:
            return x
        p *= (held - x) * (c - x) / ((x + 1.0) * (others - c + x + 1.0))
        x += 1.0
    return x


@kernel()
def _draw_counts(
    s: Any, m: Any, c: Any, start: Any, count: Any, shift: Any, counter: Any, kept: Any
) -> None:
    """Draw how many of c tokens each entry gives, entry by entry, into ``kept``."""
    left, tokens = float(c), m
    for k in range(s):
        held = uint64(count[start + k]) >> shift
        tokens -= held
        counter += uint64(GOLDEN)
        u = unit1(mix(counter))
        x = 0.0
        if left > 0.0:
            x = (
                left
                if tokens == uint64(0)
                else _hypergeometric(float(held), float(tokens), left, u)
            )
        kept[k] = uint64(x)
        left -= x


@kernel(forceinline=True)
def draw(
    s: Any, m: Any, c: Any, start: Any, count: Any, shift: Any, counter: Any, scratch: Any
) -> None:
    """Draw c of a user's m tokens, whichever way is less work; ``scratch[1]`` has the counts."""
    if c <= uint64(MANY) * (s + uint64(4)) and shift == uint64(0):
        _draw_ranks(s, m, c, start, count, counter, scratch)
    else:
        _draw_counts(s, m, c, start, count, shift, counter, scratch[1])


# -- all users -------------------------------------------------------------------------------------


@kernel()
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
    kept, n = scratch[1], uint64(0)
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
        else:
            draw(s, m, c, start, count, shift, words[u], scratch)
            for k in range(s):
                x = uint64(count[start + k]) - kept[k] if gone else kept[k]
                item_out[n], count_out[n] = item[start + k], x
                n += uint64(keep_zeros or x > uint64(0))
        indptr_out[u + 1] = n
