"""A user's record as one point: the mean of its samples, NaN where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedhist.users import Samples


def user_points(samples: Samples) -> NDArray[np.float64]:
    """Average each user's samples, coordinate by coordinate, without clipping.

    Returns
    -------
    (n, dimension) float64
        A row of NaN for a user without samples, or whose mean is not finite.

    Examples
    --------
    >>> user_points(Samples(np.array([0, 2, 2]), np.array([[1.0, 0.0], [3.0, 1.0]])))
    array([[2. , 0.5],
           [nan, nan]])
    """
    sizes = np.diff(samples.indptr)
    points = np.zeros((len(sizes), samples.values.shape[1]))
    _add_rows(samples.indptr, samples.values, points)
    points /= np.maximum(sizes, 1)[:, None]
    points[(sizes == 0) | ~np.isfinite(points).all(axis=1)] = np.nan
    return points


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_rows(indptr: Any, values: Any, out: Any) -> None:
    """Add up each user's rows, in their order; overflow gives infinities, without a warning."""
    for user in range(len(indptr) - 1):
        for row in range(indptr[user], indptr[user + 1]):
            for j in range(values.shape[1]):
                out[user, j] += values[row, j]
