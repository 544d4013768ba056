"""The losses that protocols and comparisons share: their names, as users see them, and values."""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Array

L1, L2, SQUARED_L2 = "l1", "l2", "squared l2"


def l1(value: Array, truth: Array) -> float:
    """Sum of absolute differences."""
    return float(np.abs(value - truth).sum())


def l2(value: Array, truth: Array) -> float:
    """Euclidean distance."""
    return math.sqrt(squared_l2(value, truth))  # in one order, whatever the threads of BLAS


def squared_l2(value: Array, truth: Array) -> float:
    """Squared Euclidean distance; of one number the squared error."""
    return float(np.square(value - truth).sum())
