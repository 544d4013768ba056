"""Synthetic populations: another for another seed, and the distributions they claim.

Every statistical check compares with a band of six standard errors or more: a false alarm has
probability below 2e-9 each, except for the mean of the heavy-tailed sizes, where a single huge
user can do it (3e-5). The seeds are fixed."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedhist.users.batch import Users
from simulations.populations import population
from simulations.populations.density_samples import BUMPS
from simulations.populations.synthetic import Zipf, in_words, made_words

SMALL = [
    ("zipf", {"n_users": 200, "d": 30, "mean_items": 10}),
    ("paper-iid", {"n_users": 200}),
    ("paper-non-iid", {"n_users": 200}),
    ("gaussian", {"n_users": 200, "samples_per_user": [1, 20], "dimension": 2}),
]


MORE = [
    ("paper-poisson", {}),
    ("regression", {"n_users": 9, "samples_per_user": 3, "dimension": 2}),
    ("density", {"n_users": 9, "samples_per_user": 3}),
]


def sizes(users: Users) -> np.ndarray:
    user = np.repeat(np.arange(len(users)), np.diff(users.counts.indptr))
    return np.bincount(user, users.counts.count.astype(float), len(users))


def numbers(users: Users) -> np.ndarray:
    return users.reals.values[:, 0]


def own_means(users: Users) -> np.ndarray:
    return numbers(users).reshape(len(users), -1).mean(axis=1)


def features(users: Users) -> np.ndarray:
    return users.reals.values[:, 1]


def residuals(users: Users) -> np.ndarray:
    score, y = users.reals.values[:, :2] @ [1.0, -0.5], users.reals.values[:, -1]
    labels = (np.abs(y) == 1).all()
    return (y - (np.tanh(score / 2) if labels else score)) * score


REALS = {"n_users": 3000, "samples_per_user": 10, "mean": 0.3, "spread": 0.2}
WIDE = {"low": -2.0, "high": 2.0}
OWN = REALS | {"spread": 1e-4, "user_spread": 0.15}
LINEAR = {"n_users": 400, "samples_per_user": 50, "dimension": 2, "theta": [1.0, -0.5]}


@pytest.mark.parametrize(
    ("kind", "fields", "of", "mean", "sd"),
    [
        ("paper-poisson", {"n_users": 50_000, "alpha": 1.0, "mean_items": 3.0}, sizes, 3, 12**0.5),
        ("paper-poisson", {"n_users": 50_000, "alpha": math.inf}, sizes, 1, 1),
        ("gaussian", REALS | WIDE, numbers, 0.3, 0.2),
        ("gaussian", OWN | {"users": "normal"}, own_means, 0.3, 0.15),
        ("regression", LINEAR | {"condition": 4.0}, features, 0, 0.5),
        ("regression", LINEAR | {"noise": 0.3}, residuals, 0, 0.3 * 1.25**0.5),
        ("regression", LINEAR | {"model": "logistic"}, residuals, 0, None),
    ],
)
def test_moments(kind: str, fields: Any, of: Any, mean: float, sd: float | None) -> None:
    x = of(population(kind, **fields).load().users)
    assert abs(x.mean() - mean) < 6 * x.std() / math.sqrt(len(x))
    assert sd is None or x.std() == pytest.approx(sd, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        ("zipf", {"tail": 1.0}, "tail must exceed 1"),
        ("paper-iid", {"d": 1 << 25}, "at most 2\\^24"),
        ("paper-non-iid", {"reading": "printed"}, "got 'printed'"),
        ("gaussian", {"samples_per_user": [5, 2]}, r"got \(5, 2\)"),
        ("gaussian", {"samples_per_user": [1, 10**40]}, "fewer than 2\\^32"),
        ("gaussian", {"low": 1, "high": 1}, "low < high"),
        ("gaussian", {"mean": 2.0}, "mean 2.0 lies outside"),
        ("gaussian", {"mean": [0.1, 0.2, 0.3]}, "3 values for 2"),
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


@pytest.mark.parametrize("density", ["uniform", *BUMPS, [0.4, -0.3, 0.0, 0.2]])
def test_draws_follow_the_density(density: str | list[float]) -> None:
    spec = population("density", n_users=400, samples_per_user=[10, 90], density=density, seed=3)
    loaded = spec.load()
    sizes = loaded.users.n_items()
    assert 10 <= sizes.min() < 15 < 80 < sizes.max() <= 90
    x = np.sort(loaded.users.reals.values[:, 0])
    assert loaded.value_range == (0.0, 1.0)
    assert 0 <= x[0] < x[-1] <= 1
    at = x[:: len(x) // 200]
    below = np.interp(
        at, np.arange(4097) / 4096, np.append(0, np.cumsum(spec.at_middles(4096))) / 4096
    )
    assert np.abs(np.searchsorted(x, at) / len(x) - below).max() < 1.95 / math.sqrt(len(x))
    assert spec.at_middles().mean() == pytest.approx(1)
    assert spec.at_middles().min() >= 0
