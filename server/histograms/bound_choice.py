r"""Private choice of the contribution bound C for a histogram over an unbounded domain [1]_.

Users keep C of their m_i tokens at random, noise is added to the items that are left, and items
above a threshold t(C) are released. The exponential mechanism over a grid of thresholds takes a
bound on the expected error as its score. With h_j the expected count that is left of item j:

    V(C) = 2 sum_i (min(m_i, C_K) - C)+ + sum_j min(h_j, t)                      [1, (1)]

C_K is the largest threshold of the grid. The paper has no min in its first term and bounds users
by a public C_m instead; for C <= C_K that moves V by a constant, and no choice.

Range
-----
What one user can change is compared through the range over C of that change, A(C): the mechanism
with weights exp(-epsilon V / range) is epsilon-DP if max A - min A <= range for all neighbours.
Let a user of m tokens join (or leave), and m' = min(m, C_K). Each h_j grows by something
non-negative, all of them together by at most min(m, C), rounding down included. In h, min(h, t) is
non-decreasing and 1-Lipschitz, whatever t is, so

    2 (m' - C)+            <= A(C) <= 2 (m' - C)+ + min(m, C)

and for thresholds C < D of the grid, each at its worst m (below C, between, above D),

    A(C) - A(D) <= 2 D - C,    A(D) - A(C) <= C

A user who is added, removed or zeroed out: 2 C_K - C_1. A replacement is one A minus another, so
the two bounds add up: 2 C_K. Corrected against the paper, which states the sensitivity 5 C_m / 2
(in a proof, 3 C_m) and pays for twice that: it is valid, but the choice is 2.5 times as noisy as it
need be.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Theorem 5.2 and Algorithm 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clients.bounding.size_curves import SHARE_PARTS
from clients.histograms.key_queries import SizeCurves
from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Adjacency, Moves, sensitivity_multipliers
from server.clip_choice.rule import Choice, Search, at_the_top
from server.session.curator import Curator
from server.session.unknown_keys import key_threshold, printed_key_threshold

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class BoundTask:
    """The public side of a choice of C.

    >>> task = BoundTask((1, 2, 4), 0.1, 1.0, 1e-6, Adjacency.ZERO_OUT_USER)
    >>> task.range, replace(task, adjacency=Adjacency.REPLACE_USER).range
    (7.0, 8.0)
    >>> task.levels(), replace(task, printed=4).levels().round(2)
    (array([15., 30., 60.]), array([14.12, 29.63, 62.03]))
    """

    grid: tuple[int, ...]  # thresholds C, increasing
    epsilon: float  # of the choice, epsilon'; pure
    release_epsilon: float  # budget of the release that C is chosen for
    release_delta: float
    adjacency: Adjacency
    printed: int | None = None  # C_m, for Algorithm 4 as it stands

    @property
    def range(self) -> float:
        """Range over the grid of what one user changes in V, that the mechanism pays for."""
        if self.printed:
            return 5.0 * self.printed
        last = self.grid[-1]
        replaced = self.adjacency is Adjacency.REPLACE_USER
        return float(2 * last if replaced else 2 * last - self.grid[0])

    def levels(self) -> Floats:
        """Threshold t(C) of the release at every C of the grid, (K,)."""
        budget = self.release_epsilon, self.release_delta
        if math.isinf(self.release_epsilon):
            return np.zeros(len(self.grid))
        if self.printed:
            return np.array([printed_key_threshold(c, *budget) for c in self.grid])
        k1 = round(sensitivity_multipliers(self.adjacency, 2)[0])  # many items
        return np.array([key_threshold(c, k1 * c, *budget) for c in self.grid], dtype=np.float64)

    def scores(
        self, users: Int64s, sizes: Int64s, shares: Int64s, at_a_time: int = 1 << 20
    ) -> Floats:
        """Evaluate V at every threshold from the sums of :class:`SizeCurves`, (K,). NOT PRIVATE.

        Error
        -----
        Of rounding. All terms are non-negative and add up to 2 n C_K at most. A kept count is the
        sum of K numbers, the sum over a block of items, of 2^20 numbers ``at_a_time``, is pairwise,
        and there are B = items K / 2^20 + 1 blocks: V is off by at most (K + B + 40) 2^-52 n C_K,
        which is less than 2^-22 of its sensitivity, C_K at least, for n (K + B + 40) up to 2^30.
        """
        c, t = np.array(self.grid, dtype=np.int64), self.levels()
        beyond, size = (np.cumsum(a[::-1])[::-1] for a in (users, sizes))
        total = 2.0 * (size - beyond * c).astype(np.float64)
        step = max(1, at_a_time // len(c))  # items; fixes the order of additions
        for start in range(0, len(shares), step):
            cost = np.minimum(kept_counts(self.grid, shares[start : start + step]), t)
            total += np.ascontiguousarray(cost.T).sum(axis=1)  # pairwise: see Error
        return total


def kept_counts(grid: tuple[int, ...], shares: Int64s) -> Floats:
    """Return the expected count of every item at every threshold: (items, K). NOT PRIVATE."""
    share = shares.astype(np.float64) / SHARE_PARTS
    c = np.array(grid, dtype=np.float64)
    left = np.cumsum(share * c, axis=1)
    left[:, :-1] += np.cumsum(share[:, :0:-1], axis=1)[:, ::-1] * c[:-1]
    return left


def choose_bound(task: BoundTask, server: Curator) -> Search:
    """Choose C by the exponential mechanism; one round.

    Privacy
    -------
    epsilon-DP: the weights are exp(-epsilon V / range) with a bound on the range over C of one
    user's change; the paper's, with 5 C_m for the range, are needlessly flat.
    """
    summary = yield SizeCurves(task.grid)
    score = task.scores(
        summary.sums["users"], summary.sums["sizes"], summary.keyed["shares"].values
    )
    at = server.exponential(
        -score,
        sensitivity=task.range / 2,
        epsilon=task.epsilon,
        label="bound",
        moves=Moves.of(lambda a: replace(task, adjacency=a).range),
    )
    clip = task.grid[at]
    return Choice(float(clip), (at_the_top(clip),) if clip == task.grid[-1] else ())
