"""The constants and the public points of reports by ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, kstest, norm

from fedhist.channels.rank_unit import UNIT, RankUnit, normal_cells, sum_points, top_means
from tests.rank_points import public_points

# 1 / g^2 at d = 64: the two-sided report of Duchi et al., the limit of many points, 256 points
TABLE = {
    0.5: (1663, 1600, 1610),
    1.0: (467, 402, 405),
    2.0: (172, 103, 104),
    4.0: (107, 28.2, 28.6),
    6.0: (101, 14.0, 14.6),
    8.0: (99.9, 8.95, 9.86),
}


def best_v(epsilon: float, size: int, dimension: int) -> float:
    more = np.arange(1, size) * math.expm1(epsilon)
    return float(np.max(more / (size + more) * top_means(size, dimension)[:-1]) ** -2)


@pytest.mark.parametrize("epsilon", TABLE)
def test_variances_are_those_of_the_table(epsilon: float) -> None:
    duchi, limit, few = TABLE[epsilon]
    assert best_v(epsilon, 256, 64) == pytest.approx(few, rel=0.005)
    channel = RankUnit(epsilon, 64)
    assert channel.size == (256 if epsilon < 6 else 1024)
    assert channel.v == pytest.approx(best_v(epsilon, channel.size, 64), rel=1e-12)
    assert limit * 0.995 < channel.v < duchi
    assert channel.v < limit * (1.031 if epsilon >= 6 else 1.02)
    assert channel.variance(0.5) == pytest.approx(channel.v - 0.25)


def test_order_statistics_of_the_sphere_in_space_are_archimedes() -> None:
    """The first coordinate of a uniform point is uniform for d = 3."""
    k = np.arange(1, 1025)
    kth = np.cumsum(1 - 2 * k / 1025) / k
    assert top_means(1024, 3) == pytest.approx(kth, abs=1e-10)


def test_one_dimension_is_randomized_response() -> None:
    channel = RankUnit(1.0, 1)
    assert (channel.size, channel.chosen) == (2, 1)
    assert channel.gain == pytest.approx(math.tanh(0.5), rel=1e-12)


def test_the_cells_are_means_of_the_normal_law() -> None:
    table = normal_cells().astype(np.float64)
    assert table.mean() == pytest.approx(0, abs=1e-12)
    assert np.mean(table**2) == pytest.approx(1, abs=1e-7)
    edges = norm.ppf(np.arange(2**16 + 1) / 2**16)
    for i in (0, 1, 100, 2**16 // 2, 2**16 - 1):
        mean = norm.expect(lb=edges[i], ub=edges[i + 1], conditional=True)
        assert table[i] == pytest.approx(mean, abs=2e-5)
    # what the rounding takes away, and so all that it can do to a point
    raw = 2**16 * np.diff(-norm.pdf(edges))
    assert 1 - np.mean(raw**2) < 1.5e-6


@pytest.mark.parametrize("d", [2, 3, 8])
def test_points_are_uniform_on_the_sphere(d: int) -> None:
    """Heights over any direction have the law of a coordinate; nothing of a user repeats.

    Kolmogorov-Smirnov at 1e-4 for two directions.
    """
    channel = RankUnit(1.0, d)
    y = public_points(np.arange(400, dtype=np.uint64), 3, channel)
    assert np.linalg.norm(y, axis=-1) == pytest.approx(np.ones((400, 256)), abs=1e-12)
    direction = np.random.default_rng(1).standard_normal(d)
    law = beta((d - 1) / 2, (d - 1) / 2, loc=-1, scale=2)
    for e in (np.eye(d)[0], direction / np.linalg.norm(direction)):
        assert kstest((y @ e).ravel(), law.cdf).pvalue > 1e-4
    assert np.abs(np.einsum("ujk,ujl->kl", y, y) / (400 * 256) - np.eye(d) / d).max() < 0.01
    # two coordinates have 2^32 values: one pair of 102,400 points is expected to be alike
    assert len(np.unique(y.reshape(-1, d), axis=0)) > 400 * 256 - 10
    other = public_points(np.arange(400, dtype=np.uint64), 4, channel)
    assert not (other == y).all(axis=-1).any()


@pytest.mark.parametrize(("d", "epsilon"), [(1, 1.0), (2, 1.0), (7, 1.0), (7, 7.0)])
def test_the_server_adds_the_points_that_were_reported(d: int, epsilon: float) -> None:
    channel, rng = RankUnit(epsilon, d), np.random.default_rng(d)
    ids = rng.integers(1 << 64, size=50, dtype=np.uint64)
    symbols = rng.integers(channel.size + 1, size=50).astype(np.uint16)
    symbols[7] = channel.size  # an erasure
    y = np.concatenate((public_points(ids, 9, channel), np.zeros((50, 1, d))), axis=1)
    total = y[np.arange(50), symbols].sum(axis=0)
    result = sum_points(ids, 9, symbols, channel)
    assert result.dtype == np.int64
    assert result / UNIT == pytest.approx(total, abs=50 / UNIT)
    parts = [sum_points(ids[i::3], 9, symbols[i::3], channel) for i in range(3)]
    assert (sum(parts) == result).all()
