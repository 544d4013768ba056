"""Users of results rows: the kinds of [population], and some that only theory is checked on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments.local_populations import fresh_ids, items_of
from simulations.populations import population


def made(words: Mapping[str, Any], seed: int | None = None) -> Users:
    """Make the users that a row names; with a seed others of the same law, under ids of their own.

    Parameters
    ----------
    words : mapping
        As in [population]; "kind" may also be shoppers, mixed-poisson, items or distinct.
    seed : int, optional
        Default: that of the words, or 0.
    """
    given = dict(words)
    kind, own = given.pop("kind"), int(given.pop("seed", 0))
    used = own if seed is None else seed
    if kind in RECIPES:
        users = RECIPES[kind](np.random.default_rng(used), **given)
    else:
        users = population(kind, **given, seed=used).load().users
    if seed is None:
        return users
    # how users are split into cohorts and folds hangs on their ids
    return replace(users, ids=fresh_ids(len(users), np.random.default_rng(seed)))


def shoppers(
    rng: np.random.Generator, n_users: int, d: int, mean_items: float = 20, exponent: float = 1.0
) -> Users:
    """Make users with geometric sizes and Zipf items."""
    sizes = rng.geometric(1 / mean_items, n_users)
    weights = 1 / np.arange(1, d + 1) ** exponent
    user = np.repeat(np.arange(n_users), sizes)
    item = rng.choice(d, size=len(user), p=weights / weights.sum())
    keys = Keys.of([f"item-{i:04d}" for i in range(d)])
    return Users.from_counts(np.arange(n_users), user, item, np.ones(len(user), np.int64), keys)


def mixed_poisson(
    rng: np.random.Generator, n_users: int, rates: Sequence[float], shape: float
) -> Users:
    """Make users whose Poisson rates are a Gamma variable of their own times the common ones."""
    counts = rng.poisson(rng.gamma(shape, 1 / shape, (n_users, 1)) * np.asarray(rates))
    user, item = np.nonzero(counts)
    keys = Keys.of([f"word-{j}" for j in range(len(rates))])
    return Users.from_counts(np.arange(n_users), user, item, counts[user, item], keys)


def items(
    rng: np.random.Generator, n_users: int, d: int, items: int, exponent: float = 1.0
) -> Users:
    """Make users of equally many Zipf items each."""
    p = 1 / np.arange(1, d + 1) ** exponent
    return items_of(n_users, items, p / p.sum(), rng)


def distinct(
    rng: np.random.Generator, n_users: int, d: int, items: int, exponent: float = 1.0
) -> Users:
    """Make users of equally many different Zipf items each, drawn one after the other."""
    keys = -exponent * np.log(np.arange(1, d + 1)) + rng.gumbel(size=(n_users, d))
    item = np.argpartition(-keys, items, axis=1)[:, :items]
    user = np.repeat(np.arange(n_users), items)
    names = Keys.of([f"item-{i:04d}" for i in range(d)])
    return Users.from_counts(
        np.arange(n_users), user, item.ravel(), np.ones(len(user), np.int64), names
    )


RECIPES: Mapping[str, Callable[..., Users]] = {
    "shoppers": shoppers,
    "mixed-poisson": mixed_poisson,
    "items": items,
    "distinct": distinct,
}
