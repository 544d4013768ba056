"""How many users do not agree with the others: a test of few users that can be private.

Two users who draw from one distribution agree, whatever it is: the chi-square statistic of their
two rows of counts is small. The public order of the users makes groups of twelve, and

    A = sum over groups of the fewest users to leave out so that all others in the group agree.

A user who is replaced, by whomever, could be left out before and after: A moves by at most 1, in
every relation between users that looks at two of them. A far cluster of a part f <= .4 of the users
gives A of about f n, whatever n is, and alike users next to none. A test of fit has to leave room
for the sampling of n users, about sqrt(n), and sees no cluster below that.

The statistic and its use are this project's own.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.special import chdtri

from fedhist.base.arrays import Floats, Integers

GROUP = 12
"""Users in a group: subsets of one are enumerated."""

CHANCE = 1e-4
"""How often two alike users are taken for users who do not agree."""


def left_out(rows: Integers, radius: float) -> int:
    """Count the fewest users to leave out of each group for the rest to agree. NOT PRIVATE.

    Parameters
    ----------
    rows : (n, k) int64
        Users' counts, in a public order that has nothing to do with what they hold. A user without
        items agrees with everybody.
    radius : float
        How many times as wide as by sampling alone users' counts may be around each other's.

    Returns
    -------
    int
        In [0, n].

    Privacy
    -------
    Sensitivity exactly 1 under replacement, for users whose places in the order are public.

    Cost
    ----
    O(n k) for all pairs in groups, and 2^12 subsets for each group in which some do not agree.

    Examples
    --------
    >>> rows = np.array([[90, 10]] * 9 + [[10, 90]] * 3)
    >>> left_out(rows, 1.0), left_out(rows[:9], 1.0)
    (3, 0)
    """
    most = chdtri(np.arange(max(rows.shape[1], 2)), CHANCE) * radius**2
    most[0] = np.inf  # two users of one symbol, the same
    return int(_left_out(np.ascontiguousarray(rows, dtype=np.int64), most))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _left_out(rows: Integers, most: Floats) -> int:
    n = rows.shape[0]
    total = np.zeros(n)
    for u in range(n):
        for i in range(rows.shape[1]):
            total[u] += rows[u, i]
    others = np.zeros(GROUP, dtype=np.int64)  # bits: with whom each does not agree
    kept = np.zeros(1 << GROUP, dtype=np.int64)
    out = 0
    for start in range(0, n, GROUP):
        size = min(GROUP, n - start)
        others[:] = 0
        for a in range(size):
            for b in range(a):
                if _apart(rows, total, start + a, start + b, most):
                    others[a] |= 1 << b
                    others[b] |= 1 << a
        if not others.any():
            continue
        for subset in range(1, 1 << size):  # the most users of it who agree
            a = 0
            while not (subset >> a) & 1:
                a += 1
            without = subset & (subset - 1)
            kept[subset] = max(kept[without], kept[without & ~others[a]] + 1)
        out += size - kept[(1 << size) - 1]
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _apart(rows: Integers, total: Floats, u: int, v: int, most: Floats) -> bool:
    """Compare two rows by sum_i (x_i sqrt(V / U) - y_i sqrt(U / V))^2 / (x_i + y_i)."""
    if total[u] == 0 or total[v] == 0:
        return False
    scale = np.sqrt(total[v] / total[u])
    distance, held = 0.0, 0
    for i in range(rows.shape[1]):
        both = rows[u, i] + rows[v, i]
        if both > 0:
            held += 1
            difference = rows[u, i] * scale - rows[v, i] / scale
            distance += difference * difference / both
    return bool(distance > most[held - 1])
