"""One symbol of a record, reported through a frequency oracle; and reports added up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from clients.randomizers.vote_reports import optimal_unary
from fedhist.base.arrays import Array, Integers, Words
from fedhist.channels.bit_oracles import SubsetOracle, UnaryOracle
from fedhist.channels.bits import count_bits, n_words
from fedhist.channels.layers import draw_layers, layer_of
from fedhist.channels.oracle_base import OracleChannel
from fedhist.channels.projective import member_of
from fedhist.channels.summed_oracles import draw_counts
from fedhist.channels.symbol_oracles import (
    HadamardOracle,
    ProjectiveOracle,
    SymbolOracle,
    half_member_of,
)
from fedhist.users.streams import Streams

__all__ = ["draw_counts", "fold_reports", "report_symbols"]

_COLUMNS = 64
"""Words of a user that are drawn at a time for a subset."""


def report_symbols(symbols: Integers, channel: OracleChannel, rng: Streams) -> Array:
    """Report one symbol of every user.

    Parameters
    ----------
    symbols : (n,) int64
        In [-1, k); -1 stands for none and is reported like a symbol.
    channel : OracleChannel
    rng : Streams

    Returns
    -------
    (n,) uint32, or (n, words) uint64
        A symbol, the erasure N among them; for subset and unary packed bits.

    Privacy
    -------
    epsilon-LDP, see the channel; as many draws for every symbol.
    """
    if isinstance(channel, UnaryOracle):
        return optimal_unary(symbols, channel.channel, rng)
    if isinstance(channel, SubsetOracle):
        own = np.where(symbols < 0, channel.n_symbols, symbols)
        coin = rng.substream("inside").words(1)[:, 0]
        return _subsets(own, coin < np.uint64(channel.threshold), channel, rng)
    if not isinstance(channel, SymbolOracle):
        raise TypeError(f"no reports are known for a channel of kind {channel.kind!r}")
    words, law = rng.substream("layers").words(1)[:, 0], channel.layers
    out = np.empty(len(symbols), dtype=np.uint32)
    if isinstance(channel, ProjectiveOracle):
        said, space = draw_layers(words, law), channel.space
        _send_points(said, symbols, channel.n_symbols, space.q, space.t, *space.tables, out)
    elif isinstance(channel, HadamardOracle):
        _send_halves(words, law.numbers, symbols, channel.n_symbols, out)
    else:
        _send_own(words, law.numbers, symbols, channel.n_symbols, out)
    return out


def member_reports(symbols: Integers, channel: OracleChannel, rng: Streams) -> Array:
    """Send a message of the symbol's own set, without privacy: what gains a symbol most.

    Parameters and what is returned are those of :func:`report_symbols`.
    """
    if isinstance(channel, UnaryOracle):
        return optimal_unary(symbols, replace(channel.channel, epsilon=math.inf), rng)
    own = np.where(symbols < 0, channel.n_symbols, symbols)
    if isinstance(channel, SubsetOracle):
        return _subsets(own, np.ones(len(own), dtype=np.bool_), channel, rng)
    if not isinstance(channel, SymbolOracle):
        raise TypeError(f"no reports are known for a channel of kind {channel.kind!r}")
    ranks = rng.substream("member").words(1)[:, 0] % np.uint64(channel.layers.chosen)
    return channel.members(own, ranks.astype(np.int64)).astype(np.uint32)


def fold_reports(reports: Array, channel: OracleChannel) -> Integers:
    """Count reports: (channel.size,) int64, what ``channel.debias`` takes."""
    if reports.ndim == 2:
        return count_bits(reports, channel.size)
    return np.bincount(reports, minlength=channel.size).astype(np.int64)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _send_own(words: Words, numbers: Any, symbols: Integers, null: int, out: Any) -> None:
    """Send symbols; a rank stands for the own one."""
    for i in range(words.shape[0]):
        said = layer_of(words[i], numbers)
        own = symbols[i] if symbols[i] >= 0 else null
        out[i] = own if said < 0 else said


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _send_halves(words: Words, numbers: Any, symbols: Integers, null: int, out: Any) -> None:
    """Send indices; a rank stands for a member of the own half."""
    for i in range(words.shape[0]):
        said = layer_of(words[i], numbers)
        own = symbols[i] if symbols[i] >= 0 else null
        member = half_member_of(own, ~said)
        out[i] = member if said < 0 else said


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _send_points(
    said: Integers,
    symbols: Integers,
    null: int,
    q: int,
    t: int,
    powers: Integers,
    first: Integers,
    inverses: Integers,
    out: Any,
) -> None:
    """Send points of a projective space; a rank stands for a point of the own set."""
    digits = np.empty(t, dtype=np.int64)
    for i in range(said.shape[0]):
        own = symbols[i] if symbols[i] >= 0 else null
        if said[i] < 0:
            out[i] = member_of(own, ~said[i], q, t, powers, first, inverses, digits)
        else:
            out[i] = said[i]


def _subsets(
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
    columns = min(channel.chosen // 2 + 1, _COLUMNS)
    while (done < need).any():
        words = rng.substream(f"others {block}").words(columns)
        _take_others(words, own, channel.n_symbols, need, done, bits)
        block += 1
    rows = np.flatnonzero(inside)
    bits[rows, own[rows] >> 6] |= np.uint64(1) << (own[rows] & 63).astype(np.uint64)
    return bits


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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
            found = np.int64(scaled >> uint64(32))
            symbol = found + (found >= own[u])
            if bits[u, symbol >> 6] >> uint64(symbol & 63) & uint64(1):
                symbol = j + (j >= own[u])
            bits[u, symbol >> 6] |= uint64(1) << uint64(symbol & 63)
            done[u] += 1
