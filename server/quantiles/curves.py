"""Cumulative curves over bins: what is released with noise, and the quantiles that are read off.

References
----------
.. [1] Fichtenberger, Henzinger & Upadhyay, "Constant matters: fine-grained error bound on
   differentially private continual observation", ICML 2023: the square root of prefix sums.
.. [2] Hay, Rastogi, Miklau & Suciu, "Boosting the accuracy of differentially private histograms
   through consistency", VLDB 2010: counts on the levels of a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.privacy.guarantee import Adjacency

ROOT_BITS = 12
"""Bits of the integer square root: its sums over 2^32 users of 2^18 steps fit 64-bit integers."""


def quantile_bins(curve: Floats, levels: Floats) -> Integers:
    """Find the first bin at which the curve's non-decreasing fit reaches each level of its end.

    The curve is (K,): noisy counts of what lies in the bins up to each, the last that of all.

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


# -- a square root of the running sums [1]


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
    """Turn E x, with noise, into the running sums of x: cumsum(E^-1 y)."""
    from scipy.signal import lfilter  # .35 s, which only runs with this noise shall pay

    return np.asarray(np.cumsum(lfilter([1.0], root_column(len(y)).astype(np.float64), y)))


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


# -- counts on the levels of a tree [2]


def tree_widths(n_bins: int) -> tuple[int, ...]:
    """Choose a tree over bins: how many bins a node of each level holds, the last of them 1.

    h levels of b children each, b^h >= K, with the least h^3 (b - 1): noise of scale h on each of
    the h (b - 1) nodes, at most, that add up to a running sum.

    Examples
    --------
    >>> tree_widths(256)
    (16, 1)
    """
    shapes = []
    for h in range(1, max(2, n_bins.bit_length() + 1)):
        b = max(2, int(n_bins ** (1 / h)))
        while b**h < n_bins:
            b += 1
        shapes.append((h**3 * (b - 1), h, b))
    _, h, b = min(shapes)
    return tuple(b**level for level in range(h - 1, -1, -1))


def node_sums(bins: Array, width: int) -> Array:
    """Add up ``width`` bins at a time, the last node holding what is left: (ceil(K / width),)."""
    return np.asarray(np.add.reduceat(bins, np.arange(0, len(bins), width)))


def fitted_bins(nodes: Sequence[Floats], widths: Sequence[int]) -> Floats:
    """Return the bins of least squares, given equally noisy sums of the nodes of every level.

    Parameters
    ----------
    nodes : sequence of (ceil(K / width),) float64
    widths : sequence of int
        Bins of a node, decreasing, each a divisor of the one before; the last is 1.

    Examples
    --------
    >>> fitted_bins([np.array([3.5]), np.array([1.0, 1.0])], [2, 1]).tolist()
    [1.5, 1.5]
    """
    # from the bins up: the best estimate of a node from what lies below it, and its variance
    best, var = [nodes[-1]], [np.ones(len(nodes[-1]))]
    for level in range(len(widths) - 2, -1, -1):
        step = widths[level] // widths[level + 1]
        below, spread = node_sums(best[0], step), node_sums(var[0], step)
        share = spread / (spread + 1)  # of the node's own count
        best.insert(0, share * nodes[level] + (1 - share) * below)
        var.insert(0, share)
    # and down again: what a node has more than its children is spread over them
    fitted = best[0]
    for level in range(1, len(widths)):
        step = widths[level - 1] // widths[level]
        parent = np.arange(len(best[level])) // step
        excess = fitted - node_sums(best[level], step)
        fitted = best[level] + (excess / node_sums(var[level], step))[parent] * var[level]
    return np.asarray(fitted)
