"""NoiseSource: what a Curator draws from; implemented on the server's side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]


class NoiseSource(ABC):
    """Noise for one draw, in one of two grades; the Curator's only randomness.

    Class attributes
    ----------------
    grade : str
        "simulated" (NumPy, seeded, fast) or "secure" (exact integer samplers, no seed).
    """

    grade: ClassVar[str]

    @abstractmethod
    def laplace(self, shape: Shape, scale: float) -> NDArray[np.float64]:
        """Draw Laplace noise with density exp(-|x| / scale) / (2 scale)."""

    @abstractmethod
    def gaussian(self, shape: Shape, std: float) -> NDArray[np.float64]:
        """Draw centred Gaussian noise."""

    @abstractmethod
    def discrete_laplace(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        """Draw integers with P(k) proportional to exp(-|k| / scale)."""

    @abstractmethod
    def discrete_gaussian(self, shape: Shape, std: float) -> NDArray[np.int64]:
        """Draw integers with P(k) proportional to exp(-k^2 / (2 std^2))."""

    @abstractmethod
    def exponential(self, logits: NDArray[np.float64]) -> int:
        """Draw an index with probability proportional to exp(logits)."""

    def exponential_rows(self, logits: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw one index per row of ``logits`` (k, d), independently: (k,) int64."""
        return np.array([self.exponential(row) for row in logits], dtype=np.int64)

    def generator(self) -> np.random.Generator:
        """Return a generator for one draw of a :class:`~fedhist.privacy.samplers.Sampler`."""
        raise NotImplementedError(f"{type(self).__name__} has no generator for samplers")


Noise = Callable[[int], NoiseSource]
"""Makes the noise source of draw number ``index``."""
