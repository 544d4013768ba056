"""Unary votes over 64 bins: drawn and summed as a node does, beside NumPy's and numba's forms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from clients.randomizers.scalars import add_votes
from fedhist.base.hashing import GOLDEN, mix
from fedhist.base.lazy import kernel
from fedhist.channels.bits import BitTally, UnaryChannel
from fedhist.users.streams import SeededStreams
from simulations.benchmarks.measuring import Result, Row, in_turns, ratio, scaled

BINS = 64
BATCH = 1 << 15
"""Users whose votes are asked for at a time."""

Counts = NDArray[np.int64]


def measure(*, quick: bool = False) -> Result:
    """Time all forms in turns, from bin numbers to summed votes."""
    n_users, turns = (2_000, 1) if quick else (1_000_000, 9)
    channel = UnaryChannel(1.0)
    generator = np.random.Generator(np.random.SFC64(1))
    position = generator.integers(0, BINS, n_users)
    keys = SeededStreams(np.arange(n_users, dtype=np.uint64), 1, "bench").keys
    tasks = {
        "ours": lambda: summed_votes(position, channel),
        "NumPy": lambda: plain_votes(position, channel.flip, generator),
        "numba": lambda: fused_votes(keys, position, np.uint64(channel.flip_threshold)),
    }
    taken = in_turns(tasks, turns)
    rows = [Row(f"votes, {name}", "ns", scaled(taken[name], 1e9 / n_users)) for name in tasks]
    rows += [
        Row("NumPy / ours", "x", ratio(taken["NumPy"], taken["ours"]), at_least=3.0),
        Row("ours / numba", "x", ratio(taken["ours"], taken["numba"]), at_most=2.0),
    ]
    notes = (
        "Ours: the users' keys and bits exact to 2^-64. NumPy: float64 uniforms below the flip "
        "probability. numba: one loop that draws a word per user and bin, compares and adds.",
    )
    return Result(f"{n_users:,} users, epsilon = 1, one thread", rows, notes)


def summed_votes(position: Counts, channel: UnaryChannel) -> Counts:
    """Draw and sum as a node does, in batches: (64,)."""
    tally, ids = BitTally(BINS, 1), np.arange(len(position), dtype=np.uint64)
    for first in range(0, len(position), BATCH):
        s = slice(first, first + BATCH)
        fold = np.zeros(len(ids[s]), dtype=np.int64)
        add_votes(tally, position[s], channel, fold, SeededStreams(ids[s], 1, "bench"))
    total: Counts = tally.totals()[0]
    return total


def plain_votes(position: Counts, flip: float, generator: np.random.Generator) -> Counts:
    """Sum the textbook's votes: one-hot rows, every bit inverted with a probability: (64,)."""
    total = np.zeros(BINS, dtype=np.int64)
    for first in range(0, len(position), 2048):  # from 512 to 8,192 it takes the same time
        where = position[first : first + 2048]
        votes = generator.random((len(where), BINS)) < flip
        votes[np.arange(len(where)), where] ^= True  # the one-hot row added modulo 2
        total += np.count_nonzero(votes, axis=0)
    return total


@kernel()
def fused_votes(keys: NDArray[np.uint64], position: Counts, threshold: Any) -> Counts:
    """Draw a 64-bit word per user and bin and add up at once, as one writes it in numba."""
    total = np.zeros(BINS, dtype=np.int64)
    for u in range(keys.shape[0]):
        for b in range(BINS):
            word = mix(keys[u] + uint64(b + 1) * uint64(GOLDEN))
            total[b] += np.int64(word < threshold) ^ np.int64(b == position[u])
    return total
