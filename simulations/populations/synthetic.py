"""What the synthetic populations share: user names, ragged sizes and categorical draws.

Everything is drawn from one seeded NumPy generator, vectorised over users, and handed to the users
in the order of their ids, so nothing needs sorting afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.checks import check_integer
from fedhist.users.batch import Items, Samples, Users
from fedhist.users.keys import Keys, user_ids_of_bytes
from simulations.populations.base import (
    Loaded,
    PopulationSpec,
    finite,
    positive,
)

CHUNK = 1 << 22  # draws at a time


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
    rng: np.random.Generator, sizes: NDArray[np.int64], weights: NDArray[np.float64]
) -> Users:
    """Draw ``sizes[u]`` independent items for each user and count them.

    Parameters
    ----------
    rng : numpy.random.Generator
    sizes : (n,) int64
        Items per user; zero gives an empty record.
    weights : (d,) float64
        Item j + 1 has probability weights[j] / weights.sum().

    Returns
    -------
    Users
        Over ``numbered_items(d)``.
    """
    n, d = len(sizes), len(weights)
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(sizes, out=ptr[1:])
    item = np.empty(ptr[-1], dtype=np.uint32)
    count = np.empty(ptr[-1], dtype=np.uint32)
    distinct = np.zeros(n, dtype=np.int64)
    filled, start = 0, 0
    while start < n:
        stop = max(start + 1, int(np.searchsorted(ptr, ptr[start] + CHUNK, side="right")) - 1)
        row = np.repeat(np.arange(stop - start), sizes[start:stop])
        key = np.sort(row * d + categorical(rng, weights, len(row)))
        first = np.flatnonzero(np.diff(key, prepend=-1))
        part = slice(filled, filled + len(first))
        who, what = np.divmod(key[first], d)
        item[part] = what
        count[part] = np.diff(first, append=len(key))
        distinct[start:stop] = np.bincount(who, minlength=stop - start)
        filled, start = filled + len(first), stop
    item.resize(filled, refcheck=False)
    count.resize(filled, refcheck=False)
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(distinct, out=indptr[1:])
    return Users(synthetic_ids(n), items=Items(numbered_items(d), indptr, item, count))


def categorical(
    rng: np.random.Generator, weights: NDArray[np.float64], n_draws: int
) -> NDArray[np.int64]:
    """Draw positions with probability proportional to the weights: (n_draws,) int64."""
    upper = np.cumsum(weights)
    upper /= upper[-1]
    return np.searchsorted(upper, rng.random(n_draws), side="right")


def check_sizes(sizes: Any) -> None:
    """Refuse numbers of samples per user that are neither a positive integer nor [lo, hi]."""
    pair = list(sizes) if isinstance(sizes, list | tuple) else [sizes, sizes]
    for size in pair:
        check_integer("samples_per_user", size)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise ValueError(f"samples_per_user must be a number or [lo, hi], got {sizes!r}")


def draw_sizes(
    rng: np.random.Generator, n_users: int, sizes: int | list[int] | tuple[int, int]
) -> NDArray[np.int64]:
    """Return each user's number of samples, (n_users,); log-uniform on lo, ..., hi for a pair."""
    if not isinstance(sizes, list | tuple):
        return np.full(n_users, sizes, dtype=np.int64)
    lo, hi = sizes
    u = rng.random(n_users)
    grown = np.floor(lo * ((hi + 1) / lo) ** u).astype(np.int64)
    return np.clip(grown, lo, hi)


@dataclass(frozen=True, kw_only=True)
class SharedMean(PopulationSpec):
    """Real samples in a public range; all users' samples have one and the same mean.

    Parameters
    ----------
    n_users : int
    samples_per_user : int or [lo, hi]
        A pair gives ragged users: the number of samples is log-uniform on lo, ..., hi.
    mean : float or list of float
        One value for all dimensions, or the leading ones of ``dimension`` values; the others
        are zero (a sparse mean).
    spread : float
        Scale of one sample around the mean; see the kind.
    low, high : float
        Public range of every coordinate.
    dimension : int, default 1
    seed : int
    """

    n_users: int
    samples_per_user: int | list[int] | tuple[int, int]
    mean: float | list[float] | tuple[float, ...] = 0.0
    spread: float = 0.25
    low: float = -1.0
    high: float = 1.0
    dimension: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("n_users", self.n_users)
        check_integer("dimension", self.dimension)
        check_integer("seed", self.seed, least=0)
        positive("spread", self.spread)
        finite("low", self.low)
        finite("high", self.high)
        if not self.low < self.high:
            raise ValueError(f"need low < high, got [{self.low}, {self.high}]")
        check_sizes(self.samples_per_user)
        means = self.mean if isinstance(self.mean, list | tuple) else [self.mean]
        if not 1 <= len(means) <= self.dimension:
            raise ValueError(f"mean has {len(means)} values for {self.dimension} dimensions")
        for value in means:
            finite("mean", value)
        outside = [float(c) for c in self.centre if not self.low <= c <= self.high]
        if outside:
            raise ValueError(f"mean {outside[0]} lies outside [{self.low}, {self.high}]")

    @property
    def centre(self) -> NDArray[np.float64]:
        """The mean that all users share: (dimension,) float64."""
        if not isinstance(self.mean, list | tuple):
            return np.full(self.dimension, float(self.mean))
        centre = np.zeros(self.dimension)
        centre[: len(self.mean)] = self.mean
        return centre

    def _fits(self) -> None:
        """Refuse a spread that leads out of the range."""
        lo, hi = self.centre.min() - self.spread, self.centre.max() + self.spread
        if lo < self.low or hi > self.high:
            raise ValueError(
                f"mean and spread reach from {lo} to {hi}, outside [{self.low}, {self.high}]"
            )

    def _sizes(self, rng: np.random.Generator) -> NDArray[np.int64]:
        return draw_sizes(rng, self.n_users, self.samples_per_user)

    def _loaded(
        self,
        sizes: NDArray[np.int64],
        values: NDArray[np.float64],
        what: str,
        **more: Any,
    ) -> Loaded:
        indptr = np.zeros(self.n_users + 1, dtype=np.int64)
        np.cumsum(sizes, out=indptr[1:])
        users = Users(synthetic_ids(self.n_users), samples=Samples(indptr, values))
        size = (
            f"{int(sizes[0])}" if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"
        )
        title = f"{what}: {self.n_users:,} users, {size} samples each"
        return Loaded(users, title, value_range=(float(self.low), float(self.high)), **more)
