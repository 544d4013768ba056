"""Users for benchmarks, and the nanoseconds of CPU that one takes to be made, by kind."""

from __future__ import annotations

import math
import time
from typing import Any

from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK
from simulations.benchmarks.measuring import Result, Row, scaled
from simulations.populations import population

ZIPF: dict[str, Any] = {"kind": "zipf", "mean_items": 50, "tail": math.inf}
ONE: dict[str, Any] = {"samples_per_user": 1}
MADE: tuple[tuple[str, dict[str, Any], float | None], ...] = (
    ("50 Zipf draws of 1,000 items", {**ZIPF, "d": 1000}, 300.0),
    ("50 Zipf draws of 10,000 items", {**ZIPF, "d": 10_000}, None),
    ("50 Zipf draws of 100,000 items", {**ZIPF, "d": 100_000}, 700.0),
    ("50 draws of own Dirichlet laws", {**ZIPF, "d": 1000, "users": "dirichlet"}, None),
    ("50 different of 1,000 items", {**ZIPF, "d": 1000, "distinct": True}, None),
    ("100 draws of paper-iid", {"kind": "paper-iid"}, None),
    ("one uniform sample", {"kind": "uniform", **ONE}, 10.0),
    ("one two-point sample", {"kind": "two-point", **ONE}, 10.0),
    ("one Gaussian sample", {"kind": "gaussian", **ONE}, 10.0),
    ("one sample of a density", {"kind": "density", **ONE}, None),
    ("one count of paper-poisson", {"kind": "paper-poisson"}, None),
)
"""What is made, and the target in nanoseconds."""


def measure(*, quick: bool = False) -> Result:
    """Make blocks of each kind in turns; ids and offsets are made too."""
    turns, n_blocks = (2, 1) if quick else (7, 4)
    n_users = 2_000 if quick else n_blocks * BLOCK
    specs = [dict(words) for _, words, _ in MADE]
    shards = [population(w.pop("kind"), n_users=n_users, **w).plan().users for w in specs]
    found: list[list[float]] = [[] for _ in MADE]
    for turn in range(1 + turns):  # the first loads compiled loops and tables
        for shard, taken in zip(shards, found, strict=True):
            for _ in shard.slice(0, min(n_users, BLOCK)).blocks():
                pass  # memory that the kind before gave back to the system
            started = time.process_time()
            for _ in shard.blocks():
                pass
            if turn:
                taken.append(time.process_time() - started)
    rows = [
        Row(what, "ns", scaled(taken, 1e9 / n_users), at_most=target)
        for (what, _, target), taken in zip(MADE, found, strict=True)
    ]
    notes = ("CPU time of one thread per user, made block by block and dropped.",)
    return Result("populations", f"{n_users:,} users, one thread", tuple(rows), notes)


def shoppers(n_users: int, d: int, draws: int, seed: int = 1) -> Users:
    """Make users of ``draws`` Zipf(0.9) items each: of 1,000 items, 100 are some 71 distinct."""
    spec = {"d": d, "mean_items": draws, "exponent": 0.9, "tail": math.inf, "seed": seed}
    return population("zipf", n_users=n_users, **spec).load().users


def samplers(n_users: int, seed: int = 1) -> Users:
    """Make users with one real sample each, uniform on [0, 1]."""
    unit = {"low": 0.0, "high": 1.0, "mean": 0.5, "spread": 0.5}
    return population("uniform", n_users=n_users, **unit, **ONE, seed=seed).load().users
