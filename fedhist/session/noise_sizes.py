"""How large the Curator's noise is: sizes that a mechanism may be asked for."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.checks import check_size
from fedhist.privacy.guarantee import check_budget


def scale_of(l1_sensitivity: float, epsilon: float) -> float:
    """Scale of Laplace noise."""
    check_budget(epsilon)
    return size_of(l1_sensitivity, 1 / epsilon)


def weight_of(sensitivity: float, epsilon: float) -> float:
    """Logits per unit of score: epsilon / (2 sensitivity)."""
    check_budget(epsilon)
    check_size("sensitivity", sensitivity)
    return epsilon / (2 * sensitivity)


def size_of(sensitivity: float, multiplier: float) -> float:
    """Size of the noise; 0 (no noise) only for sensitivity 0 or a budget without end."""
    check_size("a sensitivity", sensitivity, zero=True)
    size = sensitivity * multiplier
    if sensitivity > 0 and multiplier > 0 and size < sys.float_info.min:
        raise ValueError(f"noise of size {sensitivity} x {multiplier} vanishes in doubles")
    return size


def integers_of(value: ArrayLike) -> NDArray[np.int64]:
    """Return a value as int64; ValueError unless it is made of integers."""
    x = np.asarray(value)
    if x.dtype.kind not in "iu":
        raise ValueError(f"this mechanism takes integers, got dtype {x.dtype}")
    return x.astype(np.int64)
