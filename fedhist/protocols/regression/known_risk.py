"""What is known of users whose risk is minimised: products of samples that add up. NOT PRIVATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.measures import Measure, Measured, simulated
from fedhist.model.prediction import LowerBound, Prediction
from fedhist.model.query import Summary
from fedhist.protocols.regression.theory import Risk, SquaredRisk, squared_sums
from fedhist.users.batch import Users


@dataclass(frozen=True)
class AddSquares(Measure):
    """Sums over users of the average products of their samples, for least squares.

    Attributes
    ----------
    ridge : float
    known : callable
        Says what is known of so many users, of whom so many are unusable, and of their risk.
    """

    ridge: float
    known: Callable[[int, int, Callable[[], Risk]], KnownRisk]

    def of(self, users: Users) -> Summary:
        """Add up a block."""
        unusable = np.array([users.n_unusable()])
        return Summary(len(users), {"unusable": unusable, **squared_sums(users)})

    def finish(self, total: Summary) -> KnownRisk:
        """Keep the sums."""
        risk = partial(SquaredRisk.read, total.sums, self.ridge)
        return self.known(total.n_users, int(total.sums["unusable"][0]), risk)


@dataclass(frozen=True)
class KnownRisk(Measured):
    """The users' risk, and how many they are.

    Attributes
    ----------
    protocol : Protocol
        With a ``radius``, of the ball of the parameters.
    n_users, unusable : int
    make : callable
        Makes the risk; PopulationError if no user has samples.
    bounds : tuple of LowerBound
        Of any protocol for least squares.
    """

    protocol: Any
    n_users: int
    unusable: int
    make: Callable[[], Risk]
    bounds: tuple[LowerBound, ...]

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
    def error(self) -> Prediction:
        """The predicted excess risk."""
        return simulated(self.protocol, self)

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """Users whose record the null record replaces."""
        return {"unusable records": float(self.unusable)}

    @property
    def lower_bounds(self) -> tuple[LowerBound, ...]:
        """Of any protocol for least squares."""
        return self.bounds
