"""Histograms that do what a comparison must notice. Loaded as a plugin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import fedhist as fh
from fedhist.protocols import BoundedHistogram


@fh.register_protocol
@dataclass(frozen=True)
class Moody(BoundedHistogram):
    """A bounded histogram that fails where its first count comes out above ``most``."""

    name: ClassVar[str] = "test-moody"
    most: float = 0.0

    def rounds(self, server: fh.Curator) -> fh.Script:
        estimate = yield from super().rounds(server)
        high = estimate.value is not None and float(estimate.value[0]) > self.most
        return fh.Estimate.failed("the first count is high") if high else estimate


@fh.register_protocol
@dataclass(frozen=True)
class Shares(BoundedHistogram):
    """A bounded histogram that says to estimate a tenth of the counts."""

    name: ClassVar[str] = "test-shares"

    def truth(self, users: fh.Users) -> fh.Array:
        return np.asarray(super().truth(users) / 10)


@fh.register_protocol
@dataclass(frozen=True)
class Stubborn(BoundedHistogram):
    """A bounded histogram that cannot be had under replacement."""

    name: ClassVar[str] = "test-stubborn"

    def __post_init__(self) -> None:
        if self.adjacency == "replace-user":
            raise ValueError("no replacement")
        super().__post_init__()


@fh.register_protocol
@dataclass(frozen=True)
class Greedy(BoundedHistogram):
    """A bounded histogram that guarantees half of what it is asked for."""

    name: ClassVar[str] = "test-greedy"

    @property
    def guarantee(self) -> fh.Guarantee:
        return replace(super().guarantee, epsilon=2 * self.epsilon)
