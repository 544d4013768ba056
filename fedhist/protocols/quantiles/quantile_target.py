"""What all protocols that estimate quantiles share: value, truth, and the rank error as loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.checks import check_integer
from fedhist.base.errors import PopulationError
from fedhist.base.text import warned
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts, measured
from fedhist.model.protocol import Estimate
from fedhist.model.truths import Truth
from fedhist.protocols.quantiles.bin_shares import BinShares
from fedhist.protocols.quantiles.on_bins import OF
from fedhist.protocols.quantiles.rank_sums import (
    Interval,
    around,
    bin_cuts,
    cell_weights,
    interval_weights,
    order_statistics,
    share_below,
)
from fedhist.protocols.quantiles.theory import Ranks
from fedhist.protocols.shared.sample_sizes import PlannedUsers
from fedhist.users.batch import Users
from fedhist.users.shards import Shard

MOST_USERS = 1 << 32
LARGE = 0.1
"""Planned error from which on an estimate comes with a warning."""


class QuantileTarget(PlannedUsers):
    """A protocol whose estimate has an entry for each level: the middle of a public bin.

    Subclasses are frozen dataclasses with these fields. The truth is of the average user: every
    user with usable samples has the same weight, however many samples it has.
    """

    target: ClassVar[str] = "quantiles"
    loss_name: ClassVar[str] = "rank error"
    display: ClassVar[Display | None] = Display(form="quantiles", label="value", entry="level")
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
        check_integer("n_users", self.n_users, MOST_USERS)
        _ = self.grid

    @property
    def positions(self) -> Array:
        """The levels."""
        return np.array(self.levels)

    @property
    def estimates(self) -> Truth:
        """Of samples, each user weighing the same; or of the users' own means."""
        return Truth.AVERAGE_OF_USERS if self.of == OF[0] else Truth.OWN_MEANS

    def numbers(self, users: Users) -> tuple[Integers, Floats, Floats]:
        """List numbers, the row of the user who holds each, and its weight among that user's."""
        owner, x = self.grid.points(users)
        return owner, x, 1.0 / np.bincount(owner)[owner]

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Count who has numbers, and weigh them around the public bins."""
        owner, x, weight = self.numbers(users)
        n = np.count_nonzero(np.bincount(owner), keepdims=True)
        return {"usable": n, "cells": cell_weights(x, weight, self.cuts)}

    @property
    def cuts(self) -> Floats:
        """Where the bins end, and around their middles."""
        return bin_cuts(float(self.low), float(self.high), self.n_bins)

    def quantiles(self, levels: Array, facts: Facts) -> Floats:
        """Return the users' quantiles themselves, unclipped and unbinned. NOT PRIVATE."""
        if not facts["usable"][0]:
            raise PopulationError("no user has usable samples; there are no quantiles")

        def count(intervals: Sequence[Interval]) -> Floats:
            def of(users: Users) -> dict[str, Array]:
                _, x, weight = self.numbers(users)
                return {"weights": interval_weights(x, weight, intervals)}

            return facts.walk(of).sums["weights"]

        return order_statistics(levels, self.cuts, facts["cells"], count)

    def truth_of(self, facts: Facts) -> Array:
        """Return the quantiles themselves: (J,). NOT PRIVATE."""
        return self.quantiles(self.positions, facts)

    def rank_errors(self, value: Array, facts: Facts) -> Floats:
        """Measure each level's distance from the ranks of each value, (J, values). NOT PRIVATE.

        A value stands for all numbers within 1e-9 of the range: a bin's middle is computed.
        """
        if not facts["usable"][0]:
            raise PopulationError("no user has usable samples; there are no quantiles")
        low, high = around(value, float(self.low), float(self.high))
        cuts, cells = self.cuts, facts["cells"]
        if not np.isin(value, self.grid.midpoints).all():  # of another protocol, or of no bins
            cuts = np.unique(np.concatenate((low, high)))

            def of(users: Users) -> dict[str, Array]:
                _, x, weight = self.numbers(users)
                return {"cells": cell_weights(x, weight, cuts)}

            cells = facts.walk(of).sums["cells"]
        first, last = share_below(low, cuts, cells), share_below(high, cuts, cells)
        q = self.positions[:, None]
        return np.asarray(np.maximum(np.maximum(first - q, q - last), 0.0))

    def ranks(self, facts: Facts) -> Ranks:
        """Say how the users lie over the bins. NOT PRIVATE."""
        errors = self.rank_errors(self.grid.midpoints, facts)
        edges = np.linspace(self.low, self.high, self.n_bins + 1)[1:-1]
        ends = np.append(share_below(edges, self.cuts, facts["cells"]), 1.0)
        usable, n = int(facts["usable"][0]), facts.n_users
        return Ranks(usable, ends, self.positions, errors, (n - usable) / n)

    def too_few(self, least: int, more: str = "") -> Estimate:
        """Refuse: so many users would do."""
        what = f"{len(self.levels)} levels over {self.n_bins} bins{more}"
        return Estimate.refused(f"{self.n_users} users are too few for {what}: {least} at least")

    @staticmethod
    def warned(planned: float) -> tuple[str, ...]:
        """Warn of a rank error that is planned to be large."""
        if planned <= LARGE:
            return ()
        what = f"with so few users a quantile's rank is off by {planned:.2f} or so"
        means = f"what is shown for the level 0.5 may be that of {0.5 + planned:.2f}"
        return (warned(what, means, "ask for fewer levels, or more users"),)

    def loss(self, value: Array, truth: Array) -> float:
        """Return the largest distance as a share of the range; ranks take :meth:`loss_of`."""
        return float(np.abs(value - truth).max() / (self.high - self.low))

    def loss_of(
        self,
        estimate: Estimate,
        users: Shard,
        truth: Array | None = None,
        known: Facts | None = None,
    ) -> float:
        """Return the largest rank error of the levels. NOT PRIVATE."""
        value = estimate.needed(self.name)
        facts = measured(self, users) if known is None else known
        return float(self.rank_errors(value, facts).diagonal().max())

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        """Count the users whose record the null record replaces. NOT PRIVATE."""
        return {"unusable records": float(facts.n_users - facts["usable"][0])}

    @classmethod
    def example_users(cls) -> Users:
        """Make users with up to four samples; one has none, one a NaN, one an infinite sample."""
        rng, n = np.random.default_rng(7), cls.example().n_users - 3
        some = {f"u{i}": rng.beta(2, 3, i % 4 + 1) for i in range(n)}
        return Users.from_records(some | {"a": [], "b": [0.5, np.nan], "c": [np.inf]})
