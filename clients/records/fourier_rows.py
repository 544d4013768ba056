"""A user's record as one row of whole numbers: the means of cosines and sines of its samples."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers
from fedhist.users.columns import Samples


def fourier_rows(samples: Samples, n_frequencies: int, steps: int) -> NDArray[np.int32]:
    """Average cos(2 pi k x) and sin(2 pi k x), k = 1, ..., over each user's samples.

    Parameters
    ----------
    samples : Samples
        Of one dimension; clipped into [0, 1].
    n_frequencies : int
        K.
    steps : int
        Grid steps per unit, in which the means are rounded to whole numbers; below 2^31.

    Returns
    -------
    (n, 2 K) int32
        cosine 1, sine 1, cosine 2, ...: those of the mean of the samples' points on a curve, each
        rounded to the nearest step. The null record, a row of zeros, for a user without samples
        or with a NaN among them. A row depends on its user's record alone, to the last bit.

    Examples
    --------
    >>> two = Samples(np.array([0, 1, 3]), np.array([[0.0], [0.0], [0.25]]))
    >>> fourier_rows(two, 2, 100).tolist()
    [[100, 0, 100, 0], [50, 50, 0, 0]]
    """
    out = np.zeros((len(samples.indptr) - 1, 2 * n_frequencies), dtype=np.int32)
    _fill(samples.indptr, samples.values, float(steps), out)
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fill(indptr: Integers, values: Floats, steps: float, out: NDArray[np.int32]) -> None:
    width = out.shape[1]
    total = np.empty(width)
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        total[:] = 0.0
        for i in range(start, stop):
            x = values[i, 0]
            x = 0.0 if x < 0.0 else (1.0 if x > 1.0 else x)  # a NaN stays, and spoils every sum
            c, s = math.cos(2.0 * math.pi * x), math.sin(2.0 * math.pi * x)
            re, im = 1.0, 0.0
            for j in range(0, width, 2):  # one turn more for the next frequency
                re, im = re * c - im * s, re * s + im * c
                total[j] += re
                total[j + 1] += im
        if stop > start and not np.isnan(total[0]):
            for j in range(width):
                out[u, j] = np.int32(np.rint(total[j] / (stop - start) * steps))
