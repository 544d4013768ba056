"""Student's intervals of means, and what theory is held to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

NORMAL = 1.96
"""Half the width of a 95 % interval of what is normal, in standard errors."""


def student(n: int, level: float) -> float:
    """Return half the width of the interval of a mean of n values, in standard errors.

    >>> round(student(2, 0.95), 3), round(student(20, 0.99), 3)
    (12.706, 2.861)
    """
    from scipy.special import stdtrit  # a tenth of a second: only where runs are repeated

    return float(stdtrit(n - 1, (1 + level) / 2))


def half_width(values: Sequence[float], level: float) -> float | None:
    """Return half the width of Student's interval of a mean; None for one value, or an infinity.

    >>> half_width([1.0], 0.95)
    """
    n = len(values)
    if n < 2 or not all(map(math.isfinite, values)):
        return None
    with np.errstate(all="ignore"):  # squares of large values may overflow
        return student(n, level) * float(np.std(values, ddof=1)) / math.sqrt(n)


FAR = 2.0
"""Factor between measurement and theory from which on theory is flagged."""


def far_off(losses: Sequence[float], predicted: float | None, level: float = 0.95) -> bool:
    """Whether theory is more than a factor of two from a mean, and outside of its interval.

    One run has no interval, and is taken as it is.

    >>> far_off([2.1], 1.0), far_off([1.9], 1.0), far_off([0.1, 5.0, 1.9], 1.0), far_off([], 1.0)
    (True, False, False, False)
    """
    if not len(losses) or not predicted:
        return False
    mean, half = float(np.mean(losses)), half_width(losses, level)
    off = not predicted / FAR <= mean <= predicted * FAR
    return off and (half is None or abs(mean - predicted) > half)
