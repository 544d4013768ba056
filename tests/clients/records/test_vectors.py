"""Vectors of users' records."""

import math

import numpy as np
import pytest

from clients.records.functionals import (
    BallMean,
    BoxMean,
    CentredShares,
    Leaning,
    from_sum_zero,
    to_sum_zero,
)
from clients.records.user_rows import user_points
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Samples
from tests.running import table_users


def helmert(k: int) -> np.ndarray:
    """The basis written out: (k - 1, k)."""
    rows = np.zeros((k - 1, k))
    for j in range(1, k):
        rows[j - 1, :j], rows[j - 1, j] = 1.0, -j
        rows[j - 1] /= math.sqrt(j * (j + 1))
    return rows


@pytest.mark.parametrize("k", [2, 3, 17])
def test_the_basis_is_helmerts(k: int) -> None:
    basis, rng = helmert(k), np.random.default_rng(k)
    assert basis @ basis.T == pytest.approx(np.eye(k - 1), abs=1e-12)
    rows = rng.normal(size=(5, k))
    assert to_sum_zero(rows) == pytest.approx(rows @ basis.T, abs=1e-12)
    back = rng.normal(size=(5, k - 1))
    assert from_sum_zero(back) == pytest.approx(back @ basis, abs=1e-12)
    assert to_sum_zero(from_sum_zero(back)) == pytest.approx(back, abs=1e-12)


def test_shares_lie_in_the_ball_and_nothing_known_is_nan() -> None:
    table = np.array([[5, 0, 0], [1, 1, 1], [0, 2, 2], [0, 0, 0]])
    users = table_users(np.hstack([table, [[0], [3], [0], [9]]]), Keys.of(["a", "b", "c", "x"]))
    part = CentredShares(Keys.of(["a", "b", "c"]))
    rows = part.vectors(users)
    norms = np.linalg.norm(rows[:3], axis=1)
    assert norms == pytest.approx([part.bound, 0.0, math.sqrt(1 / 2 - 1 / 3)], abs=1e-12)
    assert np.isnan(rows[3]).all()
    assert from_sum_zero(rows[:3]) + 1 / 3 == pytest.approx(
        table[:3] / table[:3].sum(axis=1, keepdims=True)
    )


def test_means_of_a_ball() -> None:
    values = np.array([[3.0, 4.0], [0.0, 1.0], [np.nan, 0.0], [0.1, 0.2], [np.inf, 0.0]])
    users = Users.from_samples([1, 2, 3, 4], [0, 2, 4, 4, 5], values, unusable=True)
    rows = BallMean(2, 1.0).vectors(users)
    assert rows[0] == pytest.approx([0.3, 0.9])
    assert np.isnan(rows[1:]).all()


SAMPLES = np.array([[3.0, 0.2, 0.0], [1.0, 0.4, 0.0], [np.nan, 0.0, 0.1], [0.0, 0.0, 0.0]])


def some_users() -> Users:
    """Of two samples, of one with a NaN, of a zero, and of none."""
    return Users.from_samples([1, 2, 3, 4], [0, 2, 3, 4, 4], SAMPLES, unusable=True)


def test_means_of_a_box() -> None:
    """Samples are clipped first; a NaN matters where it is in one of the columns."""
    part = BoxMean(3, 1.0, np.array([2, 0]))
    rows = part.vectors(some_users())
    assert rows[[0, 2]].tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert np.isnan(rows[[1, 3]]).all()
    assert part.bound == pytest.approx(math.sqrt(2))
    assert BoxMean(3, 1.0, np.array([2])).vectors(some_users())[1].tolist() == [0.1]


def test_where_users_lean() -> None:
    """sinh coordinate by coordinate, the largest held back; a mean of 0 leans nowhere."""
    rows = Leaning(3, 1.0, 0.25, 2.0).vectors(some_users())
    written = np.array([math.sinh(2.0), math.sinh(0.3 / 0.25), 0.0])
    assert rows[0] == pytest.approx(written / np.linalg.norm(written))
    assert not rows[2].any()
    assert np.isnan(rows[[1, 3]]).all()


STRANGE = (-0.0, 0.0, np.inf, -np.inf, np.nan, 1e308, 5e-324)


def slow_means(samples: Samples) -> np.ndarray:
    rows = []
    for a, b in zip(samples.indptr[:-1], samples.indptr[1:], strict=True):
        total = np.zeros(samples.values.shape[1])
        for row in samples.values[a:b]:
            total = total + row
        mean = total / (b - a) if b > a else np.full(len(total), np.nan)
        rows.append(mean if np.isfinite(mean).all() else np.full(len(total), np.nan))
    return np.array(rows)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("most", [1, 4])
def test_means_are_those_of_a_sum_in_order(d: int, most: int) -> None:
    rng = np.random.default_rng(7)
    sizes = np.ones(200, dtype=np.int64) if most == 1 else rng.integers(0, most + 1, 200)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    values = rng.normal(size=(int(indptr[-1]), d))
    values[rng.integers(0, len(values), 40), rng.integers(0, d, 40)] = rng.choice(STRANGE, 40)
    samples = Samples(indptr, values)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = slow_means(samples)
    result = user_points(samples)
    np.testing.assert_array_equal(np.signbit(result[wanted == 0]), np.signbit(wanted[wanted == 0]))
    np.testing.assert_array_equal(result, wanted)
