"""Frequency oracles per user, beside the same integer law in NumPy; and how long decoding takes."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from clients.randomizers.oracle_reports import report_symbols
from fedhist.base.hashing import GOLDEN, counter_words, digest64, mix64
from fedhist.channels.layers import Layers
from fedhist.channels.oracles import (
    MOST_DECODED,
    HadamardOracle,
    ProjectiveOracle,
    SymbolOracle,
    oracle_channel,
)
from fedhist.users.streams import SeededStreams
from simulations.benchmarks.measuring import Row, Task, in_turns, ratio, scaled

EPSILON = 1.0
SYMBOLS = 10_000
BATCH = 1 << 15
"""Users whose reports are asked for at a time."""
MOST = {"krr": 100.0, "hadamard": 100.0, "projective": 300.0}
"""Nanoseconds that a report may cost its user, the private stream included."""
MOST_SECONDS = 5.0

Counts = NDArray[np.int64]


def report_rows(n_users: int, turns: int) -> list[Row]:
    """Time a report of one of 10,000 symbols through each channel, ours and NumPy's."""
    generator = np.random.Generator(np.random.SFC64(1))
    symbols = generator.integers(0, SYMBOLS, n_users)
    parts = [slice(first, first + BATCH) for first in range(0, n_users, BATCH)]
    ids = np.arange(n_users, dtype=np.uint64)
    batches = [(s, SeededStreams(ids[s], 1, "bench")) for s in parts]
    seed = layers_seed(1, "bench")

    # messages are handed on, not kept: what keeping costs is the allocator's, and alike for both
    def ours(channel: SymbolOracle) -> Task:
        return lambda: deque((report_symbols(symbols[s], channel, r) for s, r in batches), 0)

    def plain(channel: SymbolOracle) -> Task:
        return lambda: deque((plain_reports(symbols[s], channel, ids[s], seed) for s in parts), 0)

    tasks: dict[str, Task] = {}
    for kind in MOST:
        tasks[kind] = ours(symbol_channel(kind, SYMBOLS))
        tasks[f"{kind} in NumPy"] = plain(symbol_channel(kind, SYMBOLS))
    found = in_turns(tasks, turns, warm=min(1, turns - 1))
    rows = []
    for kind, most in MOST.items():
        mine, numpy = found[kind], found[f"{kind} in NumPy"]
        what = f"{kind} reports, k = {SYMBOLS:,}"
        rows.append(Row(what, "ns", scaled(mine, 1e9 / n_users), at_most=most))
        rows.append(Row(f"NumPy / {what}", "x", ratio(numpy, mine), at_least=3.0))
    return rows


def decoding_rows(turns: int, *, quick: bool) -> list[Row]:
    """Time the shares of 2^22 symbols from the counts of a million reports."""
    n_symbols = SYMBOLS if quick else MOST_DECODED
    rows = []
    for kind, epsilon in (("hadamard", 1.0), ("projective", 1.0), ("projective", 4.0)):
        channel = symbol_channel(kind, n_symbols, epsilon)
        drawn = np.random.default_rng(1).integers(0, channel.size, 1_000_000)
        counts = np.bincount(drawn, minlength=channel.size).astype(np.int64)

        def task(channel: SymbolOracle = channel, counts: Counts = counts) -> object:
            return channel.debias(counts, 1_000_000)

        name = f"decoding {n_symbols:,} symbols, {kind}, epsilon = {epsilon:g}"
        found = in_turns({name: task}, min(turns, 3), warm=min(1, turns - 1))
        rows.append(Row(name, "s", scaled(found[name], 1.0), at_most=MOST_SECONDS))
    return rows


def symbol_channel(kind: str, n_symbols: int, epsilon: float = EPSILON) -> SymbolOracle:
    """Return a channel whose reports are symbols."""
    channel = oracle_channel(kind, epsilon, n_symbols)
    if not isinstance(channel, SymbolOracle):
        raise TypeError(f"{kind} reports are no symbols")
    return channel


def layers_seed(seed: int, context: str) -> int:
    """Return what the users' words for a report are hashed with, see ``SeededStreams``."""
    return digest64(digest64("fedhist.streams", seed, context), "layers")


def plain_reports(
    symbols: Counts, channel: SymbolOracle, ids: NDArray[np.uint64], seed: int
) -> NDArray[np.uint32]:
    """Report symbols from the same private streams and by the same law, in NumPy: (n,) uint32."""
    keys = mix64(mix64(ids + np.uint64(GOLDEN)) ^ np.uint64(seed))
    drawn = plain_layers(counter_words(keys, 1)[:, 0], channel.layers)
    rows = np.flatnonzero(drawn < 0)
    own, rank = symbols[rows], -1 - drawn[rows]
    if isinstance(channel, ProjectiveOracle):
        drawn[rows] = plain_members(own, rank, channel.space.q, channel.space.t)
    elif isinstance(channel, HadamardOracle):
        drawn[rows] = plain_halves(own, rank)
    else:
        drawn[rows] = own
    return drawn.astype(np.uint32)


def plain_layers(words: NDArray[np.uint64], law: Layers) -> Counts:
    """Turn words into symbols and ranks; see ``draw_layers``."""
    floor = np.uint64(law.size * law.lower)
    low = (words // np.uint64(law.lower)).astype(np.int64)
    rank = ((words - floor) // np.uint64(law.upper)).astype(np.int64)
    return np.where(words < floor, low, np.where(rank < law.chosen, -1 - rank, law.size))


def plain_halves(symbols: Counts, ranks: Counts) -> Counts:
    """Name members of Hadamard sets; see ``half_member_of``."""
    row = symbols + 1
    lowest = row & -row
    low = ranks & (lowest - 1)
    rest = ((ranks - low) << 1) | low
    return np.asarray(rest | (lowest * (np.bitwise_count(rest & row) & 1)), dtype=np.int64)


def plain_members(points: Counts, ranks: Counts, q: int, t: int) -> Counts:
    """Name members of projective sets, place by place; see ``ProjectiveSpace.members``."""
    powers = q ** np.arange(t + 1)
    first = (powers - 1) // (q - 1)
    inverses = np.array([0, *(pow(a, -1, q) for a in range(1, q))])
    pivot = np.searchsorted(first, points, side="right") - 1
    x = points - first[pivot]
    top = np.searchsorted(first, ranks, side="right") - 1
    v = powers[top] + ranks - first[top]
    high, low = np.divmod(v, powers[pivot])
    digits = low[:, None] // powers[:t] % q
    product = (digits * (x[:, None] // powers[:t] % q)).sum(axis=1)
    own = -product % q
    stays = (high > 0) | (own == 0)
    scaled_low = (digits * inverses[own][:, None] % q * (powers[:t] < powers[pivot][:, None])) @ (
        powers[:t]
    )
    number = np.where(
        stays, high * powers[pivot + 1] + own * powers[pivot] + low, powers[pivot] + scaled_low
    )
    lead = np.where(stays, np.where(high > 0, top + 1, top), pivot)
    return np.asarray(number - powers[lead] + first[lead])


def notes() -> tuple[str, ...]:
    """Say how it was counted."""
    return (
        f"Oracles: one of {SYMBOLS:,} symbols a user, epsilon = {EPSILON:g}, batches of {BATCH:,}; "
        "from symbols to messages, the users' keys and words included. NumPy's forms are the same "
        "functions of the same streams, array by array: the messages are equal. "
        f"K = {1 << math.ceil(math.log2(SYMBOLS + 2)):,} for Hadamard response.",
    )
