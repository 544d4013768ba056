"""What the protocols that estimate a distribution in l1 share: target, loss, sums over users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Array, Floats
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts
from fedhist.model.losses import L1, l1
from fedhist.model.prediction import LowerBound
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.shared.central_bounds import central_share_bounds
from fedhist.protocols.shared.clipped_totals import users_shares
from fedhist.protocols.shared.domains import DISTRIBUTION, OnDomain
from fedhist.protocols.shared.lower_bounds import planned_sizes, share_bounds, sizes_of
from fedhist.protocols.shared.sample_sizes import held
from fedhist.users.batch import Users


def holding(facts: Facts) -> int:
    """Count the users with items in the domain."""
    return facts.n_users - int(facts["empty"][0])


def average_shares(facts: Facts) -> Floats:
    """Average the users' own shares, (k,), empty users left out; zeros if all are."""
    return np.asarray(facts["shares"] / max(holding(facts), 1))


class DistributionTarget(OnDomain):
    """A protocol whose estimate has one share for every symbol of ``domain``."""

    target: ClassVar[str] = "distribution"
    loss_name: ClassVar[str] = "l1"
    display: ClassVar[Display | None] = DISTRIBUTION

    @property
    def value_range(self) -> tuple[float, float]:
        """Shares lie in [0, 1]."""
        return 0.0, 1.0

    @property
    def estimates(self) -> Truth:
        """The average of the users' own distributions."""
        return Truth.AVERAGE_OF_USERS

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up shares, and count the users without items."""
        return users_shares(users, self.domain)

    def truth_of(self, facts: Facts) -> Array:
        """Average the users' own shares, (k,), empty users left out. NOT PRIVATE."""
        return average_shares(facts)

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the l1 error of any protocol under this guarantee. NOT PRIVATE."""
        if self.guarantee.trust is Trust.LOCAL:
            return share_bounds(self.guarantee, held(facts), planned_sizes(self), L1, 1)
        sizes = sizes_of(held(facts), *planned_sizes(self))
        return tuple(central_share_bounds(self.guarantee, sizes, len(self.domain)))

    def loss(self, value: Array, truth: Array) -> float:
        """Return the l1 distance: twice the distance in total variation."""
        return l1(value, truth)
