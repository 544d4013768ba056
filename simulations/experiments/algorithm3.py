"""The expected error of Algorithm 3 given what clipping kept, in closed form. NOT PRIVATE [1]_.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Algorithm 3 and Appendix B (there up to constants).
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from server.histograms.unbounded_histogram import KeyRelease


def alg3_expected(kept: Floats, truth: Floats, law: KeyRelease) -> Floats:
    """Compute the expected error of every key, exactly, given what clipping kept of it.

    With y = kept + Z the key is released, at |y - truth|, if y reaches the threshold, and costs
    ``truth`` otherwise (as it does where nothing was kept, unless the support is raw).

    ``kept``, ``truth``: (k,) float64, integer-valued, 0 <= kept <= truth. Returns (k,) float64.

    Examples
    --------
    >>> alg3_expected(np.array([3.0, 0.0]), np.array([5.0, 2.0]), KeyRelease(0.0, 1.0))
    array([2., 2.])
    """
    gap, a = truth - kept, law.threshold - kept
    if law.discrete:
        a = np.ceil(a)
    if law.scale == 0:
        error = np.where(a <= 0, np.abs(gap), truth)
    else:
        below = _below(a, law)
        beyond = _short(-a, law) + (a - gap) * (1 - below)  # E[Z - gap; Z >= a] where gap < a
        across = _short(gap, law) + _short(-gap, law) - _short(a, law) - (gap - a) * below
        error = truth * below + np.where(gap >= a, across, beyond)
    return error if law.raw_support else np.where(kept > 0, error, truth)


def _below(x: Floats, law: KeyRelease) -> Floats:
    """P(Z < x); x an integer where the noise is discrete."""
    b = law.scale
    if law.discrete:
        norm = 1 + math.exp(-1 / b)
        return np.where(
            x >= 1, 1 - np.exp(-np.abs(x) / b) / norm, np.exp((np.minimum(x, 0) - 1) / b) / norm
        )
    return np.where(x >= 0, 1 - 0.5 * np.exp(-np.abs(x) / b), 0.5 * np.exp(-np.abs(x) / b))


def _short(x: Floats, law: KeyRelease) -> Floats:
    """E[(x - Z)+]; x an integer where the noise is discrete."""
    b = law.scale
    at_zero = math.exp(-1 / b) / -math.expm1(-2 / b) if law.discrete else 0.5 * b
    return np.maximum(x, 0.0) + at_zero * np.exp(-np.abs(x) / b)
