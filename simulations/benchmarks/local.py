"""Local randomizers per user: votes of 64 bins, scalar reports, rotated coordinates, transforms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from clients.randomizers.scalars import add_votes, randomize, unary_votes
from clients.records.functionals import Rotated
from fedhist.base.hashing import GOLDEN, mix
from fedhist.channels.bits import BitTally
from fedhist.channels.catalogue import CHANNELS, UnaryChannel, scalar_channel
from fedhist.channels.hadamard import fwht
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams
from simulations.benchmarks import oracles, ranks
from simulations.benchmarks.measuring import (
    Result,
    Row,
    Task,
    beside_numpy,
    in_turns,
    ratio,
    scaled,
)

BINS = 64
EPSILON = 1.0
SIDE = 32
D = SIDE * SIDE
BATCH = 1 << 15
"""Users whose votes are asked for at a time."""
PLAIN_CHUNK = 2048
"""Users per chunk of NumPy's form; from 512 to 8,192 it takes the same time."""

ROWS = 10
"""Rows per transform: 80 kB, which the allocator keeps, so that nobody waits for memory pages."""
VECTORS = 200
"""Users per call of the rotation."""

Counts = NDArray[np.int64]


def measure(*, quick: bool = False) -> Result:
    """Measure everything in turns; a rival's numbers come from NumPy or from one numba loop."""
    n_users, repeats, turns = (2_000, 2, 1) if quick else (1_000_000, 200, 9)
    rows = (
        *vote_rows(n_users, turns),
        *report_rows(n_users, turns),
        *rotation_rows(max(1, repeats // 10), turns),
        *transform_rows(repeats, turns),
        *oracles.report_rows(n_users, turns),
        *oracles.decoding_rows(turns, quick=quick),
        *ranks.report_rows(n_users, turns),
    )
    notes = (
        "Votes: from bin numbers to summed votes, the users' keys included. 'Summed as drawn' is "
        "what a node does that folds; 'reports, then counts' also stores each user's packed "
        f"report. Both draw the same bits, exact to 2^-64, in batches of {BATCH:,} users.",
        "Fused numba: one loop over users and bins that draws, compares and adds; from the same "
        "kind of per-user keys by 64-bit integers or doubles, or from one generator for everybody "
        "and bytes, with the probability rounded to 1/256.",
        "NumPy: float64 uniforms (SFC64) below the flip probability, the voted bit inverted, "
        f"summed over users, in chunks of {PLAIN_CHUNK:,}.",
        f"Rotated coordinate: one sample of d = {D:,} per user, checked, scaled onto the ball and "
        "one coordinate of its rotation; against fwht of all users and the choice of one entry, "
        "without the checks.",
        f"Transforms: {ROWS} rows at a time, and one; ns per row.",
        *oracles.notes(),
        *ranks.notes(),
    )
    return Result("local", f"{n_users:,} users, epsilon = {EPSILON:g}, one thread", rows, notes)


def vote_rows(n_users: int, turns: int) -> list[Row]:
    """Time votes: ours, NumPy's form, and the fused loops."""
    channel = UnaryChannel(EPSILON)
    ids = np.arange(n_users, dtype=np.uint64)
    streams = SeededStreams(ids, 1, "bench")
    generator = np.random.Generator(np.random.SFC64(1))
    position = generator.integers(0, BINS, n_users)
    one = np.zeros(n_users, dtype=np.int64)
    many = generator.integers(0, D, n_users)
    parts = [slice(first, first + BATCH) for first in range(0, n_users, BATCH)]
    batches = [(s, SeededStreams(ids[s], 1, "bench")) for s in parts]

    def summed(fold: Counts, n_folds: int) -> Counts:
        tally = BitTally(BINS, n_folds)
        for s, rng in batches:
            add_votes(tally, position[s], channel, fold[s], rng)
        return tally.totals()

    def reports() -> Counts:
        tally = BitTally(BINS, 1)
        for s, rng in batches:
            tally.add(unary_votes(position[s], BINS, channel, rng))
        return tally.totals()

    threshold = np.uint64(channel.flip_threshold)
    byte = np.uint8(round(channel.flip * 256))
    forms: dict[str, tuple[str, Task]] = {
        "summed": ("summed as drawn", lambda: summed(one, 1)),
        "folds": (f"summed in {D:,} folds", lambda: summed(many, D)),
        "reports": ("reports, then counts", reports),
        "NumPy": ("NumPy float64", lambda: plain_votes(position, channel.flip, generator)),
        "integers": (
            "fused numba, integers",
            lambda: fused_integers(streams.keys, position, threshold),
        ),
        "doubles": (
            "fused numba, doubles",
            lambda: fused_doubles(streams.keys, position, channel.flip),
        ),
        "bytes": ("fused numba, bytes", lambda: fused_bytes(np.uint64(1), position, byte)),
    }
    found = timed({name: task for name, (_, task) in forms.items()}, turns)
    rows = [
        Row(f"unary votes, {words}", "ns", scaled(found[name], 1e9 / n_users))
        for name, (words, _) in forms.items()
    ]
    for ours in ("summed", "reports"):
        rows.append(Row(f"NumPy / {ours}", "x", ratio(found["NumPy"], found[ours]), at_least=3.0))
        for rival in ("integers", "doubles", "bytes"):
            spread = ratio(found[ours], found[rival])
            rows.append(Row(f"{ours} / fused numba, {rival}", "x", spread, at_most=2.0))
    return rows


def report_rows(n_users: int, turns: int) -> list[Row]:
    """Time one scalar report per user through each channel."""
    streams = SeededStreams(np.arange(n_users, dtype=np.uint64), 1, "bench")
    u = np.random.default_rng(1).uniform(-1, 1, n_users)

    def reports(kind: str) -> Task:
        channel = scalar_channel(kind, EPSILON)
        return lambda: randomize(u, channel, streams)

    found = timed({kind: reports(kind) for kind in CHANNELS}, turns)
    return [Row(f"{kind} reports", "ns", scaled(t, 1e9 / n_users)) for kind, t in found.items()]


def rotation_rows(repeats: int, turns: int) -> list[Row]:
    """Time one rotated coordinate per user against whole transforms."""
    generator = np.random.default_rng(1)
    values = generator.normal(size=(VECTORS, D)) / math.sqrt(D)
    ids = np.arange(VECTORS, dtype=np.uint64)
    users = Users.from_samples(ids, np.arange(VECTORS + 1), values)
    fold = generator.integers(0, D, VECTORS)
    functional = Rotated(D, 1.0, sign_salt=1)
    signs = functional.signs / math.sqrt(D)
    each = np.arange(VECTORS)
    found = timed(
        {
            "one": lambda: repeat(lambda: functional.scalars(users, fold), repeats),
            "all": lambda: repeat(lambda: fwht(values * signs)[each, fold], repeats),
        },
        turns,
    )
    unit = 1e9 / (VECTORS * repeats)
    times = ratio(found["all"], found["one"])
    return [
        Row(f"rotated coordinate, d = {D:,}", "ns", scaled(found["one"], unit)),
        Row("whole transform", "ns", scaled(found["all"], unit)),
        Row("whole transform / rotated coordinate", "x", times, at_least=1.0),
    ]


def transform_rows(repeats: int, turns: int) -> list[Row]:
    """Time the Hadamard transform of 1,024 floats against two 32 x 32 products, rows and one."""
    h = fwht(np.eye(SIDE))
    rows: list[Row] = []
    for n, times in ((ROWS, repeats), (1, ROWS * repeats)):
        x = np.random.default_rng(1).normal(size=(n, D))
        rows += beside_numpy(
            f"Hadamard of 1,024, {n} at a time",
            n * times,
            partial(repeat, partial(fwht, x), times),
            partial(repeat, partial(two_products, x, h), times),
            turns,
            warm=min(1, turns - 1),
            ours="ours",
            at_least=2.0,
        )
    return rows


def two_products(rows: NDArray[np.float64], h: NDArray[np.float64]) -> NDArray[np.float64]:
    """Transform rows of 32 x 32 numbers by two dense products, one per side."""
    square = rows.reshape(-1, SIDE, SIDE)
    return (h @ square @ h).reshape(len(rows), -1)


def timed(tasks: Mapping[str, Task], turns: int) -> dict[str, list[float]]:
    """Time tasks in turns; a single turn is a test of the benchmark, which warms nothing up."""
    return in_turns(tasks, turns, warm=min(1, turns - 1))


def repeat(task: Task, times: int) -> None:
    """Run a short task many times."""
    for _ in range(times):
        task()


def plain_votes(position: Counts, flip: float, generator: np.random.Generator) -> Counts:
    """Sum the textbook's votes: one-hot rows, every bit inverted with a probability: (64,)."""
    total = np.zeros(BINS, dtype=np.int64)
    uniform = np.empty((PLAIN_CHUNK, BINS))
    each = np.arange(PLAIN_CHUNK)
    for first in range(0, len(position), PLAIN_CHUNK):
        where = position[first : first + PLAIN_CHUNK]
        part = uniform[: len(where)]
        generator.random(out=part)
        votes = part < flip
        votes[each[: len(where)], where] ^= True  # the one-hot row added modulo 2
        total += np.count_nonzero(votes, axis=0)
    return total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fused_integers(keys: NDArray[np.uint64], position: Counts, threshold: Any) -> Counts:
    """Draw a 64-bit word per user and bin and add up at once, as one writes it in numba."""
    total = np.zeros(BINS, dtype=np.int64)
    for u in range(keys.shape[0]):
        for b in range(BINS):
            word = mix(keys[u] + uint64(b + 1) * uint64(GOLDEN))
            total[b] += np.int64(word < threshold) ^ np.int64(b == position[u])
    return total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fused_doubles(keys: NDArray[np.uint64], position: Counts, flip: float) -> Counts:
    """Do the same with doubles of 53 bits."""
    total = np.zeros(BINS, dtype=np.int64)
    for u in range(keys.shape[0]):
        for b in range(BINS):
            word = mix(keys[u] + uint64(b + 1) * uint64(GOLDEN))
            x = float(word >> uint64(11)) * 2.0**-53
            total[b] += np.int64(x < flip) ^ np.int64(b == position[u])
    return total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fused_bytes(state: Any, position: Counts, threshold: np.uint8) -> Counts:
    """Do the same from one generator and a byte per bin: the least work, not the exact law."""
    total = np.zeros(BINS, dtype=np.int64)
    words = np.empty(BINS // 8, dtype=np.uint64)
    drawn = words.view(np.uint8)
    for u in range(position.shape[0]):
        for w in range(BINS // 8):
            state += uint64(GOLDEN)
            words[w] = mix(state)
        for b in range(BINS):
            total[b] += np.int64(drawn[b] < threshold)
        true = position[u]
        total[true] += 1 - 2 * np.int64(drawn[true] < threshold)
    return total
