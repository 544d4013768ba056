"""What all protocols that estimate a histogram over a public domain share: truth and loss."""

from __future__ import annotations

import math
from typing import ClassVar

from fedhist.base.arrays import Array
from fedhist.model.display import Display
from fedhist.model.losses import l1
from fedhist.model.truths import Truth
from fedhist.protocols.shared import clipped_totals
from fedhist.protocols.shared.displays import HISTOGRAM
from fedhist.protocols.shared.domains import OnDomain
from fedhist.users.batch import Users


class DomainHistogram(OnDomain):
    """A protocol whose estimate has one total count for every item of ``domain``."""

    target: ClassVar[str] = "histogram"
    display: ClassVar[Display | None] = HISTOGRAM

    @property
    def value_range(self) -> tuple[float, float]:
        """Counts are not negative."""
        return 0.0, math.inf

    @property
    def estimates(self) -> Truth:
        """The sum of the users' counts."""
        return Truth.TOTAL

    def truth(self, users: Users) -> Array:
        """Compute the total count of every item, (d,). NOT PRIVATE."""
        return clipped_totals.totals(users, self.domain)

    def loss(self, value: Array, truth: Array) -> float:
        """Return the l1 distance, in counts."""
        return l1(value, truth)
