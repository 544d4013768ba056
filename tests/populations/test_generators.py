"""Synthetic users as functions of their number: the same in any slice, with pinned bits.

Every kernel is held against a slow version in Python. The statistical checks have fixed seeds;
each states the probability of a false alarm.
"""

from __future__ import annotations

import hashlib
import math
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from simulations.populations import Plan, population
from simulations.populations.draws import Choice, each, items_kernel, normal_of, unit, words

KINDS: list[tuple[str, dict[str, Any], str]] = [
    ("zipf", {"d": 30, "mean_items": 10}, "0f53943982768e7e"),
    ("zipf", {"d": 30, "mean_items": 10, "users": "dirichlet"}, "8f1548d957b46c3a"),
    ("paper-iid", {"d": 7, "mean_items": 6.0}, "5a8e66d8c64e6ce2"),
    ("paper-non-iid", {"d": 7, "mean_items": 6.0}, "1bec90aacc61c784"),
    ("paper-poisson", {}, "63fa2027b9cd0d45"),
    ("gaussian", {"samples_per_user": 2, "dimension": 2, "users": "normal"}, "10866b78352223b2"),
    ("gaussian", {"samples_per_user": [1, 5]}, "70dd1fd384239f06"),
    (
        "regression",
        {"samples_per_user": [1, 3], "dimension": 2, "user_spread": 0.5},
        "1bcd09d849f90211",
    ),
    (
        "regression",
        {"samples_per_user": 2, "dimension": 2, "model": "logistic"},
        "152500218582c3cc",
    ),
    ("density", {"samples_per_user": [1, 4], "users": "dirichlet"}, "57dc4c4f484d4b50"),
    (
        "density",
        {"samples_per_user": 2, "density": "beta"},
        "73509ad3d9f8ea59",
    ),
]
"""Kind, fields, and the digest of users 0 to 499."""


def bits(users: Users) -> list[bytes]:
    if users.items is not None:
        columns = (users.ids, users.items.indptr, users.items.item, users.items.count)
    else:
        columns = (users.ids, users.reals.indptr, users.reals.values)
    return [np.ascontiguousarray(a).tobytes() for a in columns]


def plan(kind: str, fields: dict[str, Any], n_users: int = 500) -> Plan:
    return population(kind, **fields, n_users=n_users, seed=7).plan()


def rounded(users: Users) -> str:
    parts = bits(users)
    if users.samples is not None:
        values = np.round(users.reals.values, 9) + 0.0
        parts = [users.ids.tobytes(), users.reals.indptr.tobytes(), values.tobytes()]
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


@pytest.mark.parametrize(("kind", "fields", "digest"), KINDS)
def test_users_are_the_same_in_any_slice(kind: str, fields: dict[str, Any], digest: str) -> None:
    """One slice = 7 unequal slices = single users, in bytes; and what they were last year."""
    users = plan(kind, fields).users
    whole = users.in_memory()
    edges = [0, 1, 60, 61, 200, 333, 499, 500]
    parts = [users.slice(a, b).slice(0, b - a) for a, b in pairwise(edges)]
    made = [list(part.blocks(64)) for part in reversed(parts)]
    again = users.none.followed_by(block for blocks in reversed(made) for block in blocks)
    assert bits(again) == bits(whole)
    for k in (0, 17, 499):
        assert bits(users.slice(k, k + 1).in_memory()) == bits(whole.slice(k, k + 1).copy())
    assert bits(population(kind, **fields, n_users=500, seed=7).load().users) == bits(whole)
    assert users.public_ids().tobytes() == bits(whole)[0]
    assert len(users.none) == len(users.slice(3, 3).in_memory()) == 0
    assert rounded(whole) == digest


@pytest.mark.parametrize(("kind", "fields", "_"), KINDS)
def test_plans_are_small_and_reach_2_to_the_32(kind: str, fields: dict[str, Any], _: str) -> None:
    made = plan(kind, fields, 1 << 32)
    last = made.users.slice((1 << 32) - 1, 1 << 32)
    assert len(made.users) == 1 << 32
    assert len(pickle.dumps(made)) < 4000
    far = pickle.loads(pickle.dumps(last))
    assert bits(far.in_memory()) == bits(last.in_memory())
    assert len(pickle.dumps(far)) < 1000  # its tables do not travel
    assert population(kind, **fields, n_users=(1 << 32) - 1).n_users
    with pytest.raises(ValueError, match=r"n_users must be at most 2\^32 = 4,294,967,296, got"):
        population(kind, **fields, n_users=(1 << 32) + 1)


def test_rows_of_many_items_are_counted_as_drawn() -> None:
    """Against NumPy."""
    choice, keys = Choice(1.0 / np.arange(1.0, 70_001)), np.array([5, 6], dtype=np.uint64)
    sizes = np.array([0, 1, 16, 17, 40, 3000, 5])
    indptr, room = np.zeros(8, dtype=np.int64), sizes.sum()
    item, count = np.empty(room, np.uint32), np.empty(room, np.uint32)
    tables = choice.last, choice.guide, 0.0
    items_kernel(keys, np.uint64(9), sizes, *tables, indptr, item, count)
    for u, size in enumerate(sizes):
        drawn = words(keys[0], 9 + u, each(1, 1500))[:, 0]
        halves = np.stack([drawn, drawn << np.uint64(32)], axis=1).reshape(-1)
        items, counts = np.unique(choice.of(halves[:size]), return_counts=True)
        part = slice(indptr[u], indptr[u + 1])
        assert item[part].tolist() == items.tolist()
        assert count[part].tolist() == counts.tolist()


W = words(np.uint64(11), 0, each(400_000))[:, 0]


def test_normals() -> None:
    """Kolmogorov-Smirnov (1e-6); against SciPy on both sides of depth 5, and beyond."""
    assert scipy.stats.kstest(normal_of(W), "norm").pvalue > 1e-6
    far = np.arange(3000, dtype=np.uint64) << np.uint64(25)
    for some in (np.concatenate([far, ~far]), W[:3000]):
        assert normal_of(some) == pytest.approx(scipy.special.ndtri(unit(some)), abs=1e-13)


def test_too_many_draws_of_a_user() -> None:
    many = {"n_users": 2, "samples_per_user": 1 << 31, "dimension": 2}
    with pytest.raises(PopulationError, match=r"fewer than 2\^32 = 4,294,967,296 draws, one had"):
        population("gaussian", **many).load()
    for kind, fields in (("zipf", {"d": 5, "tail": math.inf}), ("paper-iid", {})):
        with pytest.raises(PopulationError, match=r"fewer than 2\^32"):
            population(kind, n_users=2, mean_items=1e12, **fields).load()
    sizes = [1 << 31, (1 << 32) - 1]
    with pytest.raises(PopulationError, match=r"fewer than 2\^32"):
        population("gaussian", n_users=9, samples_per_user=sizes, dimension=2).load()
