"""Synthetic populations: another for another seed, and the distributions they claim.

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
from simulations.populations.synthetic import in_words, made_words
from simulations.populations.zipf import Zipf

SMALL = [
    ("zipf", {"n_users": 200, "d": 30, "mean_items": 10}),
    ("paper-iid", {"n_users": 200}),
    ("paper-non-iid", {"n_users": 200}),
    ("uniform", {"n_users": 200, "samples_per_user": [1, 20]}),
    ("gaussian", {"n_users": 200, "samples_per_user": 3, "dimension": 2}),
    ("two-point", {"n_users": 200, "samples_per_user": [2, 9]}),
]


MORE = [
    ("paper-poisson", {}),
    ("regression", {"n_users": 9, "samples_per_user": 3, "dimension": 2}),
    ("density", {"n_users": 9, "samples_per_user": 3}),
]


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


def clipping_loss(users: Users, quantile: float) -> float:
    items = users.counts
    ends = np.concatenate(([0], np.cumsum(items.count.astype(np.int64))))
    sizes = ends[items.indptr[1:]] - ends[items.indptr[:-1]]
    return 1 - np.minimum(sizes, np.quantile(sizes, quantile)).sum() / sizes.sum()


def test_non_iid_rates() -> None:
    """Loss by clipping alone, 1 - E min(X, c) / E X with X a Poisson of a Gamma(a) rate."""
    n, a = 60_000, 0.5
    users = population("paper-non-iid", n_users=n, d=50, reading="fitted").load().users
    deviation = math.sqrt(100 + 100**2 / a)  # of a negative binomial size
    assert abs(users.counts.count.sum() / n - 100) < 7 * deviation / math.sqrt(n)
    size = scipy.stats.nbinom(a, a / (a + 100))
    for q, printed in ((0.5, 0.6957), (0.9, 0.1645)):  # in Table 1 of the paper, noise apart
        c = int(size.ppf(q))
        expected = 1 - size.sf(np.arange(c)).sum() / 100
        assert clipping_loss(users, q) == pytest.approx(expected, abs=0.015)
        assert clipping_loss(users, q) == pytest.approx(printed, abs=0.02)


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


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        ("zipf", {"tail": 1.0}, "tail must exceed 1"),
        ("paper-iid", {"d": 1 << 25}, "at most 2\\^24"),
        ("paper-non-iid", {"reading": "printed"}, "got 'printed'"),
        ("uniform", {"spread": 1.5}, "reach from -1.5 to 1.5, outside"),
        ("uniform", {"samples_per_user": [5, 2]}, r"got \(5, 2\)"),
        ("uniform", {"samples_per_user": [1, 10**40]}, "fewer than 2\\^32"),
        ("gaussian", {"low": 1, "high": 1}, "low < high"),
        ("gaussian", {"mean": 2.0}, "mean 2.0 lies outside"),
        ("gaussian", {"mean": [0.1, 0.2, 0.3]}, "3 values for 2"),
        ("gaussian", {"users": "outliers", "user_spread": 0.3}, r"1\.30767, outside \[-1, 1\]"),
        ("paper-poisson", {"alpha": math.nan}, "alpha"),
        ("regression", {"theta": [1.0] * 5}, "5 values for 2"),
        ("density", {"density": "two-bump"}, "'two-bumps'"),
        ("density", {"density": [1.0, 1.0]}, r"least value is -1\b"),
        ("density", {"density": "beta", "beta": [1.0, 0.0]}, "beta"),
    ],
)
def test_parameters_are_checked(kind: str, wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        population(kind, **(dict(SMALL + MORE)[kind] | wrong))


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
