"""Nanoseconds per user of clipping and summing counts, beside the plain NumPy form."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import clipped_counts
from fedhist.model.query import CHUNK
from fedhist.users.batch import Users
from fedhist.users.shards import Items
from simulations.benchmarks.measuring import Result, Row, in_turns, ratio, scaled
from simulations.populations import population


def measure(*, quick: bool = False) -> Result:
    """Clip 100 draws of 1,000 items to l2 norm 10, in turns, many users and few."""
    rows = []
    for n_users in (2_000,) if quick else (200_000, 1_000_000):
        items = shoppers(n_users, 1000, 100).counts
        tasks = {
            "ours": lambda items=items: clipped_counts(items, None, 1000, 10.0, 2, 0.0, CHUNK),
            "NumPy": lambda items=items: clip_and_sum(items, 1000, 10.0),
            "np.sum": lambda items=items: (items.item.sum(), items.count.sum()),
        }
        taken = in_turns(tasks, 2 if quick else 9)
        above_sum = ratio(taken["ours"], taken["np.sum"])
        what, each = f"clip and sum, {n_users:,} users", 1e9 / n_users
        rows += [
            Row(what, "ns", scaled(taken["ours"], each)),
            Row("  NumPy's form", "ns", scaled(taken["NumPy"], each)),
            Row("  NumPy's form / ours", "x", ratio(taken["NumPy"], taken["ours"])),
            Row("  ours / np.sum over the bytes", "x", above_sum, at_most=3.5),
        ]  # fmt: skip
    note = "One thread. NumPy's form agrees with the compiled loop to rounding."
    return Result("100 Zipf draws of 1,000 items a user", rows, (note,))


def shoppers(n_users: int, d: int, draws: int, seed: int = 1) -> Users:
    """Make users of ``draws`` Zipf(0.9) items each: of 1,000 items, 100 are some 71 distinct."""
    spec = {"d": d, "mean_items": draws, "exponent": 0.9, "tail": math.inf, "seed": seed}
    return population("zipf", n_users=n_users, **spec).load().users


def clip_and_sum(items: Items, d: int, clip: float) -> NDArray[np.float64]:
    """Scale every user's counts into the l2 ball and add them up: (d,)."""
    count = items.count.astype(np.float64)
    size = np.sqrt(np.add.reduceat(count**2, items.indptr[:-1]))
    weight = np.minimum(1.0, clip / size)
    total = np.bincount(items.item, np.repeat(weight, np.diff(items.indptr)) * count, d)
    return np.asarray(total, dtype=np.float64)
