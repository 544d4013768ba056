"""What is known of users whose risk is minimised: products of samples that add up. NOT PRIVATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.error_bounds import ErrorBound, LowerBound
from fedhist.model.measures import Measure, Measured
from fedhist.model.query import Summary
from fedhist.protocols.regression.theory import Risk, SquaredRisk, squared_sums
from fedhist.users.batch import Users

if TYPE_CHECKING:
    from fedhist.protocols.regression.user_level_erm import UserLevelErm


@dataclass(frozen=True)
class AddSquares(Measure):
    """Sums over users of the average products of their samples, for least squares."""

    protocol: UserLevelErm

    def of(self, users: Users) -> Summary:
        """Add up a block."""
        unusable = np.array([users.n_unusable()])
        return Summary(len(users), {"unusable": unusable, **squared_sums(users)})

    def finish(self, total: Summary) -> KnownRisk:
        """Keep the sums."""
        risk = partial(SquaredRisk.read, total.sums, float(self.protocol.ridge))
        return KnownRisk(self.protocol, total.n_users, int(total.sums["unusable"][0]), risk)


@dataclass(frozen=True)
class KnownRisk(Measured):
    """The users' risk, and how many they are.

    Attributes
    ----------
    protocol : UserLevelErm
    n_users, unusable : int
    make : callable
        Makes the risk; PopulationError if no user has samples.
    """

    protocol: UserLevelErm
    n_users: int
    unusable: int
    make: Callable[[], Risk]

    @cached_property
    def risk(self) -> Risk:
        """The risk of the usable users."""
        return self.make()

    @cached_property
    def truth(self) -> Floats:
        """Minimiser of the empirical risk in the ball, (d,).

        Users without usable samples do not count here. In a run each counts as the centre, which
        is no bias where the centre follows the gradient; around 0, a share s of them weakens the
        gradient against the ridge by 1 - s.
        """
        return self.risk.minimise(self.protocol.radius)

    @cached_property
    def error(self) -> ErrorBound:
        """The predicted excess risk."""
        return self.protocol.predicted(self.risk, self.truth)

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """Users whose record the null record replaces."""
        return {"unusable records": float(self.unusable)}

    @property
    def lower_bounds(self) -> tuple[LowerBound, ...]:
        """Of any protocol for least squares."""
        return self.protocol.bounds_for(self.n_users)
