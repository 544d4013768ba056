r"""Objectives for the contribution bound C of a histogram over an unbounded domain [1]_.

Users keep C of their m_i tokens at random, noise is added to the items that are left, and items
above a threshold t(C) are released. With h_j the expected count that is left of item j:

    V(C) = 2 sum_i (min(m_i, C_K) - C)+ + sum_j min(h_j, t)                      "union" [1, (1)]
    W(C) =   sum_i (min(m_i, C_K) - C)+ + sum_j min(h_j, max(b, 2 t - h_j))      "ramp"

C_K is the largest threshold of the grid. The paper has no min in its first term and bounds users
by a public C_m instead; for C <= C_K that moves V by a constant, and no choice. In V a released
item costs as much as a lost one, t; in W it costs its noise, b, which is some twenty times less.

Ranges
------
What one user can change is compared through the range over C of that change, A(C): the mechanism
with weights exp(-epsilon V / range) is epsilon-DP if max A - min A <= range for all neighbours.
Let a user of m tokens join (or leave), and m' = min(m, C_K). Each h_j grows by something
non-negative, all of them together by at most min(m, C), rounding down included. In h, min(h, t) is
non-decreasing and 1-Lipschitz and min(h, max(b, 2 t - h)) is 1-Lipschitz, whatever t and b are, so

    V:  2 (m' - C)+            <= A(C) <= 2 (m' - C)+ + min(m, C)
    W:  (m' - C)+ - min(m, C)  <= A(C) <= (m' - C)+ + min(m, C)

and for thresholds C < D of the grid, each at its worst m (below C, between, above D),

    V:  A(C) - A(D) <= 2 D - C,    A(D) - A(C) <= C
    W:  A(C) - A(D) <= 2 D,        A(D) - A(C) <= 2 C

A user who is added, removed or zeroed out: 2 C_K - C_1 for V, 2 C_K for W. A replacement is one A
minus another, so the two bounds add up: 2 C_K for V, 2 (C_K + C_(K-1)) for W. The last is
attained for some t and b, but not for those of our release, where we found 2 C_K + C_(K-1) at most:
the choice is up to 1.3 times noisier there than it might be. Corrected against
the paper, which states the sensitivity 5 C_m / 2 (in a proof, 3 C_m) and pays for twice that: it
is valid, but the choice is 2.5 times as noisy as it need be.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Theorem 5.2 and Algorithm 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Adjacency
from fedhist.privacy.sensitivity import sensitivity_multipliers
from fedhist.protocols.shared.total_loops import add_by_size
from fedhist.session.unknown_keys import key_threshold, printed_key_threshold
from fedhist.users.batch import Users
from fedhist.users.shards import Shard

Int64s = NDArray[np.int64]
Grid = tuple[int, ...]

SCORES = ("ramp", "union")
CELLS = 1 << 20
"""Numbers per temporary array when items are walked in blocks; fixes the order of additions."""


def score_range(score: str, grid: Grid, adjacency: Adjacency) -> float:
    """Bound the range over the grid of what one user changes in a score.

    Examples
    --------
    >>> score_range("union", (1, 2, 4), Adjacency.ZERO_OUT_USER)
    7.0
    >>> [score_range(s, (1, 2, 4), Adjacency.REPLACE_USER) for s in SCORES]
    [12.0, 8.0]
    """
    replace = adjacency is Adjacency.REPLACE_USER
    last, before = grid[-1], grid[-2] if len(grid) > 1 else 0
    if score == "union":
        return float(2 * last if replace else 2 * last - grid[0])
    return float(2 * (last + before) if replace else 2 * last)


def printed_range(clip_max: int) -> float:
    """Return twice the paper's sensitivity, 5 C_m: valid for V under every adjacency, but loose."""
    return 5.0 * clip_max


def release_levels(
    grid: Grid, epsilon: float, delta: float, adjacency: Adjacency, *, printed: bool = False
) -> tuple[Floats, Floats]:
    """Return the release's threshold t(C) and noise scale b(C) at every C of the grid.

    Parameters
    ----------
    grid : tuple of int
    epsilon, delta : float
        Budget of the release; without noise (inf) both levels are 0.
    adjacency : Adjacency
    printed : bool
        The paper's t = C + (C / epsilon) ln(C / (2 delta)) and b = C / epsilon instead.

    Returns
    -------
    t, b : (K,) float64

    Examples
    --------
    >>> release_levels((10,), 1.0, 1e-6, Adjacency.ZERO_OUT_USER)
    (array([156.]), array([10.]))
    >>> release_levels((10,), 1.0, 1e-6, Adjacency.ZERO_OUT_USER, printed=True)[0].round(2)
    array([164.25])
    """
    c = np.array(grid, dtype=np.float64)
    if math.isinf(epsilon):
        return np.zeros_like(c), np.zeros_like(c)
    if printed:
        return np.array([printed_key_threshold(x, epsilon, delta) for x in grid]), c / epsilon
    k1 = round(sensitivity_multipliers(adjacency, 2)[0])  # an unbounded domain has many items
    t = [key_threshold(bound, k1 * bound, epsilon, delta) for bound in grid]
    return np.array(t, dtype=np.float64), k1 * c / epsilon


def item_cost(score: str, kept: Floats, t: Any, b: Any) -> Floats:
    """Bound the error of an item of which ``kept`` is left in expectation."""
    if score == "union":
        return np.asarray(np.minimum(kept, t))
    return np.asarray(np.minimum(kept, np.maximum(b, 2 * t - kept)))


def lost_weight(score: str) -> float:
    """Weight of a lost token in a score."""
    return 2.0 if score == "union" else 1.0


def bound_scores(
    score: str,
    grid: Grid,
    users: Int64s,
    sizes: Int64s,
    shares: Int64s,
    unit: float,
    levels: tuple[Floats, Floats],
) -> Floats:
    """Evaluate a score at every threshold from sums over the users.

    Parameters
    ----------
    score : {"ramp", "union"}
    grid : tuple of int
    users, sizes : (K,) int64
        Number and total size min(m, C_K) of the users with m in (grid[k], grid[k + 1]].
    shares : (items, K) int64
        The expected count of item j at C is unit times sum over l of shares[j, l] min(C, grid[l]).
    unit : float
        Value of one step of a share.
    levels : (t, b)

    Returns
    -------
    (K,) float64
        NOT PRIVATE.

    Error
    -----
    Of rounding. All terms are non-negative and add up to 2 n C_K at most. A kept count is the sum
    of K numbers, the sum over a block of items is pairwise, and there are B = items K / 2^20 + 1
    blocks: a score is off by at most (K + B + 40) 2^-52 n C_K, which is less than 2^-22 of its
    sensitivity, C_K at least, for n (K + B + 40) up to 2^30.

    Cost
    ----
    O(items K) time; temporary memory does not grow with either.
    """
    c = np.array(grid, dtype=np.int64)
    beyond, size = (np.cumsum(a[::-1])[::-1] for a in (users, sizes))
    total = lost_weight(score) * (size - beyond * c).astype(np.float64)
    step = max(1, CELLS // len(grid))
    for start in range(0, len(shares), step):
        kept = kept_counts(grid, shares[start : start + step], unit)
        cost = item_cost(score, kept, *levels)
        total += np.ascontiguousarray(cost.T).sum(axis=1)  # pairwise: see Error
    return total


def kept_counts(grid: Grid, shares: Int64s, unit: float) -> Floats:
    """Return the expected count of every item at every threshold: (items, K). NOT PRIVATE."""
    share = shares.astype(np.float64) * unit
    c = np.array(grid, dtype=np.float64)
    kept = np.cumsum(share * c, axis=1)
    kept[:, :-1] += np.cumsum(share[:, :0:-1], axis=1)[:, ::-1] * c[:-1]
    return kept


# -- the same from the users themselves, for predictions -------------------------------------------


def user_sizes(users: Users) -> Floats:
    """Compute m_i, the number of tokens of every user: (n,) float64. NOT PRIVATE."""
    v = users.counts
    ends = np.concatenate(([0.0], np.cumsum(v.count, dtype=np.float64)))
    return np.asarray(np.diff(ends[v.indptr]))


@dataclass(frozen=True)
class Curves:
    """What bounds on the users' tokens would cost, and leave. NOT PRIVATE.

    Attributes
    ----------
    above : (K,) int64
        Users with more tokens than each bound C.
    lost : (K,) float64
        Sum over users of (min(m, grid[-1]) - C)+.
    kept : (K, len(vocabulary)) float64
        Sum over users of min(1, C / m) N_j.
    """

    above: Int64s
    lost: Floats
    kept: Floats


def clipped_curves(users: Shard, grid: Grid) -> Curves:
    """Walk the users once for all bounds of an increasing grid; shares no code with the estimator.

    With b the user's place in the grid, what is left at C is the sum of N over users below C, and
    C times the sum of N / m over those above.
    """
    bounds, shape = np.array(grid, dtype=np.float64), (len(grid) + 1, len(users.none.vocabulary))
    whole, share = np.zeros(shape), np.zeros(shape)
    above, lost = np.zeros(len(grid), dtype=np.int64), np.zeros(len(grid))
    for block in users.blocks():
        v, m = block.counts, user_sizes(block)
        cell = np.searchsorted(bounds, m)  # bounds below m
        add_by_size(v.indptr, v.item, v.count, cell, m, whole, share)
        above += np.bincount(cell, minlength=len(whole))[::-1].cumsum()[::-1][1:]
        lost += [np.maximum(np.minimum(m, bounds[-1]) - c, 0.0).sum() for c in bounds]
    kept = whole.cumsum(axis=0)[:-1]
    kept += bounds[:, None] * share[::-1].cumsum(axis=0)[::-1][1:]
    return Curves(above, lost, kept)


def scores_of_curves(
    score: str, found: Curves, levels: tuple[Floats, Floats], one_in: int = 1
) -> Floats:
    """Evaluate a score at every threshold, from what is lost and left there. NOT PRIVATE.

    What is left may be of 1 in so many items only.
    """
    cost = [
        one_in * item_cost(score, kept, t, b).sum()
        for kept, t, b in zip(found.kept, *levels, strict=True)
    ]
    return np.asarray(lost_weight(score) * found.lost + cost)
