"""Two-valued real samples around a mean that all users share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulations.populations.base import Loaded
from simulations.populations.synthetic import SharedMean


@dataclass(frozen=True, kw_only=True)
class TwoPoint(SharedMean):
    """Samples mean - spread or mean + spread with probability 1/2 each, both in [low, high].

    See :class:`~simulations.populations.synthetic.SharedMean` for the parameters.
    """

    kind: ClassVar[str] = "two-point"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._fits()

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        sizes = self._sizes(rng)
        up = rng.random((int(sizes.sum()), self.dimension)) < 0.5
        values = self.centre + self.spread * np.where(up, 1.0, -1.0)
        return self._loaded(sizes, np.clip(values, self.low, self.high), "two-point samples")
