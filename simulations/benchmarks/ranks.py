"""Vectors of a ball reported by ranks, per user, beside the same points and law in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clients.randomizers.sphere import ends_of, rank_symbols
from fedhist.base.arrays import Floats, Words
from fedhist.channels.layers import draw_layers
from fedhist.channels.rank_unit import RankUnit, public_points, sum_points
from fedhist.users.streams import SeededStreams
from simulations.benchmarks.measuring import Row, in_turns, ratio, scaled

EPSILON = 1.0
DIMENSION = 64
SALT = 1
SHARE = 200
"""One user of so many that the other kernels have: a report takes some microseconds."""
CHUNK = 16
"""Users whose points NumPy holds at a time: 2 MB."""
MOST = 30.0
"""Microseconds that a report may cost its user, the private stream included."""


def report_rows(n_users: int, turns: int) -> list[Row]:
    """Time a report of a vector of 64 coordinates among 256 points, and the server's half."""
    n, channel = max(2 * CHUNK, n_users // SHARE), RankUnit(EPSILON, DIMENSION)
    ids = np.arange(n, dtype=np.uint64)
    x = np.random.default_rng(1).standard_normal((n, DIMENSION)) / DIMENSION
    rng = SeededStreams(ids, 1, "bench")
    symbols = rank_symbols(x, ids, SALT, channel, rng)
    found = in_turns(
        {
            "ours": lambda: rank_symbols(x, ids, SALT, channel, rng),
            "NumPy": lambda: plain_symbols(x, ids, channel, rng),
            "server": lambda: sum_points(ids, SALT, symbols, channel),
        },
        turns,
        warm=min(1, turns - 1),
    )
    what = f"rank reports, d = {DIMENSION}, {channel.size} points"
    return [
        Row(what, "us", scaled(found["ours"], 1e6 / n), at_most=MOST),
        Row(f"NumPy / {what}", "x", ratio(found["NumPy"], found["ours"]), at_least=3.0),
        Row(f"{what}, added up", "ns", scaled(found["server"], 1e9 / n)),
    ]


def plain_symbols(
    x: Floats, ids: Words, channel: RankUnit, rng: SeededStreams
) -> NDArray[np.uint16]:
    """Report vectors from the same private streams, points and law, in NumPy: (n,) uint16."""
    ends = ends_of(x, rng)
    drawn = draw_layers(rng.substream("symbol").words(1)[:, 0], channel.law_of_symbols)
    for first in range(0, len(x), CHUNK):
        here = slice(first, first + CHUNK)
        heights = np.einsum("ujk,uk->uj", public_points(ids[here], SALT, channel), ends[here])
        order = np.argsort(-heights, axis=1, kind="stable")
        rank = np.maximum(-1 - drawn[here], 0)
        member = np.take_along_axis(order, rank[:, None], axis=1)[:, 0]
        drawn[here] = np.where(drawn[here] < 0, member, drawn[here])
    return drawn.astype(np.uint16)


def notes() -> tuple[str, ...]:
    """Say what is measured."""
    return (
        f"Rank reports: every user's {RankUnit(EPSILON, DIMENSION).size} public points from its "
        "id, their scalar products with its vector and the choice of a rank; NumPy does the same "
        f"for {CHUNK} users at a time, and sorts. Added up: the server finds the one point again.",
    )
