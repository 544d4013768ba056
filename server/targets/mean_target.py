"""What all protocols that estimate the mean of samples share: truth, loss and diagnostics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from clients.records.functionals import samples_of
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Array
from fedhist.base.errors import PopulationError
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Protocol
from fedhist.model.truths import SQUARED_L2, LowerBound, Truth, squared_l2
from fedhist.users.batch import Users
from server.targets.lower_bounds import coins, local_bounds, planned_sizes
from server.targets.sample_sizes import held


class MeanTarget(Protocol):
    """A protocol whose estimate is the average of the users' own means."""

    target: ClassVar[str] = "mean"
    loss_name: ClassVar[str] = "squared l2"
    display: ClassVar[Display | None] = Display(
        label="mean (units of the samples)", unit="units of the samples", loss=SQUARED_L2
    )

    @property
    def estimates(self) -> Truth:
        return Truth.AVERAGE_OF_USERS

    @abstractmethod
    def own_means(self, users: Users) -> Array:
        """Average each user's own samples: (n, d). NOT PRIVATE.

        NaN where the client half finds nothing to report about and answers with the null record.
        """

    def sums(self, users: Users) -> Mapping[str, Array]:
        own = self.own_means(users)
        usable = ~np.isnan(own)
        return {
            "means": own.sum(axis=0, where=usable),
            "usable": usable.sum(axis=0),
            "unusable": np.count_nonzero(~usable.all(axis=1), keepdims=True),
        }

    def truth_of(self, facts: Facts) -> Array:
        """Average the users' own means, those without a usable one left out: (d,). NOT PRIVATE.

        Nothing finite is clipped, so a wrong range shows. The protocol assumes one mean that all
        users share; on real data this average takes its place.
        """
        n = facts["usable"]
        if not n.all():
            raise PopulationError("no user has usable samples; there is no mean")
        return np.asarray(facts["means"] / n)

    @property
    def bounded_by(self) -> tuple[float, float] | None:
        """Half range of a coordinate, and planned samples of a user: for lower bounds."""
        return None

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the squared l2 error of any local protocol for such users. NOT PRIVATE."""
        where = self.bounded_by
        if where is None:
            return ()
        half_width, samples = where
        planned = samples, planned_sizes(self)[1]
        one = coins(), "about one coordinate, items +-1", half_width**2
        return local_bounds(self.guarantee, held(facts), planned, SQUARED_L2, *one)

    def loss(self, value: Array, truth: Array) -> float:
        return squared_l2(value, truth)

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        return {"unusable records": float(facts["unusable"][0])}


class InRange(MeanTarget):
    """The mean of samples that are clipped to a public range; see the fields of subclasses."""

    low: float
    high: float

    @property
    def value_range(self) -> tuple[float, float]:
        return float(self.low), float(self.high)

    @property
    def half_range(self) -> float:
        """Half of high - low."""
        return float(self.high - self.low) / 2

    def own_means(self, users: Users) -> Array:
        """Average each user's samples by coordinate: (n, d). NOT PRIVATE.

        NaN for none, or a NaN among them. An infinite sample stands for the end of the range.
        """
        samples = samples_of(users, getattr(self, "dimension", 1))
        return coordinate_points(samples, *self.value_range)
