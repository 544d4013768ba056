"""Sensitivities of sums of clipped vectors, under each adjacency; all rounding is against us."""

from __future__ import annotations

import math
from fractions import Fraction

from fedhist.privacy.guarantee import Adjacency


def sensitivity_multipliers(adjacency: Adjacency, d: int) -> tuple[float, float]:
    """l1 and l2 sensitivity of a sum of non-negative vectors, per unit of their norm bound.

    (1, 1) where a user is added, removed or zeroed out. Under replacement (2, sqrt 2) for d >= 2,
    by disjoint supports: ||a - b||_1 <= ||a||_1 + ||b||_1, and ||a - b||_2^2 <= ||a||_2^2 +
    ||b||_2^2 because a . b >= 0; and (1, 1) for d = 1, where both values lie in [0, C]. All are
    attained.

    >>> sensitivity_multipliers(Adjacency.ZERO_OUT_USER, 5)
    (1.0, 1.0)
    """
    if adjacency is Adjacency.REPLACE_USER and d > 1:
        return 2.0, math.sqrt(2.0)
    return 1.0, 1.0


def sqrt_up(n: int) -> float:
    """Square root of an integer, rounded up: a sensitivity is never understated."""
    root = math.sqrt(n)
    return root if Fraction(root) ** 2 >= n else math.nextafter(root, math.inf)
