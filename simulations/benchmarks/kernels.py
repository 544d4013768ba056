"""Nanoseconds per user of the compiled loops, beside the plain NumPy form of the same thing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import clipped_counts
from clients.randomizers.scalars import randomize, unary_votes
from fedhist.channels.bits import count_bits
from fedhist.channels.catalogue import LaplaceChannel, UnaryChannel
from fedhist.model.query import CHUNK
from fedhist.users.columns import Items
from fedhist.users.streams import SeededStreams
from simulations.benchmarks.measuring import Result, Row, Task, beside_numpy
from simulations.benchmarks.populations import shoppers

BINS = 64
D = 1000
DRAWS = 100
CLIP = 10.0


def measure(*, quick: bool = False) -> Result:
    """Measure each kernel and its NumPy form in turns."""
    n_users = 2_000 if quick else 200_000
    turns = 2 if quick else 9
    rows: list[Row] = []
    for what, task in pairs(n_users).items():
        rows += beside_numpy(what, *task, turns)
    notes = (
        "Per user; votes and transforms are in the benchmark local. NumPy's forms are the obvious "
        "ones: they agree with the compiled loops in distribution or to rounding, and draw from "
        "NumPy's generator where ours is the users' streams.",
    )
    return Result("kernels", f"{n_users:,} users, one thread", tuple(rows), notes)


def pairs(n_users: int) -> dict[str, tuple[int, Task, Task]]:
    """Return, by name: how many are processed, the compiled form, the NumPy form."""
    items = shoppers(n_users, D, DRAWS).counts
    ids = np.arange(n_users, dtype=np.uint64)
    rng = SeededStreams(ids, 1, "bench")
    generator = np.random.default_rng(1)
    scalar = LaplaceChannel(1.0)
    votes = unary_votes(generator.integers(0, BINS, n_users), BINS, UnaryChannel(1.0), rng)
    u = generator.uniform(-1, 1, n_users)
    return {
        "clip and sum": (
            n_users,
            lambda: clipped_counts(items, None, D, CLIP, 2, 0.0, CHUNK),
            lambda: clip_and_sum(items, CLIP),
        ),
        "count bits": (n_users, lambda: count_bits(votes, BINS), lambda: sum_unpacked(votes)),
        "Laplace reports": (
            n_users,
            lambda: randomize(u, scalar, rng),
            lambda: u + generator.laplace(0.0, 2.0 / scalar.epsilon, n_users),
        ),
    }


def clip_and_sum(items: Items, clip: float) -> NDArray[np.float64]:
    """Scale every user's counts into the l2 ball and add them up: (d,)."""
    count = items.count.astype(np.float64)
    size = np.sqrt(np.add.reduceat(count**2, items.indptr[:-1]))
    weight = np.minimum(1.0, clip / size)
    total = np.bincount(items.item, np.repeat(weight, np.diff(items.indptr)) * count, D)
    return np.asarray(total, dtype=np.float64)


def sum_unpacked(votes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Unpack every bit and add: (64,)."""
    bits = np.unpackbits(votes.view(np.uint8).reshape(len(votes), -1), axis=1, bitorder="little")
    return np.asarray(bits.sum(axis=0, dtype=np.int64))
