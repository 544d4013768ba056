"""From a noisy cumulative curve over bins to the bins of its quantiles."""

from __future__ import annotations

import numpy as np

from fedhist.base.arrays import Floats, Integers


def quantile_bins(curve: Floats, levels: Floats) -> Integers:
    """Find the first bin at which the curve's non-decreasing fit reaches each level of its end.

    Parameters
    ----------
    curve : (K,) float64
        Noisy count, or share, of what lies in the bins up to each; that of the
        last stands for all.
    levels : (J,) float64
        In (0, 1), increasing.

    Returns
    -------
    (J,) int64
        Non-decreasing.

    Examples
    --------
    >>> quantile_bins(np.array([1.0, 0.0, 8.0, 7.0, 10.0]), np.array([0.04, 0.5, 0.9])).tolist()
    [0, 2, 4]
    """
    from scipy.optimize import isotonic_regression

    fitted = np.asarray(isotonic_regression(curve).x)
    # a curve without a positive end says nothing; a sum of doubles may miss a level by rounding
    at = np.searchsorted(fitted, levels * max(float(fitted[-1]), 0.0) * (1 - 1e-9))
    return np.minimum(at, len(curve) - 1).astype(np.int64)
