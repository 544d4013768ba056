"""Running sums with correlated noise: the square root of the prefix sums, in integers.

References
----------
.. [1] Fichtenberger, Henzinger & Upadhyay, "Constant matters: fine-grained error bound on
   differentially private continual observation", ICML 2023.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.guarantee import Adjacency

ROOT_BITS = 12
"""Bits of the integer square root: its sums over 2^32 users of 2^18 steps fit 64-bit integers."""


@lru_cache(maxsize=64)
def root_column(k: int) -> Integers:
    """First column of an integer lower-triangular Toeplitz matrix E near 2^12 B: (k,) int64.

    B B is the matrix of prefix sums; the column of B is c_0 = 1, c_j = c_{j-1} (2j - 1) / (2j) [1].

    Examples
    --------
    >>> root_column(4).tolist()
    [4096, 2048, 1536, 1280]
    """
    j = np.arange(1, k)
    column = np.concatenate(([1.0], np.cumprod((2 * j - 1) / (2 * j))))
    return np.asarray(np.rint(column * (1 << ROOT_BITS)), dtype=np.int64)


def encoded(x: Integers) -> Integers:
    """E x, exactly: (k,) int64 in, (k,) int64 out."""
    return np.convolve(root_column(len(x)), x)[: len(x)]


def decoded(y: Floats) -> Floats:
    """Turn E x, with noise, into the running sums of x: cumsum(E^-1 y), row by row of (..., k)."""
    from scipy.signal import lfilter  # .35 s, which only runs with this noise shall pay

    column = root_column(y.shape[-1]).astype(np.float64)
    return np.asarray(np.cumsum(lfilter([1.0], column, y, axis=-1), axis=-1))


@lru_cache(maxsize=64)
def squared_change(k: int, adjacency: Adjacency) -> int:
    """Square of the l2 sensitivity of E x where a user adds a row of non-negatives of sum 1, or 0.

    The change is convex in the two rows, so that it is largest where each is a unit vector or zero:
    a column of E, or under replacement a difference of two columns as well. Columns overlap, so
    that this lies below the factor sqrt 2 of disjoint vectors.

    Examples
    --------
    >>> squared_change(2, Adjacency.ZERO_OUT_USER) == 4096**2 + 2048**2
    True
    >>> squared_change(2, Adjacency.REPLACE_USER) == 4096**2 + 2048**2
    True
    """
    c = root_column(k)
    upto = np.cumsum(c * c)
    most = int(upto[-1])  # the first column
    if adjacency is Adjacency.REPLACE_USER:
        for d in range(1, k):  # columns j and j + d: ||.||^2 = u[k-1-j] + u[k-1-j-d] - 2 c.c
            both = np.cumsum(c[: k - d] * c[d:])
            most = max(most, int((upto[d:] + upto[: k - d] - 2 * both).max()))
    return most


def noise_profile(k: int) -> Floats:
    """Compute each running sum's standard deviation, per unit of noise on E x: (k,)."""
    impulse = np.zeros(k)
    impulse[0] = 1.0
    return np.asarray(np.sqrt(np.cumsum(np.square(decoded(impulse)))))
