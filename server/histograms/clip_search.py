"""Arithmetic of the private searches for a clipping threshold: steps, curves, minimisers.

Nothing here draws noise. The functions are what a search does between two releases; each states by
how much its result can change with one user, where that is a sensitivity.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Section 4.2.
.. [2] Fichtenberger, Henzinger & Upadhyay, "Constant matters: fine-grained error bound on
   differentially private continual observation", ICML 2023, for the square root of prefix sums.
.. [3] Bassily, Smith & Thakurta, "Private empirical risk minimization", FOCS 2014, Theorem 2.4.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_triangular, toeplitz

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.guarantee import Adjacency

FACTOR_BITS = 12
"""Bits of the integer square root of the prefix sums; with 2^20 steps per user, sums over 2^30
users fit 64-bit integers."""

MOST_LEVEL = 1 << 60
"""No sum over users comes near; a public level beyond it acts as if it were infinite."""


# -- descent -------------------------------------------------------------------------------------


def log_step(x: float, number: int, gap: float, scale: float, ends: tuple[float, float]) -> float:
    """Take one step down a convex function of log C, along its slope cut to [-1, 1].

    Parameters
    ----------
    x : float
        log C.
    number : int
        t = 1, 2, ...; the step is at most t^(-1/2).
    gap : float
        The (noisy) slope: negative where C is too small.
    scale : float
        Slope that makes a full step; positive.
    ends : (float, float)
        The result is projected to this interval, in log C.

    Examples
    --------
    >>> log_step(1.0, 4, gap=3.0, scale=2.0, ends=(0.0, 9.0))
    0.5
    """
    move = min(max(gap / scale, -1.0), 1.0) / math.sqrt(number)
    return min(max(x - move, ends[0]), ends[1])


def proof_step(
    clip: float, number: int, gap: float, size: float, ends: tuple[float, float]
) -> float:
    """Take one step of the length that the convergence proof asks for [3].

    C - c_max gap / (size sqrt(t)), projected; ``size`` bounds the root mean square of the noisy
    slope: sqrt(n^2 L^2 + noise variance), for n users of Lipschitz constant L.

    Examples
    --------
    >>> proof_step(5.0, 4, gap=1.0, size=10.0, ends=(1.0, 8.0))
    4.6
    """
    moved = clip - ends[1] * gap / (size * math.sqrt(number))
    return min(max(moved, ends[0]), ends[1])


# -- prefix sums through their square root -------------------------------------------------------


def prefix_root(k: int) -> Floats:
    """Lower-triangular Toeplitz square root B of the prefix-sum matrix, (k, k): B B x = cumsum(x).

    The first column is c_0 = 1, c_j = c_{j-1} (2j - 1) / (2j), the power series of
    (1 - z)^(-1/2) [2].

    Examples
    --------
    >>> prefix_root(3) @ prefix_root(3) @ np.array([1.0, 10.0, 100.0])
    array([  1.,  11., 111.])
    """
    j = np.arange(1, k)
    column = np.concatenate(([1.0], np.cumprod((2 * j - 1) / (2 * j))))
    return np.asarray(toeplitz(column, np.zeros(k)))


def prefix_factor(k: int, bits: int = FACTOR_BITS) -> tuple[Integers, Floats]:
    """Factor the prefix sums into an integer encoder E and a decoder D: D E x = cumsum(x).

    E is 2^bits B rounded to integers, so that E x of an integer vector is one, exactly, and
    discrete noise can be added; D is what makes the product right, close to B / 2^bits.

    Returns
    -------
    encoder : (k, k) int64
        Lower triangular, non-negative, with 2^bits on the diagonal.
    decoder : (k, k) float64
    """
    encoder = np.rint(prefix_root(k) * (1 << bits)).astype(np.int64)
    ones = np.tril(np.ones((k, k)))
    # D E = A; the transposed system has E^T, upper triangular
    decoder = solve_triangular(encoder.astype(np.float64).T, ones.T, lower=False).T
    return encoder, np.asarray(decoder)


def squared_change(encoder: Integers, adjacency: Adjacency) -> int:
    """Square of the l2 sensitivity of E x, per unit of the largest weight of a user, exactly.

    One user adds r e_j with r in [0, R]. If it can only vanish, the change is at most R times the
    longest column of E. If it is replaced, r E e_j turns into r' E e_l; the distance is convex in
    (r, r'), so it is largest at a corner of [0, R]^2: a column, or a difference of two columns.
    Columns overlap, so that this lies below the factor sqrt 2 of disjoint vectors.

    Examples
    --------
    >>> squared_change(np.array([[2, 0], [1, 2]]), Adjacency.ZERO_OUT_USER)
    5
    >>> squared_change(np.array([[2, 0], [1, 2]]), Adjacency.REPLACE_USER)
    5
    """
    gram = encoder.T @ encoder
    size = np.diag(gram)
    most = int(size.max())
    if adjacency is Adjacency.REPLACE_USER:
        most = max(most, int((size[:, None] + size[None, :] - 2 * gram).max()))
    return most


def first_below(curve: Floats, level: float) -> int | None:
    """Index of the first point of a noisy non-increasing curve that is at most ``level``.

    The curve is replaced by its least-squares non-increasing fit first. None: it stays above.

    Examples
    --------
    >>> first_below(np.array([9.0, 4.0, 6.0, 1.0]), 5.0)
    1
    >>> first_below(np.array([9.0, 4.0, 6.1, 1.0]), 5.0)
    3
    """
    from scipy.optimize import isotonic_regression

    fitted = np.asarray(isotonic_regression(curve, increasing=False).x)
    below = np.flatnonzero(fitted <= level)
    return int(below[0]) if len(below) else None


# -- regularized minimisers ----------------------------------------------------------------------


def regularized_minimum(tails: Integers, lower: Integers, level: int) -> int:
    """Where C + level first reaches a non-increasing step function; all in the same integer steps.

    That is the minimiser over C >= 0 of G(C) + (Lambda / 2) C^2, whose slope is
    M + Lambda C - S(C): divide by Lambda.

    Parameters
    ----------
    tails : (K,) int64
        The values of S, non-increasing.
    lower : (K,) int64
        S = tails[k] from lower[k] on; the first is 0, increasing.
    level : int
        M, non-negative.

    Returns
    -------
    int
        min over k of max(lower[k], tails[k] - level). On piece k the condition holds from
        tails[k] - level on; beyond the piece S is smaller still, so every term is a solution, and
        the first solution is one of the terms.

    Privacy
    -------
    Changes by at most max |change of tails|: minima and maxima do not expand differences. So the
    sensitivity is that of one tail, R / Lambda in C, under every adjacency.

    Examples
    --------
    >>> regularized_minimum(np.array([9, 5, 1]), np.array([0, 4, 8]), level=2)
    4
    >>> regularized_minimum(np.array([9, 7, 1]), np.array([0, 4, 8]), level=2)
    5
    """
    return int(np.minimum.reduce(np.maximum(lower, tails - min(level, MOST_LEVEL))))
