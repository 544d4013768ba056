"""A mechanism that is a sampler: it draws from a law that depends on the exact data.

Noise added to a value is one kind of mechanism; the other draws a point from a whole law. The
Curator charges such a mechanism, hands it randomness, journals what it drew and returns that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.privacy.guarantee import Release


class Sampler(ABC):
    """Draws from a law that depends on exact data. NOT PRIVATE by itself: it holds the data.

    A subclass states what one draw costs, whatever the data, and proves it in its docstring.
    """

    @property
    @abstractmethod
    def release(self) -> Release:
        """What one draw costs a user; a function of public numbers only."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """Draw once. The shape of the result is public; no view of the data is returned."""
