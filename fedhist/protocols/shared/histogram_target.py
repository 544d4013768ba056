"""What all protocols that estimate a histogram over a public domain share: truth and loss.

Truth and prediction come from sums over the users, which are made in one pass.
"""

from __future__ import annotations

import math
from typing import ClassVar

from fedhist.base.arrays import Array
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts
from fedhist.model.losses import l1
from fedhist.model.truths import Truth
from fedhist.protocols.shared import clipped_totals
from fedhist.protocols.shared.displays import HISTOGRAM
from fedhist.protocols.shared.domains import OnDomain
from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK


class DomainHistogram(OnDomain):
    """A protocol whose estimate has one total count for every item of ``domain``."""

    target: ClassVar[str] = "histogram"
    loss_name: ClassVar[str] = "l1"
    batch: ClassVar[int] = BLOCK
    display: ClassVar[Display | None] = HISTOGRAM

    @property
    def value_range(self) -> tuple[float, float]:
        """Counts are not negative."""
        return 0.0, math.inf

    @property
    def estimates(self) -> Truth:
        """The sum of the users' counts."""
        return Truth.TOTAL

    def sums(self, users: Users) -> dict[str, Array]:
        """Add up the counts of a block by item, as "whole", and what else is needed. NOT PRIVATE.

        Default: the counts alone.
        """
        return {"whole": clipped_totals.totals(users, self.domain)}

    def truth_of(self, facts: Facts) -> Array:
        """Return the total count of every item: (d,). NOT PRIVATE."""
        return facts["whole"]

    def loss(self, value: Array, truth: Array) -> float:
        """Return the l1 distance, in counts."""
        return l1(value, truth)
