"""What protocols that estimate quantiles share: value, truth, and the rank error as loss.

Ranks at public points take one pass over blocks of users. A true quantile is then narrowed down to
one double: each pass cuts the interval that holds it into cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np

from clients.quantiles.queries import MOST_LEVELS, OF, BinShares, middles
from fedhist.base.arrays import Array, Floats, Integers, Words
from fedhist.base.checks import check_integer
from fedhist.base.errors import PopulationError
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate
from fedhist.model.truths import Truth
from fedhist.users.batch import Users
from server.targets.sample_sizes import PlannedUsers


class QuantileTarget(PlannedUsers):
    """A protocol whose estimate has an entry for each level: the middle of a public bin."""

    target: ClassVar[str] = "quantiles"
    loss_name: ClassVar[str] = "rank error"
    display: ClassVar[Display | None] = Display(form="quantiles", label="value", entry="level")
    epsilon: float
    levels: tuple[float, ...]
    low: float
    high: float
    n_users: int
    n_bins: int
    of: str

    @property
    def grid(self) -> BinShares:
        """How a record lies over the public bins."""
        return BinShares(self.low, self.high, self.n_bins, self.of)

    def check_levels(self) -> None:
        """Raise ValueError, with the value, unless levels, bins and n_users are valid."""
        edges = (0.0, *self.levels, 1.0)
        if not self.levels or not all(a < b for a, b in pairwise(edges)):
            raise ValueError(f"levels must increase inside (0, 1), got {self.levels}")
        if len(self.levels) > MOST_LEVELS:
            raise ValueError(f"at most {MOST_LEVELS} levels, got {len(self.levels)}")
        check_integer("n_users", self.n_users, 1 << 32)
        _ = self.grid

    @property
    def positions(self) -> Array:
        return np.array(self.levels)

    @property
    def estimates(self) -> Truth:
        return Truth.AVERAGE_OF_USERS if self.of == OF[0] else Truth.OWN_MEANS

    def numbers(self, users: Users) -> tuple[Integers, Floats, Floats]:
        """List numbers, the row of the user who holds each, and its weight among that user's."""
        owner, x = self.grid.points(users)
        return owner, x, 1.0 / np.bincount(owner)[owner]

    def sums(self, users: Users) -> Mapping[str, Array]:
        owner, x, weight = self.numbers(users)
        n = np.count_nonzero(np.bincount(owner), keepdims=True)
        return {"usable": n, "cells": cell_weights(x, weight, self.cuts)}

    @property
    def cuts(self) -> Floats:
        """Where the bins end, and around their middles."""
        return bin_cuts(float(self.low), float(self.high), self.n_bins)

    def truth_of(self, facts: Facts) -> Array:
        """Return the users' quantiles themselves, unclipped and unbinned: (J,). NOT PRIVATE."""
        _check_some(facts)
        cuts, cells = self.cuts, facts["cells"]
        wanted = (self.positions - 1e-12) * cells.sum()  # what rounding may leave below a level
        ends = keys_of(np.array([-np.inf, np.inf])) + np.array([0, 1], dtype=np.uint64)
        while True:
            edges = np.concatenate((ends[:1], keys_of(cuts), ends[1:]))
            at = np.searchsorted(np.cumsum(cells), wanted)
            low, high = edges[at], edges[at + 1]
            if (high - low <= 1).all():
                return numbers_of(low)
            cuts = cuts_between(low, high)
            cells = self._cells(facts, cuts)

    def _cells(self, facts: Facts, cuts: Floats) -> Floats:
        """Add up the weights of all users between cuts."""

        def of(users: Users) -> dict[str, Array]:
            _, x, weight = self.numbers(users)
            return {"cells": cell_weights(x, weight, cuts)}

        return facts.walk(of).sums["cells"]

    def rank_errors(self, value: Array, facts: Facts) -> Floats:
        """Measure each level's distance from the ranks of its value: (J,). NOT PRIVATE."""
        _check_some(facts)
        low, high = around(value, float(self.low), float(self.high))
        cuts, cells = self.cuts, facts["cells"]
        if not np.isin(value, self.grid.midpoints).all():  # of another protocol, or of no bins
            cuts = np.unique(np.concatenate((low, high)))
            cells = self._cells(facts, cuts)
        first, last = share_below(low, cuts, cells), share_below(high, cuts, cells)
        q = self.positions
        return np.asarray(np.maximum(np.maximum(first - q, q - last), 0.0))

    def largest_bin(self, facts: Facts) -> float:
        """Return the largest share of the users in one bin. NOT PRIVATE."""
        edges = np.linspace(self.low, self.high, self.n_bins + 1)[1:-1]
        ends = share_below(edges, self.cuts, facts["cells"])
        return float(np.diff(ends, prepend=0.0, append=1.0).max())

    def too_few(self, least: int) -> Estimate:
        """Refuse: so many users would do."""
        what = f"{len(self.levels)} levels over {self.n_bins} bins at epsilon {self.epsilon:g}"
        return Estimate.refused(f"{self.n_users} users are too few for {what}: {least} at least")

    def loss(self, value: Array, truth: Array) -> float:
        """Return the largest distance as a share of the range; ranks take :meth:`loss_of`."""
        return float(np.abs(value - truth).max() / (self.high - self.low))

    def loss_in(self, value: Array, known: Facts, truth: Array | None) -> float:
        """Return the largest rank error of the levels. NOT PRIVATE."""
        return float(self.rank_errors(value, known).max())

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        return {"unusable records": float(facts.n_users - facts["usable"][0])}

    @classmethod
    def example_users(cls) -> Users:
        """Make users with up to four samples; one has none, one a NaN, one an infinite sample."""
        rng, n = np.random.default_rng(7), cls.example().n_users - 3
        some = {f"u{i}": rng.beta(2, 3, i % 4 + 1) for i in range(n)}
        return Users.from_records(
            some | {"a": [], "b": [0.5, np.nan], "c": [np.inf]}, unusable=True
        )


def _check_some(facts: Facts) -> None:
    if not facts["usable"][0]:
        raise PopulationError("no user has usable samples; there are no quantiles")


# -- ranks at public points


@lru_cache(maxsize=64)
def bin_cuts(low: float, high: float, n_bins: int) -> Floats:
    """Return where ranks are asked for: ends of public bins, and around their middles."""
    edges = np.linspace(low, high, n_bins + 1)[1:-1]
    cuts = np.unique(np.concatenate((edges, *around(middles(low, high, n_bins), low, high))))
    cuts.setflags(write=False)
    return cuts


def around(x: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Return the ends of what a number stands for: all within 1e-9 of the range, and no more."""
    near = 1e-9 * (high - low)
    return x - near, np.nextafter(x + near, np.inf)


def cell_weights(x: Floats, weight: Floats, cuts: Floats) -> Floats:
    """Add up the weights between increasing cuts, each in the cell above it: (len(cuts) + 1,)."""
    at = np.searchsorted(cuts, x, side="right")
    return np.bincount(at, weight, len(cuts) + 1).astype(np.float64)


def share_below(at: Floats, cuts: Floats, cells: Floats) -> Floats:
    """Return the share of the weights below points that are among the cuts."""
    upto = np.cumsum(cells)
    return np.asarray(upto[np.searchsorted(cuts, at)] / upto[-1])


# -- doubles in their order, as integers


def keys_of(x: Floats) -> Words:
    """Give doubles integers in the same order: (n,) uint64.

    >>> x = np.array([-np.inf, -2.0, -0.0, 0.0, 1e-300, np.inf])
    >>> bool((np.diff(keys_of(x).astype(float)) >= 0).all()), numbers_of(keys_of(x)).tolist()
    (True, [-inf, -2.0, 0.0, 0.0, 1e-300, inf])
    """
    bits = (x + 0.0).view(np.uint64)  # one zero
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(1 << 63))


def numbers_of(keys: Words) -> Floats:
    """Return the doubles of such numbers."""
    positive = keys >> np.uint64(63) == 1
    return np.where(positive, keys ^ np.uint64(1 << 63), ~keys).view(np.float64)


def cuts_between(low: Words, high: Words) -> Floats:
    """Cut intervals of keys, from the first to before the last, into some 2^12 cells each."""
    spans = [
        np.arange(a, b + max(1, (b - a) >> 12), max(1, (b - a) >> 12), dtype=np.uint64).clip(max=b)
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]
    return numbers_of(np.unique(np.concatenate(spans)))
