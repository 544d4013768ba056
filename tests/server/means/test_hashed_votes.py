import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from vote_laws import scalar_probabilities

import fedhist as fh
from clients.means.queries import HashedVotes
from fedhist.base.hashing import counter_words, digest64
from fedhist.users.keys import keyed_hash
from fedhist.users.shards import Samples
from tests.running import streams


def query(**changes: object) -> HashedVotes:
    return replace(HashedVotes(5, 1.0, 0.3, 3, 1.0, hash_salt=4), **changes)


def crowd(n: int, row: list[float], first: int = 0) -> fh.Users:
    """n users with one sample each, all the same."""
    ids = np.arange(first, first + n, dtype=np.uint64)
    return fh.Users.from_samples(ids, np.arange(n + 1), np.tile(row, (n, 1)), unusable=True)


def signs_at(q: HashedVotes, users: fh.Users, column: int) -> np.ndarray:
    """Every user's public sign at a column: (n,) int64."""
    n = len(users)
    return q.signs.vote_sums(users.ids, np.arange(n + 1), np.full(n, column))


@pytest.mark.parametrize("epsilon", [0.01, 4.0])
@pytest.mark.parametrize("vote", ["sign", "laplace"])
def test_exact_likelihood_ratios_of_all_vote_sets(epsilon: float, vote: str) -> None:
    """Every vote set under every pattern of four public signs, in integers of 2^-64: the largest
    ratio is at most e^epsilon, and a promise of 0.98 epsilon would be broken.
    """
    q = query(epsilon=epsilon, vote=vote, max_votes=4, reach=2.0)
    signs = np.array(list(product((-1, 1), repeat=4)))
    votes = np.array(list(product((-1, 0, 1), repeat=4)))  # signed ones, too
    sums = signs @ votes.T  # (patterns, vote sets)
    u = q.scalars(np.unique(sums))
    assert u.min() == -1
    assert u.max() == 1
    # what a record decides is u; the law given u is a mixture of the laws of the lattice's points
    weights = q.channel.weights(q.channel.inputs()[[0, -1]])
    law = [[Fraction(int(w), 2**64) for w in row] for row in weights]
    ratio = max(max(a / b, b / a) for a, b in zip(*law, strict=True))
    assert ratio <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**52))  # exp rounds too
    assert ratio > Fraction(math.exp(0.98 * epsilon))
    # every u that occurs, rounding included, stays between
    mixed = scalar_probabilities(q.channel, u)
    assert (mixed.max(axis=0) <= mixed.min(axis=0) * math.exp(epsilon) * (1 + 1e-9)).all()
    for row in sums:  # under one pattern of signs both ends may not occur, but nothing beyond
        assert np.isin(q.scalars(row), u).all()


def test_signed_votes_count_their_signs() -> None:
    """S is the sum of sign(mean) v_ij over the votes; scores of a coordinate have its sign."""
    q = query(signed=True, max_votes=3, epsilon=6.0)
    users = crowd(4000, [0.9, -0.8, 0.1, 0.0, 0.5])
    indptr, columns = q.votes(users)
    assert columns[:3].tolist() == [0, ~1, 4]
    sums = q.signs.vote_sums(users.ids, indptr, columns)
    v = [signs_at(q, users, j) for j in (0, 1, 4)]
    assert np.array_equal(sums, v[0] - v[1] + v[2])
    report = q.answer(users, streams(users, 5))
    scores = q.scores(q.fold(report))
    assert scores[4] == pytest.approx((v[2] * report.arrays["reports"]).mean(), abs=1e-12)
    assert np.abs(scores[[0, 4]] - 0.5).max() < 0.08  # gain 1/2 of three votes; 5 deviations
    assert abs(scores[1] + 0.5) < 0.08


def test_bad_messages_are_refused() -> None:
    ids = np.arange(3, dtype=np.uint64)
    sign, laplace = query(), query(vote="laplace")
    bound = int(laplace.channel.bound)
    good = np.array([1, -1, 1], dtype=np.int8)
    sign.check(fh.Report(ids, {"reports": good}))
    for bad in (
        {"reports": np.array([1, 0, 1], dtype=np.int8)},
        {"reports": np.array([1, 2, 1], dtype=np.int8)},
        {"reports": good.astype(np.int64)},
        {"reports": good.astype(np.float64)},
        {"reports": np.stack([good, good], axis=1)},
        {"votes": good},
        {"reports": good, "more": good},
    ):
        with pytest.raises(fh.WireError):
            sign.check(fh.Report(ids, bad))
    with pytest.raises(fh.WireError):
        laplace.check(fh.Report(ids, {"reports": np.array([0, bound + 1, 0])}))
    for scores in (np.full(5, 4), np.zeros(4, dtype=np.int64), np.zeros(5)):
        with pytest.raises(fh.WireError):
            sign.check_summary(fh.Summary(3, {"scores": scores}))


def keys_of(n: int) -> np.ndarray:
    return keyed_hash(np.arange(n, dtype=np.uint64), digest64("fedhist.ties", 4))


def slow(
    samples: Samples, radius: float, threshold: float, cap: int, items: int, signed: bool = False
) -> list[list[int]]:
    result = []
    users = pairwise(samples.indptr)
    for key, (a, b) in zip(keys_of(len(samples.indptr)), users, strict=False):
        stop = min(b, a + items) if items else b
        x = samples.values[a:stop]
        if not len(x) or np.isnan(x).any():
            result.append([])
            continue
        total = np.zeros(x.shape[1])
        for row in x:
            total += np.clip(row, -radius, radius)
        far = np.abs(total) / len(x)
        over = [j for j in range(len(far)) if far[j] >= threshold]
        order = counter_words(np.array([key]), len(far))[0]
        steps = np.rint(far * (2**32 / radius))
        kept = sorted(sorted(over, key=lambda j: (-steps[j], order[j]))[:cap])
        result.append([~j if signed and total[j] < 0 else j for j in kept])
    return result


def rows(
    samples: Samples, radius: float, least: float, most: int, items: int = 0, signed: bool = False
) -> list[list[int]]:
    d = samples.values.shape[1]
    query = HashedVotes(d, radius, least, most, 1.0, hash_salt=4, max_items=items, signed=signed)
    ids = np.arange(len(samples.indptr) - 1, dtype=np.uint64)
    indptr, columns = query.votes(fh.Users(ids, samples=samples))
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
    result = rows(many, 1.0, 0.3, 3)
    assert all({1, 4} < set(row) and row == sorted(row) for row in result)
    votes = np.bincount(np.concatenate(result), minlength=6)
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
