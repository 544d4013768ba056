"""Local randomizers: a user's value in, a private report out, vectorised over users.

Each takes data, a channel of :mod:`fedhist.channels.scalar` and the users' private streams. A
record that cannot be used (no samples, NaN) becomes the null record of the randomizer: no vote, or
the midpoint. Its message has the same shape and costs the same draws as any other.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import flip_at
from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.hashing import bernoulli_bits_kernel
from fedhist.base.lazy import kernel
from fedhist.channels.bits import BitTally, UnaryChannel, add_rows, n_words
from fedhist.channels.scalar import LatticeChannel, OneBitChannel, ScalarChannel, into_unit
from fedhist.users.streams import SeededStreams, Streams, integer_threshold


def bin_indices(x: Floats, low: float, high: float, n_bins: int) -> Integers:
    """Find the bin of each value among n_bins half-open bins of equal width on [low, high].

    Returns
    -------
    (n,) int64
        In [0, n_bins); the last bin is closed and values outside go to the ends; -1 for NaN.

    Examples
    --------
    >>> bin_indices(np.array([0.0, 0.5, 1.0, 7.0, np.nan]), 0.0, 1.0, 2)
    array([ 0,  1,  1,  1, -1])
    """
    unusable = np.isnan(x)
    per_unit = min(n_bins / (high - low), sys.float_info.max)  # finite for the shortest range
    scaled = (np.where(unusable, low, np.clip(x, low, high)) - low) * per_unit
    return np.where(unusable, -1, np.clip(np.floor(scaled), 0, n_bins - 1)).astype(np.int64)


def neighbours(bins: Integers, n_bins: int) -> Integers:
    """List each bin and the bins beside it: (n, 3) int64, -1 where there is none."""
    three = bins[:, None] + np.array([0, -1, 1])
    exists = (bins[:, None] >= 0) & (three >= 0) & (three < n_bins)
    return np.where(exists, three, -1)


def unary_votes(positions: Integers, n_bits: int, channel: UnaryChannel, rng: Streams) -> Words:
    """Set the given bits and flip every bit independently.

    Parameters
    ----------
    positions : (n,) or (n, k) int64
        Bits to set; entries outside [0, n_bits) stand for none. Only the first ``channel.ones``
        of a row count: the guarantee rests on that cap, so it is applied here.
    n_bits : int
    channel : UnaryChannel
    rng : Streams

    Returns
    -------
    (n, ceil(n_bits / 64)) uint64

    Privacy
    -------
    epsilon-LDP for any two rows of positions.

    References
    ----------
    Kent et al., arXiv 2405.11923, eq. (27), Lemma 16.
    """
    wanted = positions[:, None] if positions.ndim == 1 else positions
    votes = rng.substream("unary").bernoulli_bits(n_bits, channel.flip)
    flip_at(np.ascontiguousarray(wanted, dtype=np.int64), n_bits, channel.ones, votes)
    return votes


def randomize(u: Floats, channel: ScalarChannel, rng: Streams) -> NDArray[Any]:
    """Report scalars of [-1, 1] through a scalar channel.

    Parameters
    ----------
    u : (n,) float64
        Clipped to [-1, 1] here; NaN becomes 0, the midpoint.
    channel : ScalarChannel
    rng : Streams

    Returns
    -------
    (n,) of ``channel.dtype``
        ``report / channel.gain`` is unbiased for u.

    Privacy
    -------
    epsilon-LDP for any two values of u.
    """
    if isinstance(channel, LatticeChannel):
        return channel.reports(u, rng.substream(channel.kind).words(2))
    if isinstance(channel, OneBitChannel):
        up = rng.substream("round").bernoulli((1.0 + into_unit(u)) / 2)
        lie = rng.substream("flip").bernoulli(np.full(len(u), channel.flip))
        return np.where(up ^ lie, np.int8(1), np.int8(-1))
    raise ValueError(f"no randomizer for the channel {channel}")


def add_votes(
    tally: BitTally, positions: Integers, channel: UnaryChannel, fold: Integers, rng: Streams
) -> None:
    """Draw unary votes and add them to a tally, by fold and bit; no report per user is made.

    The sums are, bit for bit, those of the reports of :func:`unary_votes`. Many batches share one
    tally: reading it costs as much as (n_folds, n_bits) numbers do. ``fold`` is (n,) int64, in
    [0, n_folds): nothing is checked.
    """
    if not isinstance(rng, SeededStreams):
        tally.add(unary_votes(positions, tally.n_bits, channel, rng), fold)
        return
    wanted = positions.reshape(rng.n_users, -1) if rng.n_users else positions.reshape(0, 1)
    _add_votes(
        rng.substream("unary").keys,
        np.ascontiguousarray(wanted, dtype=np.int64),
        tally.n_bits,
        channel.ones,
        integer_threshold(channel.flip)[()],
        np.empty((4096, n_words(tally.n_bits)), dtype=np.uint64),  # votes stay in the cache
        fold,
        *tally.parts,
    )


@kernel()
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
