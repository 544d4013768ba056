"""Reports by ranks: what a client draws, against the plain definition."""

import math

import numpy as np
import pytest

from clients.randomizers.sphere import ends_of, pick, rank_symbols
from fedhist.channels.layers import draw_layers
from fedhist.channels.rank_unit import RankUnit
from tests.rank_points import public_points
from tests.running import coins

SALT = 5


def ids_of(n: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + n, dtype=np.uint64)


def report(x: np.ndarray, channel: RankUnit, seed: int = 0, **options: bool) -> np.ndarray:
    return rank_symbols(x, ids_of(len(x)), SALT, channel, coins(len(x), seed), **options)


@pytest.mark.parametrize("N", [2, 3, 256, 1024])
def test_ranks_are_a_permutation_whatever_the_floats(N: int) -> None:
    """Hence a set of c ranks has c members: also with ties, infinities and any kind of NaN."""
    rng = np.random.default_rng(N)
    bits = rng.integers(1 << 32, size=N, dtype=np.uint64).astype(np.uint32)
    strange = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 1.0], dtype=np.float32)
    for heights in (bits.view(np.float32), np.zeros(N, dtype=np.float32), rng.choice(strange, N)):
        assert sorted(pick(heights, r) for r in range(N)) == list(range(N))
    plain = (rng.integers(-9, 9, N) + 0.5).astype(np.float32)
    result = [pick(plain, r) for r in range(N)]
    assert result == np.argsort(-plain, kind="stable").tolist()


@pytest.mark.parametrize(("d", "epsilon"), [(1, 1.0), (2, 0.5), (5, 2.0), (64, 1.0), (3, 7.0)])
def test_symbols_are_those_of_the_definition(d: int, epsilon: float) -> None:
    n, channel = 60, RankUnit(epsilon, d)
    x = np.random.default_rng(d).normal(size=(n, d)) / math.sqrt(d)
    ends = ends_of(x, coins(n)).astype(np.float64)
    y = public_points(ids_of(n), SALT, channel)
    heights = np.einsum("ujk,uk->uj", y, ends)
    order = np.argsort(-heights, axis=1, kind="stable")
    drawn = draw_layers(coins(n).substream("symbol").words(1)[:, 0], channel.law_of_symbols)
    expected = [order[u, -1 - s] if s < 0 else s for u, s in enumerate(drawn)]
    result = report(x, channel)
    # single precision may exchange two points of almost equal height
    close = np.flatnonzero(result != expected)
    assert len(close) <= 1
    assert (
        np.abs(heights[close, result[close]] - heights[close, expected_at(expected, close)]).sum()
        < 1e-6
    )
    assert (report(x, channel, every=False) == result).all()


def expected_at(expected: list[int], rows: np.ndarray) -> np.ndarray:
    return np.array(expected, dtype=np.int64)[rows]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e305])
def test_what_is_not_finite_is_the_null_record(bad: float) -> None:
    channel = RankUnit(1.0, 3)
    x = np.tile([0.1, bad, 0.2], (50, 1))
    assert (report(x, channel) == report(np.zeros((50, 3)), channel)).all()
