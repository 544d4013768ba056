"""What the protocols that estimate a distribution in l1 share: target, display and loss."""

from __future__ import annotations

from typing import ClassVar

from fedhist.base.arrays import Array
from fedhist.model.display import Display
from fedhist.model.error_bounds import LowerBound
from fedhist.model.losses import L1, l1
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.shared.central_bounds import central_share_bounds
from fedhist.protocols.shared.displays import DISTRIBUTION
from fedhist.protocols.shared.domains import OnDomain
from fedhist.protocols.shared.lower_bounds import planned_sizes, share_bounds, sizes_of
from fedhist.protocols.shared.sample_sizes import Held


class DistributionTarget(OnDomain):
    """A protocol whose estimate has one share for every symbol of ``domain``."""

    target: ClassVar[str] = "distribution"
    display: ClassVar[Display | None] = DISTRIBUTION

    @property
    def value_range(self) -> tuple[float, float]:
        """Shares lie in [0, 1]."""
        return 0.0, 1.0

    @property
    def estimates(self) -> Truth:
        """The average of the users' own distributions."""
        return Truth.AVERAGE_OF_USERS

    def bounds_for(self, held: Held) -> tuple[LowerBound, ...]:
        """Bound the l1 error of any protocol under this guarantee. NOT PRIVATE."""
        if self.guarantee.trust is Trust.LOCAL:
            return share_bounds(self.guarantee, held, planned_sizes(self), L1, 1)
        sizes = sizes_of(held, *planned_sizes(self))
        return tuple(central_share_bounds(self.guarantee, sizes, len(self.domain)))

    def loss(self, value: Array, truth: Array) -> float:
        """Return the l1 distance: twice the distance in total variation."""
        return l1(value, truth)
