"""A protocol for measuring: the same clipped counts asked several times in one run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from fedhist.base.checks import check_count
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Summary
from fedhist.protocols import BoundedHistogram
from fedhist.session.curator import Curator


@dataclass(frozen=True)
class RepeatedCounts(BoundedHistogram):
    """Asks the histogram ``times`` times, with slightly different clips, and releases the last.

    Every round is a query of its own (no answer is repeated), of the same cost: what the first
    round pays once (compiled loops are loaded, nodes are set up) can be told from what every
    round pays.
    """

    name: ClassVar[str] = "bench-repeated-counts"
    times: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("times", self.times)

    @property
    def max_rounds(self) -> int:
        """One per repetition."""
        return self.times

    def nth(self, i: int) -> Self:
        """Return the protocol of repetition i: the same, with a slightly smaller clip."""
        return replace(self, clip=self.clip * (1.0 - i / 1024))

    def rounds(self, server: Curator) -> Script:
        """Ask again and again; release once."""
        summary = Summary(0)
        for i in reversed(range(self.times)):
            summary = yield self.nth(i).query
        value = self._release(server, summary.sums["counts"])
        return Estimate.ok(value, keys=self.domain)
