"""One symbol of a user's record, and its report through a frequency oracle."""

from __future__ import annotations

import math

import numpy as np

from clients.bounding.item_encodings import cut_rows, in_domain
from clients.bounding.kernels import columns_of, user_norms
from fedhist.base.arrays import Integers, Words
from fedhist.channels.catalogue import OptimalUnaryChannel
from fedhist.users.columns import Items
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams, integer_threshold


def drawn_symbols(items: Items, domain: Keys, words: Words) -> Integers:
    """Draw one of each user's in-domain items, uniformly over its counts: (n,) int64.

    Parameters
    ----------
    items : Items
    domain : Keys
        Items outside are dropped first.
    words : (n,) uint64
        One private word per user.

    Returns
    -------
    (n,) int64
        Position in the domain; -1 for a user without an item of it.
    """
    indptr, item, _ = cut_rows(items, domain, 1, words)
    out = np.full(len(indptr) - 1, -1, dtype=np.int64)
    out[indptr[1:] > indptr[:-1]] = item
    return out


def padded_symbols(items: Items, domain: Keys, padding: int, words: Words) -> Integers:
    """Draw one of ``padding`` slots of each user and say which item lies in it: (n,) int64.

    A user's in-domain items fill the slots, one item each, and the rest stay empty; of more items
    than slots a uniform subset is taken. A slot of such a subset is a uniform item, so that it is
    enough to draw an item, and to keep it with probability min(size / padding, 1).

    Parameters
    ----------
    items : Items
    domain : Keys
        Items outside are dropped first.
    padding : int
        L.
    words : (n, 2) uint64
        Two private words per user: for the item, and for whether the slot is filled. The latter's
        probability is a multiple of 2^-64; no privacy rests on it.

    Returns
    -------
    (n,) int64
        Position in the domain; -1 for an empty slot. Item j of a user that has N_j of it, and N in
        all, is drawn with probability N_j / max(N, L).

    Examples
    --------
    >>> one = np.array([0, 2]), np.array([0, 1], np.uint32), np.array([3, 4], np.uint32)
    >>> word = np.array([[0, (1 << 64) - 1]], dtype=np.uint64)
    >>> items, domain = Items(Keys.of(["a", "b"]), *one), Keys.of(["b"])
    >>> [int(padded_symbols(items, domain, L, word)[0]) for L in (4, 5)]
    [0, -1]
    """
    inside = in_domain(items, domain)
    size = np.empty(len(words), dtype=np.float64)
    user_norms(columns_of(inside, None), 1, size)
    full = size >= padding
    filled = words[:, 1] < integer_threshold(np.where(full, 0.0, size / padding))
    return np.where(full | filled, drawn_symbols(inside, domain, words[:, 0]), -1)


def optimal_unary(symbols: Integers, channel: OptimalUnaryChannel, rng: Streams) -> Words:
    """Report symbols as k noisy bits each: (n, ceil(k / 64)) uint64, packed.

    Parameters
    ----------
    symbols : (n,) int64
        In [-1, k); -1 stands for none.
    channel : OptimalUnaryChannel
    rng : Streams

    Privacy
    -------
    epsilon-LDP, see the channel; every user's coin is drawn, whether it has a symbol or not.
    """
    bits = rng.substream("zeros").bernoulli_bits(channel.n_symbols, channel.flip)
    coin = rng.substream("one").words(1)[:, 0] >> np.uint64(63)
    if math.isinf(channel.epsilon):
        coin[:] = 1
    rows = np.flatnonzero(symbols >= 0)
    own = symbols[rows]
    at, shift = (rows, own >> 6), (own & 63).astype(np.uint64)
    bits[at] = bits[at] & ~(np.uint64(1) << shift) | coin[rows] << shift
    return bits
