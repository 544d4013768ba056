"""One symbol of a record, reported through a frequency oracle; and reports added up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Array, Integers, Words
from fedhist.base.lazy import kernel
from fedhist.channels.bits import count_bits, n_words, vote_totals
from fedhist.channels.layers import draw_layers
from fedhist.channels.oracles import OracleChannel, SubsetOracle, SymbolOracle, UnaryOracle
from fedhist.users.streams import Streams


def report_symbols(symbols: Integers, channel: OracleChannel, rng: Streams) -> Array:
    """Report one symbol of every user: (n,) uint32, or for subset and unary packed bits.

    ``symbols`` is (n,) int64 in [-1, k); -1 stands for none and is reported like a symbol, with as
    many draws. The erasure is N. epsilon-LDP, see the channel.
    """
    if isinstance(channel, UnaryOracle):
        return optimal_unary(symbols, channel, rng)
    own = np.where(symbols < 0, channel.n_symbols, symbols)
    if isinstance(channel, SubsetOracle):
        coin = rng.substream("inside").words(1)[:, 0]
        return subset_reports(own, coin < np.uint64(channel.threshold), channel, rng)
    if not isinstance(channel, SymbolOracle):
        raise TypeError(f"no reports are known for a channel of kind {channel.kind!r}")
    out = draw_layers(rng.substream("layers").words(1)[:, 0], channel.layers)
    member = out < 0
    out[member] = channel.members(own[member], ~out[member])
    return out.astype(np.uint32)


def optimal_unary(symbols: Integers, channel: UnaryOracle, rng: Streams) -> Words:
    """Report symbols, -1 for none, as k noisy bits each: (n, ceil(k / 64)) uint64, packed.

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


def fold_reports(reports: Array, channel: OracleChannel) -> Integers:
    """Count reports: (channel.size,) int64, what ``channel.debias`` takes."""
    if reports.ndim == 2:
        return count_bits(reports, channel.size)
    return np.bincount(reports, minlength=channel.size).astype(np.int64, copy=False)


def subset_reports(
    own: Integers, inside: NDArray[np.bool_], channel: SubsetOracle, rng: Streams
) -> Words:
    """Draw a uniform subset of the others, and put in the own symbol where it is inside.

    Floyd's method with rejection: exactly uniform. A user goes on in its own words where one was
    rejected, so that a batch does not change what a user draws.
    """
    need = channel.chosen - inside.astype(np.int64)
    bits = np.zeros((len(own), n_words(channel.size)), dtype=np.uint64)
    done = np.zeros(len(own), dtype=np.int64)
    block = 0
    columns = min(channel.chosen // 2 + 1, 64)  # words at a time
    while (done < need).any():
        words = rng.substream(f"others {block}").words(columns)
        _take_others(words, own, channel.n_symbols, need, done, bits)
        block += 1
    rows = np.flatnonzero(inside)
    bits[rows, own[rows] >> 6] |= np.uint64(1) << (own[rows] & 63).astype(np.uint64)
    return bits


@kernel()
def _take_others(
    words: Words, own: Integers, n_others: int, need: Integers, done: Integers, bits: Any
) -> None:
    """Go on taking others: both halves of a word give a uniform number below j + 1, or none."""
    low_half = uint64(0xFFFFFFFF)
    for u in range(words.shape[0]):
        for i in range(2 * words.shape[1]):
            if done[u] >= need[u]:
                break
            half = words[u, i >> 1] >> uint64(32 * (i & 1)) & low_half
            j = n_others - need[u] + done[u]
            size = uint64(j + 1)
            scaled = half * size
            if scaled & low_half < (uint64(1) << uint64(32)) % size:
                continue
            place = np.int64(scaled >> uint64(32))
            symbol = place + (place >= own[u])
            if bits[u, symbol >> 6] >> uint64(symbol & 63) & uint64(1):
                symbol = j + (j >= own[u])
            bits[u, symbol >> 6] |= uint64(1) << uint64(symbol & 63)
            done[u] += 1


def draw_counts(
    true_counts: Integers, channel: OracleChannel, generator: np.random.Generator
) -> Integers:
    """Draw the folded reports of many users from their exact joint law: (channel.size,) int64.

    ``true_counts``, (k + 1,), are the users with each symbol, and last those with none.

    >>> from fedhist.channels.oracles import oracle_channel
    >>> channel = oracle_channel("krr", float("inf"), 2)
    >>> draw_counts(np.array([3, 0, 1]), channel, np.random.default_rng(0)).tolist()
    [3, 0, 1, 0]
    """
    if isinstance(channel, UnaryOracle):
        votes = true_counts[:-1]
        truthful = generator.binomial(votes, channel.p)
        others = int(true_counts.sum()) - votes
        return truthful + vote_totals(np.zeros_like(votes), others, channel.flip, generator)
    if isinstance(channel, SubsetOracle):
        return _subset_counts(true_counts, channel, generator)
    if isinstance(channel, SymbolOracle):
        return _symbol_counts(true_counts, channel, generator)
    raise TypeError(f"no summed law is known for a channel of kind {channel.kind!r}")


def _symbol_counts(
    true_counts: Integers, channel: SymbolOracle, generator: np.random.Generator
) -> Integers:
    """Say who speaks in the upper layer, and name uniform members; the rest is the same for all."""
    law = channel.layers
    upper = generator.binomial(true_counts, law.gain)
    rest = int(true_counts.sum() - upper.sum())
    erased = int(generator.binomial(rest, min(law.erased / (1.0 - law.gain), 1.0))) if rest else 0
    counts = np.zeros(channel.size, dtype=np.int64)
    counts[-1] = erased
    counts[:-1] = generator.multinomial(rest - erased, np.full(law.size, 1 / law.size))
    if law.chosen * len(upper) < upper.sum():  # members are fewer than speakers
        times = generator.multinomial(upper, np.full(law.chosen, 1 / law.chosen)).ravel()
        symbol, rank = np.divmod(np.arange(len(times)), law.chosen)
    else:
        symbol = np.repeat(np.arange(len(upper)), upper)
        rank = generator.integers(law.chosen, size=len(symbol))
        times = np.ones(len(symbol), dtype=np.int64)
    np.add.at(counts, channel.members(symbol, rank), times)
    return counts


def _subset_counts(
    true_counts: Integers, channel: SubsetOracle, generator: np.random.Generator
) -> Integers:
    """Walk through the symbols with groups of users who still need r others, r = 0, ..., w.

    A uniform subset takes the next of m others that are left with probability r / m,
    independently over users. Before its own symbol a user's path does not depend on which symbol
    that is, so that the users who meet their own are a uniform sample of those who have not yet.
    """
    w, total = channel.chosen, channel.size
    n = int(true_counts.sum())
    n_inside = int(generator.binomial(n, channel.p))
    # before the own symbol, [own out, own in], and after it; a column for each r
    groups = np.zeros((3, w + 1), dtype=np.int64)
    groups[0, w], groups[1, w - 1] = n - n_inside, n_inside
    counts = np.zeros(total, dtype=np.int64)
    need, past = np.arange(w + 1), np.array([[0], [0], [1]])
    low, high = w - 1, w  # columns in use
    for x in range(total):
        here = groups[:, low : high + 1]
        met = generator.multivariate_hypergeometric(
            here[:2].ravel(), int(true_counts[x]), method="marginals"
        ).reshape(2, -1)
        here[:2] -= met
        left = np.maximum(total - 1 - x + past, 1)  # others, this one among them
        taking = generator.binomial(here, np.minimum(need[low : high + 1] / left, 1.0))
        counts[x] = met[1].sum() + taking.sum()
        here -= taking
        here[2] += met.sum(axis=0)
        fewer = max(low - 1, 0)
        groups[:, fewer:high] += taking[:, int(low == 0) :]
        used = np.flatnonzero(groups[:, fewer : high + 1].any(axis=0))
        if len(used):
            low, high = fewer + int(used[0]), fewer + int(used[-1])
    return counts
