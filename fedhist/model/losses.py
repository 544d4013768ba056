"""The losses that protocols and comparisons share: their names, as users see them, and values."""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Array

L1, L2, SQUARED_L2 = "l1", "l2", "squared l2"


def l1(value: Array, truth: Array) -> float:
    """Sum of absolute differences.

    >>> l1(np.array([3.0, 0.0]), np.array([0.0, 4.0]))
    7.0
    """
    return float(np.abs(value - truth).sum())


def l2(value: Array, truth: Array) -> float:
    """Euclidean distance.

    >>> l2(np.array([3.0, 0.0]), np.array([0.0, 4.0]))
    5.0
    """
    return math.sqrt(squared_l2(value, truth))  # in one order, whatever the threads of BLAS


def squared_l2(value: Array, truth: Array) -> float:
    """Squared Euclidean distance; of one number the squared error.

    >>> squared_l2(np.array([3.0, 0.0]), np.array([0.0, 4.0]))
    25.0
    """
    return float(np.square(value - truth).sum())
