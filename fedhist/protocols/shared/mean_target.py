"""What all protocols that estimate the mean of samples share: truth, loss and diagnostics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from clients.records.functionals import samples_of
from clients.records.user_rows import clipped_points, coordinate_points
from fedhist.base.arrays import Array
from fedhist.base.errors import PopulationError
from fedhist.model.display import Display
from fedhist.model.error_bounds import ErrorBound, LowerBound
from fedhist.model.losses import SQUARED_L2, squared_l2
from fedhist.model.truths import Truth
from fedhist.protocols.shared.lower_bounds import ParameterSet, mean_bounds, planned_sizes
from fedhist.protocols.shared.seen import Seen, SeenProtocol, sum_of_rows
from fedhist.users.batch import Users
from fedhist.users.columns import Samples
from fedhist.users.shards import Shard


class MeanTarget(SeenProtocol):
    """A protocol whose estimate is the average of the users' own means."""

    target: ClassVar[str] = "mean"
    loss_name: ClassVar[str] = "squared l2"
    display: ClassVar[Display | None] = Display(
        label="mean (units of the samples)", unit="units of the samples", loss=SQUARED_L2
    )

    @property
    def estimates(self) -> Truth:
        """The average of the users' own means."""
        return Truth.AVERAGE_OF_USERS

    @abstractmethod
    def own_means(self, users: Users) -> Array:
        """Average each user's own samples: (n, d). NOT PRIVATE.

        NaN where the client half finds nothing to report about and answers with the null record.
        """

    def clipped_means(self, users: Users) -> Array | None:
        """Average each user's own samples as the client half clips them: as :meth:`own_means`.

        None, the default, where nothing is clipped or nobody asks what that costs.
        """
        return None

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up the users' own means, clipped ones too, and count who has one."""
        own, clipped = self.own_means(users), self.clipped_means(users)
        return self.sums_of(own, clipped)

    def sums_of(self, own: Array, clipped: Array | None = None) -> dict[str, Array]:
        """Add up the users' own means, (n, d), and those of clipped samples."""
        usable = ~np.isnan(own)
        found = {"means": own} if clipped is None else {"means": own, "clipped": clipped}
        return {
            **{name: sum_of_rows(np.where(usable, x, 0.0)) for name, x in found.items()},
            "usable": usable.sum(axis=0),
            "unusable": np.count_nonzero(~usable.all(axis=1), keepdims=True),
        }

    def truth_of(self, seen: Seen) -> Array:
        """Average the users' own means, those without a usable one left out: (d,). NOT PRIVATE.

        Nothing finite is clipped, so a wrong range shows. The protocol assumes one mean that all
        users share; on real data this average takes its place.
        """
        return _average(seen, "means")

    @property
    def parameter_set(self) -> ParameterSet | None:
        """Where the mean lies, for lower bounds; None where that cannot be said."""
        return None

    def lower_bounds_of(self, seen: Seen) -> tuple[LowerBound, ...]:
        """Bound the squared l2 error of any local protocol for such users. NOT PRIVATE."""
        where = self.parameter_set
        if where is None:
            return ()
        _, n_users = planned_sizes(self)
        return mean_bounds(self.guarantee, seen.held, where, n_users, SQUARED_L2)

    def clipping_error(self, users: Shard) -> float:
        """Return the squared l2 error that clipping to the range alone makes. NOT PRIVATE."""
        return self.clipping_of(self.seen(users))

    def clipping_of(self, seen: Seen) -> float:
        """Return the same of users that are summed up. NOT PRIVATE."""
        if "clipped" not in seen.total.sums:
            return 0.0
        return squared_l2(_average(seen, "clipped"), seen.truth)

    def loss(self, value: Array, truth: Array) -> float:
        """Squared l2 distance."""
        return squared_l2(value, truth)

    def diagnostics_of(self, seen: Seen) -> Mapping[str, float]:
        """Count the users whose record, or a coordinate of it, cannot be used. NOT PRIVATE."""
        return {"unusable records": float(seen["unusable"][0])}


class InRange(MeanTarget):
    """The mean of samples that are clipped to a public range; see the fields of subclasses.

    Without a field ``dimension`` of one coordinate.
    """

    low: float
    high: float

    @property
    def value_range(self) -> tuple[float, float]:
        """Means lie where samples do."""
        return float(self.low), float(self.high)

    @property
    def half_range(self) -> float:
        """Half of high - low."""
        return float(self.high - self.low) / 2

    def _samples(self, users: Users) -> Samples:
        return samples_of(users, getattr(self, "dimension", 1))

    def own_means(self, users: Users) -> Array:
        """Average each user's samples by coordinate: (n, d). NOT PRIVATE.

        NaN for none, or a NaN among them. An infinite sample stands for the end of the range.
        """
        return coordinate_points(self._samples(users), *self.value_range)

    def clipped_means(self, users: Users) -> Array:
        """Average each user's clipped samples by coordinate: (n, d). NOT PRIVATE."""
        return clipped_points(self._samples(users), *self.value_range)


def _average(seen: Seen, name: str) -> Array:
    n = seen["usable"]
    if not n.all():
        raise PopulationError("no user has usable samples; there is no mean")
    return np.asarray(seen[name] / n)


class PlannedMean(MeanTarget):
    """A mean whose error follows from public numbers, but for samples outside the range."""

    @abstractmethod
    def planned_error(self) -> ErrorBound:
        """Predict the error for samples inside the range, whoever the users are."""

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the mean squared l2 error: the plan's, and what clipping to the range costs."""
        planned = self.planned_error()
        return replace(planned, expected=planned.expected + self.clipping_of(seen))
