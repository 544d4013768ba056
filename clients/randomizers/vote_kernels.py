"""Unary votes added up as they are drawn, without a report per user.

What a node that folds its own users' answers does: the sums are, bit for bit, those of the
reports of :func:`clients.randomizers.scalars.unary_votes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from clients.bounding.kernels import flip_at
from clients.randomizers.scalars import unary_votes
from fedhist.base.arrays import Integers, Words
from fedhist.base.hashing import bernoulli_bits_kernel
from fedhist.channels.bits import BitTally, add_rows, n_words
from fedhist.channels.catalogue import UnaryChannel
from fedhist.users.streams import SeededStreams, Streams, integer_threshold

BATCH = 4096
"""Users whose votes exist at a time in the fused loop: they stay in the cache."""


def add_votes(
    tally: BitTally, positions: Integers, channel: UnaryChannel, fold: Integers, rng: Streams
) -> None:
    """Draw unary votes and add them to a tally, by fold and bit.

    Many batches share one tally: reading it costs as much as (n_folds, n_bits) numbers do.

    Parameters
    ----------
    tally : BitTally
    positions : (n,) or (n, k) int64
        As for :func:`clients.randomizers.scalars.unary_votes`.
    channel : UnaryChannel
    fold : (n,) int64
        In [0, n_folds), in any order.
    rng : Streams

    Raises
    ------
    ValueError
        If a fold is out of range, or there is not one row of positions and one fold per stream.
    """
    n = rng.n_users
    if len(positions) != n:
        raise ValueError(f"{n} streams need a row of positions each, got {len(positions)}")
    tally.check(fold, n)
    if not isinstance(rng, SeededStreams):
        tally.add(unary_votes(positions, tally.n_bits, channel, rng), fold)
        return
    wanted = positions.reshape(n, -1) if n else positions.reshape(0, 1)
    _add_votes(
        rng.substream("unary").keys,
        np.ascontiguousarray(wanted, dtype=np.int64),
        tally.n_bits,
        channel.ones,
        integer_threshold(channel.flip)[()],
        np.empty((BATCH, n_words(tally.n_bits)), dtype=np.uint64),
        fold,
        *tally.parts,
    )


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_votes(
    keys: Words,
    positions: Integers,
    n_bits: int,
    ones: int,
    threshold: np.uint64,
    votes: Words,
    fold: Integers,
    lanes: Words,
    rows: Integers,
    counts: Any,
) -> None:
    """Draw, set and count the votes of a few users at a time; ``votes`` is scratch."""
    for first in range(0, keys.shape[0], votes.shape[0]):
        stop = min(first + votes.shape[0], keys.shape[0])
        part = votes[: stop - first]
        bernoulli_bits_kernel(keys[first:stop], threshold, part)
        flip_at(positions[first:stop], n_bits, ones, part)
        add_rows(part, fold[first:stop], lanes, rows, counts)
