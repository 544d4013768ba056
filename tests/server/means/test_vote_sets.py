from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from clients.means.queries import HashedVotes
from fedhist.base.hashing import counter_words, digest64
from fedhist.users.batch import Users
from fedhist.users.columns import Samples
from fedhist.users.keys import keyed_hash


def keys_of(n: int) -> np.ndarray:
    return keyed_hash(np.arange(n, dtype=np.uint64), digest64("fedhist.ties", 4))


def slow(
    samples: Samples, radius: float, threshold: float, cap: int, items: int, signed: bool = False
) -> list[list[int]]:
    found = []
    users = pairwise(samples.indptr)
    for key, (a, b) in zip(keys_of(len(samples.indptr)), users, strict=False):
        stop = min(b, a + items) if items else b
        x = samples.values[a:stop]
        if not len(x) or np.isnan(x).any():
            found.append([])
            continue
        total = np.zeros(x.shape[1])
        for row in x:
            total += np.clip(row, -radius, radius)
        far = np.abs(total) / len(x)
        over = [j for j in range(len(far)) if far[j] >= threshold]
        order = counter_words(np.array([key]), len(far))[0]
        steps = np.rint(far * (2**32 / radius))
        kept = sorted(sorted(over, key=lambda j: (-steps[j], order[j]))[:cap])
        found.append([~j if signed and total[j] < 0 else j for j in kept])
    return found


def rows(
    samples: Samples, radius: float, least: float, most: int, items: int = 0, signed: bool = False
) -> list[list[int]]:
    d = samples.values.shape[1]
    query = HashedVotes(d, radius, least, most, 1.0, hash_salt=4, max_items=items, signed=signed)
    ids = np.arange(len(samples.indptr) - 1, dtype=np.uint64)
    indptr, columns = query.votes(Users(ids, samples=samples))
    assert indptr.dtype == columns.dtype == np.int64
    return [columns[a:b].tolist() for a, b in pairwise(indptr)]


def test_agrees_with_the_slow_version() -> None:
    """Small tables with many ties, infinities and NaN; and a larger one without ties."""
    rng = np.random.default_rng(1)
    atoms = [-2.0, -0.5, 0.0, 0.5, 1.0, 0.25, np.nan, np.inf, -np.inf]
    odds = [0.1, 0.2, 0.1, 0.2, 0.2, 0.1, 0.02, 0.04, 0.04]
    for _ in range(300):
        sizes = rng.integers(0, 4, rng.integers(0, 12))
        indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        values = rng.choice(atoms, p=odds, size=(indptr[-1], rng.integers(1, 9)))
        samples = Samples(indptr, values)
        settings = 1.0, rng.choice([0.25, 0.5]), int(rng.integers(1, 5)), int(rng.integers(0, 3))
        assert rows(samples, *settings) == slow(samples, *settings)
        assert rows(samples, *settings, True) == slow(samples, *settings, True)
    wide = Samples(np.arange(0, 61, 2), rng.normal(size=(60, 300)))
    for cap in (1, 7, 299, 300, 500):
        assert rows(wide, 1.5, 0.2, cap, 0) == slow(wide, 1.5, 0.2, cap, 0)


def test_no_column_is_preferred_among_equals() -> None:
    """Columns 1 and 4 are farther; 0, 2, 3 and 5 tie for one place, which each gets equally often.

    A chi-square of 3 degrees below 25: false alarm 2e-5.
    """
    n = 8000
    many = Samples(np.arange(n + 1), np.tile([0.5, -0.7, 0.5, -0.5, 0.9, -0.5], (n, 1)))
    found = rows(many, 1.0, 0.3, 3)
    assert all({1, 4} < set(row) and row == sorted(row) for row in found)
    votes = np.bincount(np.concatenate(found), minlength=6)
    assert (votes[[1, 4]] == n).all()
    assert (np.square(votes[[0, 2, 3, 5]] - n / 4) / (n / 4)).sum() < 25
    assert rows(many, 1.0, 0.6, 3) == [[1, 4]] * n


def test_rounding_breaks_no_ties() -> None:
    """Of 1/6 and -1/6, which is a little farther as 5/6 - 1, each comes first equally often.

    A binomial count within 5 deviations: false alarm 6e-7.
    """
    n, pair = 4000, [7 / 6 - 1, 5 / 6 - 1]
    assert abs(pair[0]) != abs(pair[1])
    many = Samples(np.arange(n + 1), np.tile(pair, (n, 1)))
    first = sum(row == [0] for row in rows(many, 1.0, 0.1, 1, 0, True))
    assert rows(many, 1.0, 0.1, 2, 0, True) == [[0, -2]] * n
    assert abs(first - n / 2) < 5 * np.sqrt(n / 4)


@pytest.mark.parametrize("value", [1e300, np.inf])
def test_absurd_values_are_clipped(value: float) -> None:
    one = Samples(np.array([0, 2]), np.array([[value, 0.1], [value, -0.1]]))
    assert rows(one, 0.5, 0.5, 2) == [[0]]
    assert rows(one, 0.5, 0.500001, 2) == [[]]


def test_a_user_that_cannot_be_used_votes_for_nothing() -> None:
    values = np.array([[0.9, 0.9], [0.9, np.nan], [0.9, 0.9]])
    assert rows(Samples(np.array([0, 2, 2, 3]), values), 1.0, 0.1, 2) == [[], [], [0, 1]]
    # the NaN is not among the first samples
    assert rows(Samples(np.array([0, 2, 2, 3]), values), 1.0, 0.1, 2, 1) == [[0, 1], [], [0, 1]]
