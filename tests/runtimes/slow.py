"""A histogram whose clients take their time, for the tests of interruptions. Loaded as a plugin."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from clients.histograms.queries import ClippedCounts
from fedhist import Streams, Summary, Users, register_protocol, register_query
from server.histograms.bounded_histogram import BoundedHistogram

ANSWERING = "FEDHIST_TEST_ANSWERING"
"""Environment variable that names a file: clients make it when they answer."""


@register_query
@dataclass(frozen=True)
class SlowCounts(ClippedCounts):
    """Clipped counts, a tenth of a second per node."""

    wire_name: ClassVar[str] = "test-slow-counts"

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        if ANSWERING in os.environ:
            Path(os.environ[ANSWERING]).touch()
        time.sleep(0.1)
        return super().answer_folded(users, rng)


@register_protocol
@dataclass(frozen=True)
class SlowHistogram(BoundedHistogram):
    """The bounded histogram over slow clients."""

    name: ClassVar[str] = "test-slow-histogram"

    @property
    def query(self) -> SlowCounts:
        return SlowCounts(self.domain, float(self.clip), self.norm, float(self.grid or 0.0))
