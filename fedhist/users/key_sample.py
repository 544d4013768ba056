"""A public sample of very many keys, for what evaluation says of them; NOT PRIVATE.

A key belongs to it by a hash of its own bytes: the same keys in any part of the users, on any
machine and in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedhist.base.hashing import digest64, hash_bytes_kernel
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard, Wrapped

MOST_TOLD_APART = 10_000_000
"""Items of a vocabulary that are all told apart; of more, those of a sample."""

ONE_IN = 64
"""Of so many keys about one is in the sample."""


def one_in(vocabulary: Keys) -> int:
    """Return of how many keys one is told apart: 1, where there are not too many."""
    return ONE_IN if len(vocabulary) > MOST_TOLD_APART else 1


def in_sample(keys: Keys, share: int) -> NDArray[np.bool_]:
    """Say which keys are in the sample of 1 in ``share``: (number of keys,)."""
    hashes = np.empty(len(keys), dtype=np.uint64)
    hash_bytes_kernel(keys.offsets, keys.data, np.uint64(digest64("fedhist.key-sample")), hashes)
    return np.asarray(hashes % np.uint64(share) == 0)


@lru_cache(maxsize=4)
def _told_apart(vocabulary: Keys, share: int) -> tuple[Keys, NDArray[np.uint32]]:
    """Name the keys of the sample, and one for all others; say which each key is, (V,)."""
    inside = in_sample(vocabulary, share)
    names = vocabulary.take(np.flatnonzero(inside))
    at = np.where(inside, np.cumsum(inside) - 1, len(names)).astype(np.uint32)
    return Keys.known(np.append(names.offsets, names.offsets[-1]), names.data), at


class Sampled(Wrapped):
    """Users whose items outside the sample are all called by one last number.

    Records keep their entries, so that a user has as many items and tokens as before; the last
    number stands in a record more than once. Sums of it mean nothing.
    """

    digest = Shard.digest  # these are other records

    def slice(self, start: int, stop: int) -> Shard:
        return Sampled(self.users.slice(start, stop))

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        return map(told_apart, self.users.blocks(size))

    @property
    def none(self) -> Users:
        return told_apart(self.users.none)


def told_apart(users: Users) -> Users:
    """Return users as in :class:`Sampled`, or as they are where all keys are told apart."""
    v = users.counts
    share = one_in(v.vocabulary)
    if share == 1:
        return users
    names, at = _told_apart(v.vocabulary, share)
    return replace(users, items=replace(v, vocabulary=names, item=at[v.item]))
