"""What all protocols that estimate the mean of samples share: truth, loss and diagnostics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.errors import PopulationError
from fedhist.model.display import Display
from fedhist.model.error_bounds import ErrorBound, LowerBound
from fedhist.model.losses import SQUARED_L2, squared_l2
from fedhist.model.protocol import Protocol
from fedhist.model.query import CHUNK
from fedhist.model.truths import Truth
from fedhist.protocols.shared.lower_bounds import ParameterSet, mean_bounds, planned_sizes
from fedhist.protocols.shared.sample_sizes import Held
from fedhist.users.batch import Users
from fedhist.users.columns import Samples


class MeanTarget(Protocol):
    """A protocol whose estimate is the average of the users' own means."""

    target: ClassVar[str] = "mean"
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

    def truth(self, users: Users) -> Array:
        """Average the users' own means, those without a usable one left out: (d,). NOT PRIVATE.

        Nothing finite is clipped, so a wrong range shows. The protocol assumes one mean that all
        users share; on real data this average takes its place.
        """
        return self._average(users, self.own_means)

    @property
    def parameter_set(self) -> ParameterSet | None:
        """Where the mean lies, for lower bounds; None where that cannot be said."""
        return None

    def lower_bounds(self, users: Users) -> tuple[LowerBound, ...]:
        """Bound the squared l2 error of any local protocol for such users. NOT PRIVATE."""
        where = self.parameter_set
        if where is None:
            return ()
        _, n_users = planned_sizes(self)
        return mean_bounds(self.guarantee, Held.of(users), where, n_users, SQUARED_L2)

    def clipping_error(self, users: Users) -> float:
        """Return the squared l2 error that clipping to the range alone makes. NOT PRIVATE."""
        return squared_l2(self._average(users, self.clipped_means), self.truth(users))

    def clipped_means(self, users: Users) -> Array:
        """Average each user's own samples as the client half clips them: as :meth:`own_means`."""
        return self.own_means(users)

    def _average(self, users: Users, means_of: Callable[[Users], Array]) -> Array:
        total, n = np.zeros(()), np.zeros((), dtype=np.int64)
        for batch in users.chunks(CHUNK):
            means = means_of(batch)
            usable = ~np.isnan(means)
            total = total + np.where(usable, means, 0.0).sum(axis=0)
            n = n + usable.sum(axis=0)
        if not n.all():
            raise PopulationError("no user has usable samples; there is no mean")
        return np.asarray(total / n)

    def loss(self, value: Array, truth: Array) -> float:
        """Squared l2 distance."""
        return squared_l2(value, truth)

    def diagnostics(self, users: Users) -> Mapping[str, float]:
        """Count the users whose record, or a coordinate of it, cannot be used. NOT PRIVATE."""
        bad = sum(int(np.isnan(self.own_means(b)).any(axis=1).sum()) for b in users.chunks(CHUNK))
        return {"unusable records": float(bad)}


class PlannedMean(MeanTarget):
    """A mean whose error follows from public numbers, but for samples outside the range."""

    @abstractmethod
    def planned_error(self) -> ErrorBound:
        """Predict the error for samples inside the range, whoever the users are."""

    def error(self, users: Users) -> ErrorBound:
        """Predict the mean squared l2 error: the plan's, and what clipping to the range costs."""
        planned = self.planned_error()
        return replace(planned, expected=planned.expected + self.clipping_error(users))


def clipped(samples: Samples, low: float, high: float) -> Samples:
    """Clip every number to [low, high], as the coordinates of a box are; NaN stays."""
    return replace(samples, values=np.clip(samples.values, low, high))
