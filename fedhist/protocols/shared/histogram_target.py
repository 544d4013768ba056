"""What all protocols that estimate a histogram over a public domain share: truth and loss.

Truth and prediction come from sums over the users, which are made in one pass.
"""

from __future__ import annotations

import math
from typing import ClassVar

from fedhist.base.arrays import Array
from fedhist.model.display import Display
from fedhist.model.losses import l1
from fedhist.model.measures import Measure
from fedhist.model.query import Summary
from fedhist.model.truths import Truth
from fedhist.protocols.shared import clipped_totals
from fedhist.protocols.shared.displays import HISTOGRAM
from fedhist.protocols.shared.domains import OnDomain
from fedhist.protocols.shared.seen import Seeing, Seen, SeenProtocol
from fedhist.users.batch import Users


class DomainHistogram(OnDomain, SeenProtocol):
    """A protocol whose estimate has one total count for every item of ``domain``."""

    target: ClassVar[str] = "histogram"
    loss_name: ClassVar[str] = "l1"
    display: ClassVar[Display | None] = HISTOGRAM

    @property
    def value_range(self) -> tuple[float, float]:
        """Counts are not negative."""
        return 0.0, math.inf

    @property
    def estimates(self) -> Truth:
        """The sum of the users' counts."""
        return Truth.TOTAL

    def measure(self) -> Measure | None:
        """Add up counts, and what the prediction needs besides."""
        return Totals(self)

    def sums(self, users: Users) -> dict[str, Array]:
        """Add up the counts of a block by item, as "whole", and what else is needed. NOT PRIVATE.

        Default: the counts alone.
        """
        return {"whole": clipped_totals.totals(users, self.domain)}

    def truth_of(self, seen: Seen) -> Array:
        """Return the total count of every item: (d,). NOT PRIVATE."""
        return seen["whole"]

    def loss(self, value: Array, truth: Array) -> float:
        """Return the l1 distance, in counts."""
        return l1(value, truth)


class Totals(Seeing):
    """The sums of a histogram's users: of a block at once, and not how many samples they hold."""

    def of(self, users: Users) -> Summary:
        """Add up a block."""
        return Summary(len(users), self.protocol.sums(users))
