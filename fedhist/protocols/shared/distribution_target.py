"""What the protocols that estimate a distribution in l1 share: target, display and loss."""

from __future__ import annotations

from typing import ClassVar

from fedhist.base.arrays import Array
from fedhist.model.display import Display
from fedhist.model.losses import l1
from fedhist.protocols.shared.displays import DISTRIBUTION
from fedhist.protocols.shared.domains import OnDomain


class DistributionTarget(OnDomain):
    """A protocol whose estimate has one share for every symbol of ``domain``."""

    target: ClassVar[str] = "distribution"
    display: ClassVar[Display | None] = DISTRIBUTION

    def loss(self, value: Array, truth: Array) -> float:
        """Return the l1 distance: twice the distance in total variation."""
        return l1(value, truth)
