"""Nanoseconds per user of hashed votes, beside the plain NumPy forms of the same thing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from clients.randomizers.scalars import randomize
from fedhist.channels.catalogue import OneBitChannel
from fedhist.channels.hadamard import hadamard_entry
from fedhist.channels.sign_hashes import HadamardSigns, RademacherSigns, SignHash
from fedhist.model.query import CHUNK
from fedhist.users.streams import SeededStreams
from simulations.benchmarks.measuring import Result, Row, Task, beside_numpy

D = 1024
VOTES = 4
TARGET = 3.0


def measure(*, quick: bool = False) -> Result:
    """Measure the compiled and the NumPy form of each hash in turns."""
    n_users, turns = (2_000, 2) if quick else (1_000_000, 5)
    n_decoded = n_users // 50  # the O(m d) form is slow
    signs, rows = votes(n_users), decodings(n_decoded)
    targets = {"hashed votes, 1,024 signs": TARGET}
    table: list[Row] = []
    for what, task in (signs | rows).items():
        table += beside_numpy(what, *task, turns, at_least=targets.get(what))
    notes = (
        f"Per user with {VOTES} votes: the signs from the user's id, their sum over the votes, the "
        "report by randomized response, and the server's scores, which regenerate the signs. "
        "Which coordinates a user votes for is not counted: it is a walk over the record.",
        "NumPy's form packs 64 signs to a word as well, makes each user's words once for both "
        "halves, and draws its randomized responses from NumPy's generator.",
        f"Hadamard decoding: {n_decoded:,} reports, O(m + d log d) against O(m d).",
    )
    return Result("hashed", f"{n_users:,} users, d = {D:,}, one thread", tuple(table), notes)


def votes(n_users: int) -> dict[str, tuple[int, Task, Task]]:
    """Return, by name: how many are processed, the compiled form, the NumPy form."""
    ids = np.arange(n_users, dtype=np.uint64)
    generator = np.random.default_rng(1)
    columns = generator.integers(0, D, (n_users, VOTES))
    channel = OneBitChannel(1.0)
    hashes: dict[str, SignHash] = {
        "hashed votes, 1,024 signs": RademacherSigns(D, 1),
        "hashed votes, Hadamard rows": HadamardSigns(D, 1),
    }
    plain = partial(packed_scores, RademacherSigns(D, 1), ids, columns, channel.flip, generator)
    return {
        what: (n_users, partial(scores, signs, ids, columns, channel), plain)
        for what, signs in hashes.items()
    }


def scores(
    signs: SignHash, ids: NDArray[np.uint64], columns: NDArray[np.int64], channel: OneBitChannel
) -> NDArray[np.float64]:
    """Hash the votes, randomize, fold, and decode once: (d,)."""
    total = np.zeros(signs.shape, dtype=np.int64)
    for part in chunks(len(ids)):
        own = ids[part]
        indptr = np.arange(len(own) + 1) * VOTES
        sums = signs.vote_sums(own, indptr, columns[part].reshape(-1))
        z = randomize(np.sign(sums).astype(np.float64), channel, SeededStreams(own, 1, "bench"))
        total += signs.fold(own, z)
    return signs.scores(total)


def packed_scores(
    signs: RademacherSigns,
    ids: NDArray[np.uint64],
    columns: NDArray[np.int64],
    flip: float,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Do the same in NumPy: packed words, a gather for the votes, unpacked bits for the scores."""
    ones = np.zeros(D, dtype=np.int64)
    for part in chunks(len(ids)):
        words = signs.words(ids[part])
        own = columns[part]
        bits = np.take_along_axis(words, own >> 6, axis=1) >> (own & 63).astype(np.uint64)
        sums = VOTES - 2 * (bits & np.uint64(1)).sum(axis=1, dtype=np.int64)
        negative = np.where(sums == 0, generator.random(len(sums)) < 0.5, sums < 0)
        negative ^= generator.random(len(sums)) < flip
        words ^= np.where(negative, np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0))[:, None]
        unpacked = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        ones += unpacked.sum(axis=0, dtype=np.int64)
    return len(ids) - 2 * ones


def decodings(n_users: int) -> dict[str, tuple[int, Task, Task]]:
    """Return the two ways from reports with Hadamard signs to scores."""
    ids = np.arange(n_users, dtype=np.uint64)
    z = np.random.default_rng(2).choice(np.array([-1, 1], dtype=np.int8), n_users)
    signs = HadamardSigns(D, 1)
    return {
        "Hadamard decoding": (
            n_users,
            lambda: signs.scores(signs.fold(ids, z)),
            lambda: one_by_one(signs, ids, z),
        )
    }


def one_by_one(
    signs: HadamardSigns, ids: NDArray[np.uint64], z: NDArray[np.int8]
) -> NDArray[np.int64]:
    """Add every user's d signs times its report, without a transform: (d,)."""
    total = np.zeros(signs.dimension, dtype=np.int64)
    for part in chunks(len(ids)):
        group, row = signs.rows(ids[part])
        column = signs.permutations[group, : signs.dimension]
        total += z[part].astype(np.int64) @ hadamard_entry(row[:, None], column)
    return total


def chunks(n_users: int) -> Iterator[slice]:
    """Walk the users in the batches of a node."""
    return (slice(first, first + CHUNK) for first in range(0, n_users, CHUNK))
