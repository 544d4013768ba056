"""What the synthetic populations share: user names, ragged sizes and categorical draws.

Everything is drawn from one seeded NumPy generator, vectorised over users, and handed to the users
in the order of their ids, so nothing needs sorting afterwards.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers, Words, offsets
from fedhist.users.batch import Users
from fedhist.users.columns import Items, Samples
from fedhist.users.keys import Keys, user_ids_of_bytes
from simulations.config.reading import Finite, Must, Whole

CHUNK = 1 << 22  # draws at a time
Ragged = Must("a number or [lo, hi]", lambda pair: pair[0] <= pair[1])
Sizes = Whole | Annotated[tuple[Whole, Whole], Ragged]
"""Samples per user: one number, or [lo, hi] for ragged users."""
Leading = Finite | tuple[Finite, ...]
"""One value for all dimensions, or the leading ones, with zeros after them."""


def synthetic_ids(n_users: int) -> Words:
    """Return the sorted ids of the users "user-000000", "user-000001", ...: (n,) uint64."""
    width = max(6, len(str(n_users - 1)))
    digits = np.arange(n_users)[:, None] // 10 ** np.arange(width - 1, -1, -1) % 10
    prefix = np.frombuffer(b"user-", dtype=np.uint8)
    names = np.empty((n_users, len(prefix) + width), dtype=np.uint8)
    names[:, : len(prefix)] = prefix
    names[:, len(prefix) :] = digits + ord("0")
    offsets = np.arange(n_users + 1, dtype=np.int64) * names.shape[1]
    return np.sort(user_ids_of_bytes(offsets, names.ravel()))


def numbered_items(d: int) -> Keys:
    """Name items "item-1" to "item-d", padded so that their byte order is the numeric order.

    >>> list(numbered_items(10))[::9]
    ['item-01', 'item-10']
    """
    width = len(str(d))
    return Keys.of(f"item-{j:0{width}d}" for j in range(1, d + 1))


def categorical_users(
    rng: np.random.Generator, sizes: Integers, weights: Floats, mirrored: Array | None = None
) -> Users:
    """Draw ``sizes[u]`` independent items for each user and count them.

    Parameters
    ----------
    rng : numpy.random.Generator
    sizes : (n,) int64
        Items per user; zero gives an empty record.
    weights : (d,) float64
        Item j + 1 has probability weights[j] / weights.sum().
    mirrored : (n,) bool, optional
        Users for whom item j + 1 changes places with item d - j.

    Returns
    -------
    Users
        Over ``numbered_items(d)``.
    """
    n, d = len(sizes), len(weights)
    ptr = offsets(sizes)
    item = np.empty(ptr[-1], dtype=np.uint32)
    count = np.empty(ptr[-1], dtype=np.uint32)
    distinct = np.zeros(n, dtype=np.int64)
    filled, start = 0, 0
    while start < n:
        stop = max(start + 1, int(np.searchsorted(ptr, ptr[start] + CHUNK, side="right")) - 1)
        row = np.repeat(np.arange(stop - start), sizes[start:stop])
        drawn = categorical(rng, weights, len(row))
        if mirrored is not None:
            drawn = np.where(mirrored[start:stop][row], d - 1 - drawn, drawn)
        key = np.sort(row * d + drawn)
        first = np.flatnonzero(np.diff(key, prepend=-1))
        part = slice(filled, filled + len(first))
        who, what = np.divmod(key[first], d)
        item[part] = what
        count[part] = np.diff(first, append=len(key))
        distinct[start:stop] = np.bincount(who, minlength=stop - start)
        filled, start = filled + len(first), stop
    item.resize(filled, refcheck=False)
    count.resize(filled, refcheck=False)
    return Users(synthetic_ids(n), items=Items(numbered_items(d), offsets(distinct), item, count))


def distinct_users(rng: np.random.Generator, sizes: Integers, weights: Floats) -> Users:
    """Draw ``sizes[u]`` items for each user one after the other, without replacement.

    An item of weight w arrives after an exponential time of mean 1 / w; a user has the first ones.

    Parameters
    ----------
    rng : numpy.random.Generator
    sizes : (n,) int64
        Items per user, at most d.
    weights : (d,) float64
        Of the items that are left, one is drawn with probability proportional to its weight.

    Returns
    -------
    Users
        Over ``numbered_items(d)``; every count is 1.
    """
    n, d = len(sizes), len(weights)
    ptr = offsets(sizes)
    item = np.empty(ptr[-1], dtype=np.uint32)
    rows = max(CHUNK // d, 1)
    for start in range(0, n, rows):
        own = sizes[start : start + rows]
        order = np.argsort(rng.exponential(size=(len(own), d)) / weights, axis=1)
        kept = np.where(np.arange(d) < own[:, None], order, d)
        kept.sort(axis=1)
        item[ptr[start] : ptr[start + len(own)]] = kept[kept < d]
    count = np.ones(len(item), dtype=np.uint32)
    return Users(synthetic_ids(n), items=Items(numbered_items(d), ptr, item, count))


def categorical(rng: np.random.Generator, weights: Floats, n_draws: int) -> Integers:
    """Draw positions with probability proportional to the weights: (n_draws,) int64."""
    upper = np.cumsum(weights)
    upper /= upper[-1]
    return np.searchsorted(upper, rng.random(n_draws), side="right")


def draw_sizes(rng: np.random.Generator, n_users: int, sizes: Sizes) -> Integers:
    """Return each user's number of samples, (n_users,); log-uniform on lo, ..., hi for a pair."""
    if not isinstance(sizes, tuple):
        return np.full(n_users, sizes, dtype=np.int64)
    lo, hi = sizes
    u = rng.random(n_users)
    grown = np.floor(lo * ((hi + 1) / lo) ** u).astype(np.int64)
    return np.clip(grown, lo, hi)


def sampled_users(sizes: Integers, values: Floats) -> tuple[Users, str]:
    """Hand rows of samples to the synthetic users, and say how many there are of both."""
    users = Users(synthetic_ids(len(sizes)), samples=Samples(offsets(sizes), values))
    low, high = int(sizes.min()), int(sizes.max())
    each = f"{low}" if low == high else f"{low} to {high}"
    return users, f"{len(sizes):,} users, {each} samples each"


def leading(value: Leading, dimension: int) -> Floats:
    """Repeat one value, or take the leading ones and zeros after them: (dimension,) float64."""
    if not isinstance(value, tuple):
        return np.full(dimension, value)
    out = np.zeros(dimension)
    out[: len(value)] = value
    return out


def check_leading(name: str, value: Leading, dimension: int, what: str) -> None:
    """Refuse what :func:`leading` cannot take."""
    values = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(values) <= dimension:
        raise ValueError(f"{name} has {len(values)} values for {dimension} {what}")
