"""Counts on the levels of a tree of bins, and the bins that fit all of them best.

References
----------
.. [1] Hay, Rastogi, Miklau & Suciu, "Boosting the accuracy of differentially private histograms
   through consistency", VLDB 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedhist.base.arrays import Array, Floats


def best_widths(n_bins: int, cost: Callable[[int, int], float]) -> tuple[int, ...]:
    """Choose a tree over bins: how many bins a node of each level holds, the last of them 1.

    Parameters
    ----------
    n_bins : int
    cost : callable
        Of (levels h, children b of a node): what is to be least.

    Examples
    --------
    >>> best_widths(256, lambda h, b: h**3 * (b - 1))
    (16, 1)
    """
    shapes = [(h, _branches(n_bins, h)) for h in range(1, max(2, n_bins.bit_length() + 1))]
    h, b = min(shapes, key=lambda shape: cost(*shape))
    return tuple(b**level for level in range(h - 1, -1, -1))


def _branches(n_bins: int, h: int) -> int:
    """Least b with b^h >= n_bins."""
    b = max(2, int(n_bins ** (1 / h)))
    while b**h < n_bins:
        b += 1
    return b


def node_sums(bins: Array, width: int) -> Array:
    """Add up ``width`` bins at a time, the last node holding what is left: (ceil(K / width),)."""
    return np.asarray(np.add.reduceat(bins, np.arange(0, len(bins), width)))


def fitted_bins(
    nodes: Sequence[Floats], variances: Sequence[float], widths: Sequence[int], n_bins: int
) -> Floats:
    """Return the bins of least squares, given noisy sums of the nodes of every level.

    Parameters
    ----------
    nodes : sequence of (ceil(K / width),) float64
    variances : sequence of float
        Of a node's noise, level by level; all of them alike and independent.
    widths : sequence of int
        Bins of a node, decreasing, each a divisor of the one before; the last is 1.
    n_bins : int
        K.

    Examples
    --------
    >>> fitted_bins([np.array([3.5]), np.array([1.0, 1.0])], [1.0, 1.0], [2, 1], 2).tolist()
    [1.5, 1.5]
    """
    # from the bins up: the best estimate of a node from what lies below it, and its variance
    best, var = [nodes[-1]], [np.full(n_bins, float(variances[-1]))]
    for level in range(len(widths) - 2, -1, -1):
        step = widths[level] // widths[level + 1]
        below, spread = node_sums(best[0], step), node_sums(var[0], step)
        share = spread / (spread + variances[level])  # of the node's own count
        best.insert(0, share * nodes[level] + (1 - share) * below)
        var.insert(0, share * variances[level])
    # and down again: what a node has more than its children is spread over them
    fitted = best[0]
    for level in range(1, len(widths)):
        step = widths[level - 1] // widths[level]
        parent = np.arange(len(best[level])) // step
        excess = fitted - node_sums(best[level], step)
        fitted = best[level] + (excess / node_sums(var[level], step))[parent] * var[level]
    return np.asarray(fitted)
