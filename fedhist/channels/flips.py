"""Randomized response: one bit told or turned, with an integer threshold behind it."""

from __future__ import annotations

import math
from functools import cached_property

from fedhist.users.streams import integer_threshold


def flip_probability(x: float) -> float:
    """Return 1 / (1 + e^x) for x >= 0, rounded towards 1/2.

    The margin covers the rounding of x itself and of every operation here, so that the odds
    (1 - q) / q are at most e^x in exact arithmetic;
    :func:`~fedhist.users.streams.integer_threshold` rounds in the same direction.
    """
    if math.isinf(x):
        return 0.0
    t = math.exp(-x)
    return min(t / (1.0 + t) * (1.0 + (x + 8.0) * 2.0**-52) + 5e-324, 0.5)


class RandomizedResponse:
    """What the channels share that turn bits with a probability that is the same for all data."""

    epsilon: float

    @property
    def log_odds(self) -> float:
        """What one bit may cost: the whole budget."""
        return self.epsilon

    @cached_property
    def flip(self) -> float:
        """Probability that a bit is turned, rounded towards 1/2."""
        return flip_probability(self.log_odds)

    @property
    def flip_threshold(self) -> int:
        """The probability that is drawn, times 2^64: an integer."""
        return int(integer_threshold(self.flip))

    @cached_property
    def tau(self) -> float:
        """Keep minus flip, tanh(log_odds / 2): how much a bit moves the mean of a reported one."""
        return math.tanh(self.log_odds / 2)
