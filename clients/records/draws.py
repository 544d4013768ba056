"""Part of a user's record, drawn at random with private words: an item, a sample, or a subset.

The functions that take ``rng`` are the ones an author calls. Two draws are independent if they take
substreams of different names: ``rng.substream("first")``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import columns_of, user_norms
from clients.bounding.sampling import MOST_TOKENS, cut_rows, in_domain, random_clip
from fedhist.base.arrays import Floats, Integers, Words, offsets
from fedhist.base.checks import check_integer
from fedhist.base.lazy import kernel
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Items, Samples
from fedhist.users.streams import Streams, integer_threshold


def draw_item(users: Users, domain: Keys, rng: Streams) -> Integers:
    """Draw one of each user's items, uniformly over its counts: (n,) int64.

    Parameters
    ----------
    users : Users
        With item counts.
    domain : Keys
        Items outside do not count.
    rng : Streams

    Returns
    -------
    (n,) int64
        Position in the domain; -1 for a user without an item of it.
    """
    return drawn_symbols(users.counts, domain, rng.substream("one-item").words(1)[:, 0])


def draw_subset(users: Users, k: int, rng: Streams, *, distinct: bool = False) -> Users:
    """Keep a uniformly random subset of k of each user's items or samples; fewer stay as they are.

    Parameters
    ----------
    users : Users
        Item counts are read as tokens, one per count: every subset of k of a user's tokens is
        equally likely. Of samples, every subset of k rows.
    k : int
        Positive.
    rng : Streams
    distinct : bool
        Draw among a user's distinct items, and keep the whole counts of the k that are drawn.

    Examples
    --------
    >>> from fedhist.users.streams import SeededStreams
    >>> users = Users.from_records({"ann": {"rye": 9, "tea": 4}, "bob": {"rye": 1}})
    >>> two = draw_subset(users, 2, SeededStreams(users.ids, 1, "example"))
    >>> sorted(np.add.reduceat(two.counts.count, two.counts.indptr[:-1]).tolist())
    [1, 2]
    """
    check_integer("k", k, MOST_TOKENS)
    words = rng.substream("subset").words(1)[:, 0]
    if users.samples is not None:
        indptr, kept = _kept(users.samples.indptr, k, words)
        return replace(users, samples=Samples(indptr, users.samples.values[kept]))
    items = users.counts
    if distinct:
        indptr, kept = _kept(items.indptr, k, words)
        item, count = items.item[kept], items.count[kept]
    else:
        indptr, item, count = random_clip(items, k, words)
    return replace(users, items=Items(items.vocabulary, indptr, item, count))


def _kept(indptr: Integers, k: int, words: Words) -> tuple[Integers, NDArray[np.bool_]]:
    """Draw k of each user's rows: the new indptr, and which rows stay."""
    ones = np.ones(int(indptr[-1]), dtype=np.uint32)
    rows = Items(Keys.of(()), indptr, np.zeros_like(ones), ones)
    kept = random_clip(rows, k, words, keep_zeros=True)[2].astype(np.bool_)
    return offsets(kept)[indptr], kept


def drawn_symbols(items: Items, domain: Keys, words: Words) -> Integers:
    """Draw one of each user's items of the domain, uniformly over its counts, by a word a user."""
    indptr, item, _ = cut_rows(items, domain, 1, words)
    out = np.full(len(indptr) - 1, -1, dtype=np.int64)
    out[indptr[1:] > indptr[:-1]] = item
    return out


def draws_of_symbols(
    items: Items, domain: Keys, padding: int = 1
) -> Callable[[np.random.Generator], Integers]:
    """Prepare draws of how many users draw each symbol of the domain, and last none: (k + 1,).

    The law is that of :func:`padded_symbols`, or with one slot of :func:`drawn_symbols`. Users who
    cannot but draw one symbol, or none, are counted once.
    """
    inside = in_domain(items, domain)
    size = np.empty(len(inside.indptr) - 1)
    user_norms(columns_of(inside, None), 1, size)
    entries = np.diff(inside.indptr)
    sure = (entries == 1) & (size >= padding)
    fixed = np.bincount(inside.item[inside.indptr[:-1][sure]], minlength=len(domain) + 1)
    fixed[-1] += np.count_nonzero(entries == 0)
    open_ = ~sure & (entries > 0)
    stay = np.repeat(open_, entries)
    item, indptr = inside.item[stay], offsets(entries[open_])
    upto = np.cumsum(inside.count[stay].astype(np.float64))
    before = np.append(0.0, upto)[indptr[:-1]]
    upto -= np.repeat(before, entries[open_])
    upto /= np.repeat(np.maximum(size[open_], padding), entries[open_])

    def draw(rng: np.random.Generator) -> Integers:
        counts = fixed.astype(np.int64)
        _add_draws(indptr, item, upto, rng.random(len(indptr) - 1), counts)
        return counts

    return draw


def sparse_shares(items: Items, domain: Keys) -> Any:
    """Divide each user's counts of the domain by its own number of items: a sparse (n, k)."""
    from scipy.sparse import csr_array

    inside = in_domain(items, domain)
    size = np.empty(len(inside.indptr) - 1)
    user_norms(columns_of(inside, None), 1, size)
    values = (inside.count / np.repeat(size, np.diff(inside.indptr))).astype(np.float32)
    return csr_array((values, inside.item, inside.indptr), shape=(len(size), len(domain)))


@kernel()
def _add_draws(indptr: Integers, item: Any, upto: Floats, u: Floats, counts: Integers) -> None:
    """Count for every user the first of its items whose cumulative share exceeds u; or none."""
    for i in range(u.shape[0]):
        start, stop = indptr[i], indptr[i + 1]
        e = start + np.int64(u[i] * (stop - start))
        while e < stop and upto[e] <= u[i]:
            e += 1
        while e > start and upto[e - 1] > u[i]:
            e -= 1
        counts[item[e] if e < stop else counts.shape[0] - 1] += 1


def padded_symbols(items: Items, domain: Keys, padding: int, words: Words) -> Integers:
    """Draw one of ``padding`` slots of each user and say which item lies in it: (n,) int64.

    A user's in-domain items fill the L = ``padding`` slots, one item each, and the rest stay empty;
    of more items than slots a uniform subset is taken. A slot of such a subset is a uniform item,
    so that it is enough to draw an item, by the first word, and to keep it with probability
    min(size / L, 1), by the second; that is a multiple of 2^-64, and no privacy rests on it. Item j
    of a user that has N_j of it, and N in all, is drawn with probability N_j / max(N, L); -1 stands
    for an empty slot.
    """
    inside = in_domain(items, domain)
    size = np.empty(len(words), dtype=np.float64)
    user_norms(columns_of(inside, None), 1, size)
    full = size >= padding
    filled = words[:, 1] < integer_threshold(np.where(full, 0.0, size / padding))
    return np.where(full | filled, drawn_symbols(inside, domain, words[:, 0]), -1)


def draw_one(users: Users, words: Words) -> Users:
    """Keep one sample of each user, drawn uniformly by a word a user; without samples, none.

    Sample floor(h T / 2^32), h the word's upper half: uniform up to T / 2^32, and no privacy rests
    on that. A user has fewer than 2^32 samples.
    """
    samples = users.reals
    sizes = np.diff(samples.indptr)
    index = (words >> np.uint64(32)) * sizes.astype(np.uint64) >> np.uint64(32)
    held = sizes > 0
    rows = (samples.indptr[:-1] + index.astype(np.int64))[held]
    indptr = offsets(held)
    return replace(users, samples=Samples(indptr, samples.values[rows]))


def one_value(users: Users, words: Words) -> Floats:
    """Draw one sample of each user, of one dimension, as :func:`draw_one` does: (n,) float64.

    NaN for an unusable record: no samples, or a NaN among them, whichever is drawn.
    """
    samples = users.reals
    broken = offsets(np.isnan(samples.values[:, 0]))
    usable = (np.diff(broken[samples.indptr]) == 0) & (np.diff(samples.indptr) > 0)
    one = draw_one(users, words).reals
    out = np.full(len(users), np.nan)
    out[usable] = one.values[usable[np.diff(samples.indptr) > 0], 0]
    return out
