"""Reports of vectors of a ball: points of a sphere, and ranks of public points."""

import math

import numpy as np
import pytest

from clients.randomizers.sphere import duchi_l2, ends_of, pick, rank_symbols
from clients.records.user_rows import ball_means
from fedhist.channels.layers import draw_layers
from fedhist.channels.rank_unit import RankUnit
from fedhist.channels.sphere import SphereChannel
from fedhist.users.shards import Samples
from tests.rank_points import public_points
from tests.running import coins


def draw(x: list[float], epsilon: float, n: int, seed: int = 0, radius: float = 1.0) -> np.ndarray:
    channel = SphereChannel(len(x), radius, epsilon)
    return duchi_l2(np.tile(np.array(x), (n, 1)), channel, coins(n, seed))


def test_only_a_sign_depends_on_the_record() -> None:
    """For equal randomness the reports of any two records are equal or opposite, to the bit."""
    n, d = 400, 7
    rng = np.random.default_rng(3)
    channel = SphereChannel(d, 1.0, 0.5)
    first = duchi_l2(np.zeros((n, d)), channel, coins(n))
    absurd = np.zeros((n, d))
    absurd[::2, 3], absurd[1::2, 4] = 1e300, 5e-324
    near = np.full((n, d), 1e-170)
    for x in (rng.normal(size=(n, d)), absurd, -absurd, near):
        other = duchi_l2(x, channel, coins(n))
        same = (other == first).all(axis=1)
        assert (same | (other == -first).all(axis=1)).all()
        assert 0 < same.sum() < n


def test_the_null_record_is_uniform_and_inner_points_mix() -> None:
    """Shares of the half spaces of several directions are (density +- 1) / 2; 5 sigma, 7e-6."""
    n, d, epsilon = 200_000, 3, 1.5
    channel = SphereChannel(d, 1.0, epsilon)
    sd = 0.5 / math.sqrt(n)
    null = draw([0.0, 0.0, 0.0], epsilon, n)
    for direction in np.vstack([np.eye(3), [[1.0, 1.0, -1.0]]]):
        assert abs(float((null @ direction > 0).mean()) - 0.5) < 5 * sd
    x = np.array([0.3, -0.4, 0.0])
    z = draw(list(x), epsilon, n, seed=1)
    p = (1 + channel.tau * float(np.linalg.norm(x))) / 2
    assert abs(float((z @ x > 0).mean()) - p) < 5 * sd
    # orthogonal to x nothing is told, on either side of x
    near = z[z @ x > 0]
    assert abs(float((near[:, 2] > 0).mean()) - 0.5) < 5 * 0.5 / math.sqrt(len(near))
    # and the height is uniform on that side, for d = 3 (Archimedes)
    heights = np.sort(near @ x / 0.5 / channel.length)
    steps = (np.arange(len(heights)) + 0.5) / len(heights)
    assert np.abs(heights - steps).max() < 2.7 / math.sqrt(len(heights))  # Kolmogorov, 1e-6


def test_ball_means() -> None:
    """Against a slow version; absurd lengths are scaled, and what is not finite is NaN."""
    rng = np.random.default_rng(1)
    rows = [rng.normal(size=(k, 3)) for k in (4, 0, 1, 7)]
    rows += [np.array([[1e300, -1e300, 0.0]]), np.array([[1.7e308] * 3, [0.0] * 3])]
    rows += [np.array([[np.nan, 0, 0], [1, 0, 0]]), np.array([[1, 0, 0], [0, np.inf, 0]])]
    indptr = np.cumsum([0, *map(len, rows)])
    result = ball_means(Samples(indptr, np.concatenate(rows)), 1.5)

    def clip(v: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(v)
        return v if norm <= 1.5 else v * (1.5 / norm)

    for i in (0, 2, 3):
        assert result[i] == pytest.approx(np.mean([clip(v) for v in rows[i]], axis=0), abs=1e-14)
    assert result[4] == pytest.approx(np.array([1.5, -1.5, 0.0]) / math.sqrt(2))
    assert result[5] == pytest.approx(np.full(3, 0.75 / math.sqrt(3)))
    assert np.isnan(result[[1, 6, 7]]).all()
    assert (np.linalg.norm(result[[0, 2, 3, 4, 5]], axis=1) <= 1.5 * (1 + 1e-12)).all()


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
