"""Part of a user's record, drawn at random: one item, or a subset.

The functions an author calls, with the users' private randomness. Two draws are independent if they
take substreams of different names: ``rng.substream("first")``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clients.bounding.sampling import MOST_CLIP, random_clip
from clients.randomizers.vote_reports import drawn_symbols
from fedhist.base.arrays import Integers, Words
from fedhist.base.checks import check_integer
from fedhist.users.batch import Users
from fedhist.users.columns import Items, Samples
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams


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
    check_integer("k", k, MOST_CLIP)
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
    before = np.zeros(len(kept) + 1, dtype=np.int64)
    np.cumsum(kept, out=before[1:])
    return before[indptr], kept
