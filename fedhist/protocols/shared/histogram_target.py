"""What all protocols that estimate a histogram over a public domain share: truth and loss.

Truth and prediction come from sums over the users, which are made in one pass.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fedhist.base.arrays import Array
from fedhist.model.display import Display
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import l1
from fedhist.model.measures import Measure, Measured
from fedhist.model.query import Summary
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

    def measure(self) -> Measure | None:
        """Add up counts, and what the prediction needs besides."""
        return Totals(self)

    def sums(self, users: Users) -> dict[str, Array]:
        """Add up the counts of a block by item, as "whole", and what else is needed. NOT PRIVATE.

        Default: the counts alone.
        """
        return {"whole": clipped_totals.totals(users, self.domain)}

    @abstractmethod
    def error_of(self, found: Found) -> ErrorBound:
        """Predict the expected l1 error from the sums of :meth:`sums`. NOT PRIVATE."""

    def loss(self, value: Array, truth: Array) -> float:
        """Return the l1 distance, in counts."""
        return l1(value, truth)


@dataclass(frozen=True)
class Totals(Measure):
    """The sums of a histogram's users."""

    protocol: DomainHistogram

    def of(self, users: Users) -> Summary:
        """Add up a block."""
        return Summary(len(users), self.protocol.sums(users))

    def finish(self, total: Summary) -> Measured:
        """Read the sums."""
        return Found(self.protocol, total)


@dataclass(frozen=True)
class Found(Measured):
    """The sums over all users. NOT PRIVATE."""

    protocol: DomainHistogram
    total: Summary

    def __getitem__(self, name: str) -> Array:
        """Return one of the sums."""
        return self.total.sums[name]

    @property
    def truth(self) -> Array:
        """The total count of every item, (d,)."""
        return self["whole"]

    @cached_property
    def error(self) -> ErrorBound:
        """The expected l1 error."""
        return self.protocol.error_of(self)
