"""Synthetic populations: the same again for one seed, and the distributions they claim.

Every statistical check compares with a band of six standard errors or more: a false alarm has
probability below 2e-9 each, except for the mean of the heavy-tailed sizes, where a single huge
user can do it (3e-5). The seeds are fixed.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from fedhist.users.batch import Users
from simulations.populations import population
from simulations.populations.synthetic import in_words, made_words, numbered_items
from simulations.populations.zipf import Zipf

SMALL = [
    ("zipf", {"n_users": 200, "d": 30, "mean_items": 10}),
    ("paper-iid", {"n_users": 200}),
    ("paper-non-iid", {"n_users": 200}),
    ("uniform", {"n_users": 200, "samples_per_user": [1, 20]}),
    ("gaussian", {"n_users": 200, "samples_per_user": 3, "dimension": 2}),
    ("two-point", {"n_users": 200, "samples_per_user": [2, 9]}),
]


def parts(users: Users) -> list[np.ndarray]:
    if users.items is not None:
        return [users.ids, users.items.indptr, users.items.item, users.items.count]
    return [users.ids, users.reals.indptr, users.reals.values]


@pytest.mark.parametrize(("kind", "options"), SMALL)
def test_one_seed_one_population(kind: str, options: dict[str, object]) -> None:
    first = population(kind, **options, seed=3).load()
    again = population(kind, **options, seed=3).load()
    other = population(kind, **options, seed=4).load()
    for a, b in zip(parts(first.users), parts(again.users), strict=True):
        np.testing.assert_array_equal(a, b)
    pairs = zip(parts(first.users)[1:], parts(other.users)[1:], strict=True)
    assert not all(np.array_equal(a, b) for a, b in pairs)
    assert len(np.unique(np.concatenate([first.users.ids, other.users.ids]))) == 400
    assert "200 users" in first.title


@pytest.mark.parametrize("d", [1, 9, 10, 1000])
def test_item_names_sort_as_numbers(d: int) -> None:
    keys = numbered_items(d)
    assert [int(k.removeprefix("item-")) for k in keys] == list(range(1, d + 1))
    np.testing.assert_array_equal(keys.byte_order, np.arange(d))


def test_zipf_frequencies_and_sizes() -> None:
    loaded = population("zipf", n_users=20_000, d=50, exponent=1.3, mean_items=20, tail=3).load()
    assert loaded.domain == loaded.users.vocabulary
    items = loaded.users.counts
    totals = np.bincount(items.item, weights=items.count, minlength=50)
    p = np.arange(1, 51) ** -1.3
    p /= p.sum()
    n = totals.sum()
    assert (np.abs(totals - n * p) < 7 * np.sqrt(n * p)).all()
    sizes = np.add.reduceat(items.count.astype(np.int64), items.indptr[:-1])
    # Pareto with shape 3 and mean 20: scale 40/3, standard deviation 20 / sqrt(3) = 11.5
    assert abs(sizes.mean() - 20) < 7 * 11.6 / math.sqrt(20_000)
    share = (40 / 3 / 100) ** 3
    assert abs((sizes >= 100).mean() - share) < 7 * math.sqrt(share / 20_000) + share * 0.03


def test_zipf_without_tail() -> None:
    users = population("zipf", n_users=500, d=9, mean_items=7.0, tail=math.inf).load().users
    assert users.counts.count.sum() == 3500
    few = population("zipf", n_users=500, d=9, exponent=0, mean_items=0.3, tail=math.inf).load()
    assert len(few.users) == 500
    assert 0 < few.users.counts.count.sum() < 300


def clipping_loss(users: Users, quantile: float) -> float:
    items = users.counts
    ends = np.concatenate(([0], np.cumsum(items.count.astype(np.int64))))
    sizes = ends[items.indptr[1:]] - ends[items.indptr[:-1]]
    return 1 - np.minimum(sizes, np.quantile(sizes, quantile)).sum() / sizes.sum()


@pytest.mark.parametrize(("reading", "a"), [("fitted", 0.5), ("as-printed", 2.0)])
def test_non_iid_rates(reading: str, a: float) -> None:
    """Loss by clipping alone, 1 - E min(X, c) / E X with X a Poisson of a Gamma(a) rate."""
    n = 60_000
    users = population("paper-non-iid", n_users=n, d=50, reading=reading).load().users
    deviation = math.sqrt(100 + 100**2 / a)  # of a negative binomial size
    assert abs(users.counts.count.sum() / n - 100) < 7 * deviation / math.sqrt(n)
    size = scipy.stats.nbinom(a, a / (a + 100))
    for q in (0.5, 0.9):
        c = int(size.ppf(q))
        expected = 1 - size.sf(np.arange(c)).sum() / 100
        assert clipping_loss(users, q) == pytest.approx(expected, abs=0.015)
    if reading == "fitted":  # the losses that Table 1 of the paper prints, noise apart
        assert clipping_loss(users, 0.5) == pytest.approx(0.6957, abs=0.02)
        assert clipping_loss(users, 0.9) == pytest.approx(0.1645, abs=0.02)


def test_non_iid_items_are_dirichlet() -> None:
    """Two samples of one user agree with probability (1 + a |p|^2) / (1 + a), a = 1/2."""
    n, d = 60_000, 20
    items = population("paper-non-iid", n_users=n, d=d, reading="as-printed").load().users.counts
    p = 1 / (np.arange(1, d + 1) + 50)
    p /= p.sum()
    user = np.repeat(np.arange(n), np.diff(items.indptr))
    count = items.count.astype(np.float64)
    size = np.bincount(user, weights=count, minlength=n)
    agree = np.bincount(user, weights=count * (count - 1), minlength=n)
    pairs = size * (size - 1)
    rate = agree[pairs > 0] / pairs[pairs > 0]
    expected = (1 + 0.5 * (p**2).sum()) / 1.5
    assert abs(rate.mean() - expected) < 6 * rate.std() / math.sqrt(len(rate))
    first = np.bincount(items.item, weights=count / size[user], minlength=d) / (size > 0).sum()
    # A share has variance p (1 - p) / (1 + a), plus sampling: less than p.
    assert (np.abs(first - p) < 7 * np.sqrt(p / n)).all()


def test_iid_items_and_sizes() -> None:
    n = 20_000
    items = population("paper-iid", n_users=n, d=50).load().users.counts
    totals = np.bincount(items.item, weights=items.count, minlength=50)
    p = 1 / (np.arange(1, 51) + 50)
    expected = 100 * n * p / p.sum()
    assert (np.abs(totals - expected) < 7 * np.sqrt(expected)).all()
    assert population("paper-iid", n_users=5).load().domain is None


@pytest.mark.parametrize(
    ("kind", "sd"), [("uniform", 0.2 / math.sqrt(3)), ("gaussian", 0.2), ("two-point", 0.2)]
)
def test_real_samples(kind: str, sd: float) -> None:
    options = {"mean": [0.3, -0.2], "dimension": 3, "spread": 0.2, "low": -2, "high": 2}
    loaded = population(kind, n_users=3000, samples_per_user=10, **options).load()
    assert loaded.value_range == (-2.0, 2.0)
    x = loaded.users.reals.values
    assert x.shape == (30_000, 3)
    assert (np.abs(x.mean(axis=0) - [0.3, -0.2, 0.0]) < 7 * sd / math.sqrt(30_000)).all()
    assert (np.abs(x.std(axis=0) / sd - 1) < 0.04).all()
    if kind == "two-point":
        assert len(np.unique(x[:, 0])) == 2


def test_ragged_sizes_are_log_uniform() -> None:
    loaded = population("uniform", n_users=40_000, samples_per_user=[2, 31]).load()
    sizes = loaded.users.n_items()
    assert (sizes.min(), sizes.max()) == (2, 31)
    for k in (2, 3, 7, 15, 31):
        p = math.log((k + 1) / k) / math.log(16)
        assert abs((sizes == k).mean() - p) < 7 * math.sqrt(p / 40_000)


def test_gaussians_are_clipped_to_their_range() -> None:
    options = {"n_users": 5000, "samples_per_user": 4, "spread": 1.0}
    x = population("gaussian", **options).load().users.reals.values
    assert np.abs(x).max() == 1
    p = math.erfc(1 / math.sqrt(2))
    assert abs((np.abs(x) == 1).mean() - p) < 7 * math.sqrt(p / 20_000)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        ("zipf", {"n_users": 0}, "n_users must be a positive integer, got 0"),
        ("zipf", {"n_users": "10"}, "got '10'"),
        ("zipf", {"d": -1}, "d must be a positive integer, got -1"),
        ("zipf", {"exponent": -0.5}, "non-negative, got -0.5"),
        ("zipf", {"exponent": math.nan}, "finite number, got nan"),
        ("zipf", {"mean_items": 0}, "mean_items must be positive, got 0"),
        ("zipf", {"tail": 1.0}, "tail must exceed 1"),
        ("zipf", {"tail": math.nan}, "tail must be a number, got nan"),
        ("zipf", {"seed": -1}, "seed must be a non-negative integer, got -1"),
        ("paper-iid", {"d": 0}, "got 0"),
        ("paper-iid", {"mean_items": -1}, "got -1"),
        ("paper-non-iid", {"n_users": 1.5}, "got 1.5"),
        (
            "paper-non-iid",
            {"reading": "printed"},
            "must be one of as-printed, fitted, got 'printed'; did",
        ),
        ("uniform", {"spread": 1.5}, "reach from -1.5 to 1.5, outside"),
        ("two-point", {"mean": 0.9, "spread": 0.2}, "outside"),
        ("uniform", {"spread": 0}, "spread must be positive, got 0"),
        ("uniform", {"samples_per_user": [5, 2]}, r"got \(5, 2\)"),
        ("uniform", {"samples_per_user": [1, 2, 3]}, "or \\[lo, hi\\]"),
        ("uniform", {"samples_per_user": [1, 10**40]}, "must be fewer than 2\\^32 samples, got"),
        ("zipf", {"d": 10**12}, "d must be at most 2\\^24 = 16,777,216 items, got 1000000000000"),
        ("paper-iid", {"d": 1 << 25}, "at most 2\\^24"),
        ("uniform", {"samples_per_user": 0}, "samples_per_user must be a positive integer, got 0"),
        ("gaussian", {"low": 1, "high": 1}, "need low < high"),
        ("gaussian", {"mean": 2.0}, "mean 2.0 lies outside"),
        ("gaussian", {"mean": [0.1, 0.2, 0.3]}, "3 values for 2 dimensions"),
        (
            "gaussian",
            {"low": 0.5, "high": 1, "mean": [0.7], "dimension": 2},
            "mean 0.0 lies outside",
        ),
    ],
)
def test_parameters_are_checked(kind: str, wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        population(kind, **(dict(SMALL)[kind] | wrong))


def test_words_are_other_names_for_the_same_items() -> None:
    """Each user's in the order of their bytes, as everywhere."""
    numbered = Zipf(n_users=300, d=50, mean_items=6.0, seed=3)
    users, words = numbered.make(0, 300), made_words(50)
    one, other = users.counts, in_words(users).counts
    worded = replace(numbered, names="words")  # of another seed, as it were
    assert worded.plan().domain == words == other.vocabulary == worded.make(0, 3).vocabulary
    for low, high in itertools.pairwise(one.indptr.tolist()):
        pairs = [
            list(zip(c.item[low:high].tolist(), c.count[low:high].tolist(), strict=True))
            for c in (one, other)
        ]
        assert sorted(pairs[0]) == sorted(pairs[1])
        names = [words[i].encode() for i, _ in pairs[1]]
        assert names == sorted(names)
    assert (one.indptr == other.indptr).all()
