"""Random clipping of a million users against the best NumPy form of it that we know."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from clients.bounding.sampling import random_clip
from fedhist.model.query import CHUNK
from fedhist.users.batch import Users
from fedhist.users.columns import Items
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams
from simulations.benchmarks.measuring import Result, Row, Task, in_turns, ratio, scaled

TOKENS = 100
CLIP = 20
D = 1000
BLOCKS = (1024, 4096)
"""Users per block of the NumPy form: its rows should stay in the cache."""

MEAN_COUNT = 5


def measure(*, quick: bool = False) -> Result:
    """Measure in turns: compiled, NumPy's forms; then records of general counts on their own."""
    n_users = 5_000 if quick else 1_000_000
    turns = 1 if quick else 5
    ones = one_of_each(n_users)
    table = ones.counts.item.reshape(n_users, TOKENS)
    tasks: dict[str, Task] = {"compiled": lambda: ours(ones), "keys": lambda: partition(table)}
    tasks |= {f"{b}": partial(fisher_yates, table, b) for b in BLOCKS}
    found = in_turns(tasks, turns)
    best = min(BLOCKS, key=lambda b: float(np.median(found[f"{b}"])))
    per_user = 1e9 / n_users
    rows = [
        Row("all counts 1", "ns/user", scaled(found["compiled"], per_user)),
        Row("all counts 1, NumPy: Fisher-Yates", "ns/user", scaled(found[f"{best}"], per_user)),
        Row("all counts 1, NumPy: partition", "ns/user", scaled(found["keys"], per_user)),
        Row("NumPy's better one / compiled", "x", ratio(found[f"{best}"], found["compiled"]), 1.1),
    ]
    n_general = max(1, n_users // 5)
    general = some_of_each(n_general)
    taken = in_turns({"general": lambda: ours(general)}, turns)["general"]
    what = f"{TOKENS} items of {MEAN_COUNT} on average"
    rows.append(Row(what, "ns/user", scaled(taken, 1e9 / n_general)))
    notes = (
        f"From every user's record to the {CLIP} tokens it keeps, one thread; the compiled form "
        "draws from the users' streams and writes each row in the order of the record.",
        f"NumPy: {CLIP} steps of Fisher-Yates over blocks of {best} users (the better of "
        f"{BLOCKS[0]} and {BLOCKS[1]}), or a partition of random keys; both need all counts to "
        "be 1 and all users to have as many items.",
    )
    setting = f"{n_users:,} users of {TOKENS} tokens, to C = {CLIP}"
    return Result("randclip", setting, tuple(rows), notes)


def ours(users: Users) -> int:
    """Sample every chunk's rows; returns the number of entries."""
    total = 0
    for chunk in users.blocks(CHUNK):
        words = SeededStreams(chunk.ids, 1, "bench").words(1)[:, 0]
        total += len(random_clip(chunk.counts, CLIP, words)[1])
    return total


def one_of_each(n_users: int) -> Users:
    """Make users with 100 distinct items out of 1,000, one token each."""
    rng = np.random.default_rng(1)
    some = np.arange(D, dtype=np.uint32)
    pool = np.sort([rng.permutation(some)[:TOKENS] for _ in range(1024)], axis=1)
    item = pool[np.arange(n_users) % len(pool)].reshape(-1)
    return _users(n_users, item, np.ones(len(item), dtype=np.uint32))


def some_of_each(n_users: int) -> Users:
    """Make users with the same items and counts of 5 on average (geometric)."""
    base = one_of_each(n_users)
    count = np.random.default_rng(2).geometric(1 / MEAN_COUNT, len(base.counts.item))
    return _users(n_users, base.counts.item, count.astype(np.uint32))


def _users(n_users: int, item: NDArray[np.uint32], count: NDArray[np.uint32]) -> Users:
    keys = Keys.of(f"{j:03}" for j in range(D))
    indptr = np.arange(n_users + 1, dtype=np.int64) * TOKENS
    return Users(np.arange(n_users, dtype=np.uint64), items=Items(keys, indptr, item, count))


# -- NumPy's forms ---------------------------------------------------------------------------------


def fisher_yates(table: NDArray[np.uint32], block: int) -> NDArray[np.uint32]:
    """Swap the first 20 places of every row with random later ones: (n, 20)."""
    generator = np.random.default_rng(1)
    n, m = table.shape
    out = np.empty((n, CLIP), dtype=np.uint32)
    for a in range(0, n, block):
        rows = table[a : a + block].flatten()  # its own copy: places are swapped in it
        first = np.arange(0, len(rows), m)
        u = generator.random((CLIP, len(first)))
        for t in range(CLIP):
            at = (u[t] * (m - t)).astype(np.int64)
            at += first
            at += t
            out[a : a + block, t] = rows[at]
            rows[at] = rows[t::m]
    return out


def partition(table: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Take the 20 smallest of random keys that carry their place in the last bits: (n, 20)."""
    generator = np.random.default_rng(1)
    n, m = table.shape
    out = np.empty((n, CLIP), dtype=np.uint32)
    for a in range(0, n, CHUNK):
        rows = table[a : a + CHUNK]
        keys = generator.integers(0, 1 << 32, rows.shape, dtype=np.uint32)
        keys = (keys & np.uint32(0xFFFFFF80)) | np.arange(m, dtype=np.uint32)
        keys.partition(CLIP, axis=1)
        chosen = (keys[:, :CLIP] & np.uint32(127)).astype(np.int64)
        out[a : a + CHUNK] = np.take_along_axis(rows, chosen, axis=1)
    return out
