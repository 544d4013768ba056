"""The benchmark of the local kernels on tiny sizes: what is compared computes the same thing."""

from __future__ import annotations

import numpy as np
import pytest

from clients.randomizers.oracle_reports import report_symbols
from clients.randomizers.scalars import add_votes
from clients.randomizers.sphere import rank_symbols
from fedhist.channels.bits import BitTally
from fedhist.channels.catalogue import UnaryChannel
from fedhist.channels.rank_unit import RankUnit
from fedhist.users.streams import SeededStreams
from simulations.benchmarks import local, oracles, ranks, running


def test_it_runs_small() -> None:
    result = running.measure("local", quick=True)
    found = {row.what: row.spread.median for row in result.rows}
    assert len(found) == len(result.rows)
    assert min(found.values()) > 0
    assert all(row.met is None for row in result.rows)
    for name in ("NumPy / summed", "reports / fused numba, bytes", "laplace reports"):
        assert name in found


def test_every_form_draws_votes_of_the_same_law() -> None:
    """5 x 64 sums of 64,000 users: each |z| < 6, false alarm 320 * 2e-9; bytes round to 1/256."""
    n, channel = 64_000, UnaryChannel(1.0)
    position = np.arange(n) % 40  # bins from 40 on have no votes
    rng = SeededStreams(np.arange(n, dtype=np.uint64), 1, "x")
    true = np.bincount(position, minlength=local.BINS)
    byte = round(channel.flip * 256)
    exact = channel.flip
    threshold = np.uint64(channel.flip_threshold)
    one = np.zeros(n, dtype=np.int64)
    tally = BitTally(local.BINS, 1)
    add_votes(tally, position, channel, one, rng)
    forms = [
        (tally.totals()[0], exact),
        (local.plain_votes(position, exact, np.random.default_rng(1)), exact),
        (local.fused_integers(rng.keys, position, threshold), exact),
        (local.fused_doubles(rng.keys, position, exact), exact),
        (local.fused_bytes(np.uint64(1), position, np.uint8(byte)), byte / 256),
    ]
    for sums, flip in forms:
        mean = true * (1 - flip) + (n - true) * flip
        assert np.abs((sums - mean) / np.sqrt(n * flip * (1 - flip))).max() < 6


@pytest.mark.parametrize("kind", ["krr", "hadamard", "projective"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_numpy_s_oracles_send_the_same_messages(kind: str, epsilon: float) -> None:
    ids = np.random.default_rng(1).integers(1 << 63, size=20_000, dtype=np.uint64)
    channel = oracles.symbol_channel(kind, 40, epsilon)
    symbols = np.arange(len(ids)) % 41
    ours = report_symbols(symbols, channel, SeededStreams(ids, 1, "x"))
    plain = oracles.plain_reports(symbols, channel, ids, oracles.layers_seed(1, "x"))
    assert (ours == plain).all()


def test_numpy_s_ranks_are_the_same_reports() -> None:
    """But for points of almost equal height, which single precision may exchange."""
    channel, rng = RankUnit(1.0, 8), np.random.default_rng(1)
    ids = np.arange(200, dtype=np.uint64)
    x = rng.standard_normal((200, 8)) / 4
    streams = SeededStreams(ids, 1, "x")
    ours = rank_symbols(x, ids, ranks.SALT, channel, streams)
    plain = ranks.plain_symbols(x, ids, channel, streams)
    assert np.count_nonzero(ours != plain) <= 1
