"""Uniform real samples around a mean that all users share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulations.populations.base import Loaded
from simulations.populations.synthetic import SharedMean


@dataclass(frozen=True, kw_only=True)
class Uniform(SharedMean):
    """Samples uniform on [mean - spread, mean + spread], which must lie in [low, high].

    See :class:`~simulations.populations.synthetic.SharedMean` for the parameters.
    """

    kind: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fits()

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        sizes = self._sizes(rng)
        values = self.centre + self.spread * rng.uniform(-1, 1, (int(sizes.sum()), self.dimension))
        return self._loaded(sizes, np.clip(values, self.low, self.high), "uniform samples")
