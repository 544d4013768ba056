"""What all protocols that estimate quantiles share: value, truth, and the rank error as loss."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from fedhist.base.arrays import Array, Floats
from fedhist.base.checks import check_integer
from fedhist.base.errors import PopulationError
from fedhist.base.text import warned
from fedhist.model.display import Display
from fedhist.model.measures import Measured
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.truths import Truth
from fedhist.protocols.quantiles.bin_shares import BinShares
from fedhist.protocols.quantiles.on_bins import OF
from fedhist.protocols.quantiles.theory import Ranks
from fedhist.protocols.shared.sample_sizes import resolve_users
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard

MOST_USERS = 1 << 32
LARGE = 0.1
"""Planned error from which on an estimate comes with a warning."""


class QuantileTarget(Protocol):
    """A protocol whose estimate has an entry for each level: the middle of a public bin.

    Subclasses are frozen dataclasses with these fields. The truth is of the average user: every
    user with usable samples has the same weight, however many samples it has.
    """

    target: ClassVar[str] = "quantiles"
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

    def ranked(self, users: Users) -> tuple[Floats, Floats]:
        """Sort the users' numbers: with the share of the users at or below each. NOT PRIVATE."""
        owner, x = self.grid.points(users)
        if not len(x):
            raise PopulationError("no user has usable samples; there are no quantiles")
        order = np.argsort(x, kind="stable")
        upto = np.cumsum(1.0 / np.bincount(owner)[owner[order]])
        return x[order], upto / upto[-1]

    def truth(self, users: Users) -> Array:
        """Return the quantiles themselves, (J,), unclipped and unbinned. NOT PRIVATE."""
        x, upto = self.ranked(users)
        at = np.searchsorted(upto, self.positions - 1e-12)
        return np.asarray(x[np.minimum(at, len(x) - 1)])

    def rank_errors(self, value: Array, users: Users) -> Floats:
        """Measure each level's distance from the ranks of each value, (J, values). NOT PRIVATE.

        A value stands for all numbers within 1e-9 of the range: a bin's middle is computed.
        """
        x, upto = self.ranked(users)
        cdf, q, near = np.append(0.0, upto), self.positions[:, None], 1e-9 * (self.high - self.low)
        first = cdf[np.searchsorted(x, value - near, "left")]
        last = cdf[np.searchsorted(x, value + near, "right")]
        return np.asarray(np.maximum(np.maximum(first - q, q - last), 0.0))

    def ranks(self, users: Users) -> Ranks:
        """Say how the users lie over the bins. NOT PRIVATE."""
        x, upto = self.ranked(users)
        edges = np.linspace(self.low, self.high, self.n_bins + 1)
        ends = np.append(np.append(0.0, upto)[np.searchsorted(x, edges[1:-1])], 1.0)
        n = len(users)
        unusable = int(self.diagnostics(users)["unusable records"])
        return Ranks(
            n - unusable,
            ends,
            self.positions,
            self.rank_errors(self.grid.midpoints, users),
            unusable / n,
            self._between(users),
        )

    def _between(self, users: Users) -> float:
        """Compare the variance of the users' own shares below the median with that of all."""
        owner, x = self.grid.points(users)
        sizes = np.bincount(owner)
        weight = 1.0 / sizes[owner]
        order = np.argsort(x, kind="stable")
        at = np.searchsorted(np.cumsum(weight[order]), np.count_nonzero(sizes) / 2)
        below = np.bincount(owner, weight * (x <= x[order[min(int(at), len(x) - 1)]]))[sizes > 0]
        share = float(below.mean())
        return float(below.var() / (share * (1 - share))) if 0 < share < 1 else 1.0

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
        known: Measured | None = None,
    ) -> float:
        """Return the largest rank error of the levels. NOT PRIVATE."""
        if estimate.value is None:
            raise ValueError(f"{self.name}: {estimate.status}: {estimate.reason}")
        return float(self.rank_errors(estimate.value, users.in_memory()).diagonal().max())

    def diagnostics(self, users: Users) -> Mapping[str, float]:
        """Count the users whose record the null record replaces. NOT PRIVATE."""
        usable = np.unique(self.grid.points(users)[0])
        return {"unusable records": float(len(users) - len(usable))}

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Take n_users from the population, where the configuration does not name it."""
        return resolve_users(parameters, users)
