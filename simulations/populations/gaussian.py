"""Gaussian real samples around a mean that all users share, clipped to the range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulations.populations.base import Loaded
from simulations.populations.synthetic import SharedMean


@dataclass(frozen=True, kw_only=True)
class Gaussian(SharedMean):
    """Samples N(mean, spread^2), independent over dimensions, clipped to [low, high].

    Clipping moves the mean of a sample towards the middle of the range; how many values were
    clipped is stated in the diagnostics.

    See :class:`~simulations.populations.synthetic.SharedMean` for the parameters.
    """

    kind: ClassVar[str] = "gaussian"

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        sizes = self._sizes(rng)
        values = rng.normal(self.centre, self.spread, (int(sizes.sum()), self.dimension))
        clipped = int(np.count_nonzero((values < self.low) | (values > self.high)))
        what = f"Gaussian samples clipped to [{self.low:g}, {self.high:g}]"
        dropped = {"values clipped to the range": clipped} if clipped else {}
        return self._loaded(sizes, np.clip(values, self.low, self.high), what, dropped=dropped)
