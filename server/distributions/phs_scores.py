"""Private hypothesis selection for binomials: the scores of Algorithm 1, exactly and fast [1]_.

H_j is tested against every competitor H_k on the event W_jk = {x : H_j(x) > H_k(x)}:

    Gamma(j, k) = s                                   if TV(H_j, H_k) <= 2 c,
                  max(0, #{u in W_jk} - s (H_k(W_jk) + c))  otherwise;    S_j = min_k Gamma(j, k).

Here c is the paper's (3/2) alpha. A user who is replaced moves #{u in W_jk} by at most 1, maximum
and minimum do not enlarge that, and the first branch is constant: S_j has sensitivity 1. Corrected
against the paper: the probability of H_j is proportional to exp(epsilon S_j / 2), not to
exp(S_j / (2 epsilon)), which is (1 / epsilon)-DP only.

On one side of H_j the events are nested: W_jk = {x <= t_jk}, t_jk increasing in k. So a competitor
that is farther off counts more users; it can attain the minimum only if its H_k(W_jk) is larger
than that of all nearer ones. These record maxima do not depend on data. The scan outward stops as
soon as the Bhattacharyya coefficient, which bounds H_k(W_jk), is down to the record. Some 2.5
competitors per hypothesis are left, and a symbol is scored in O(d).

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Algorithms 1 and 2; after Bun, Kamath, Steinke & Wu, "Private
   hypothesis selection", NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from server.distributions.binomial_grid import BinomialGrid, Int64s, SelectionPlan, dyadic

DEFAULT_C = 0.4


@dataclass(frozen=True)
class PHSPlan(SelectionPlan):
    """Plan of the tests between hypotheses, whose scores lie between 0 and n_users.

    Its thresholds are the crossings that are needed.

    Attributes
    ----------
    c : float
        In (0, 1/2): hypotheses further apart than 2 c compete, and tents are c s high.
    start : (d + 1,) int64
        Hypothesis j has the competitors ``start[j]`` to ``start[j + 1]`` of the next three.
    place : (n,) int64
        Number of the crossing t in T.
    upper : (n,) bool
        False: W = {x <= t}, against a larger p. True: W = {x > t}, against a smaller one.
    mass : (n,) float64
        H_k(W).
    """

    c: float
    start: Int64s
    place: Int64s
    upper: NDArray[np.bool_]
    mass: Floats

    @classmethod
    def of(cls, m: int, eta: float, c: float = DEFAULT_C) -> PHSPlan:
        """Build the plan, or return the one built before for the same public numbers."""
        if not 0 < c < 0.5:
            raise ValueError(f"c must lie in (0, 1/2), got {c}")
        return _build(m, eta, c)

    def score(self, counts: Floats, n_users: int) -> Floats:
        """Score the counts, in some 2.5 operations per symbol and hypothesis."""
        target = dyadic((self.mass + self.c) * n_users, n_users)
        out = np.empty((len(counts), len(self.grid)))
        _phs_scores(counts, float(n_users), self.start, self.place, self.upper, target, out)
        return out


@lru_cache(maxsize=8)
def _build(m: int, eta: float, c: float) -> PHSPlan:
    grid = BinomialGrid.of(m, eta)
    j, t, mass = _records(grid, c)
    # the mirror p -> 1 - p maps W = {x <= t} of j to {x > m - 1 - t} of d - 1 - j
    both_j = np.concatenate((j, len(grid) - 1 - j))
    both_t = np.concatenate((t, m - 1 - t))
    upper = np.repeat([False, True], len(j))
    order = np.argsort(both_j, kind="stable")
    thresholds, place = np.unique(both_t[order], return_inverse=True)
    start = np.zeros(len(grid) + 1, dtype=np.int64)
    np.cumsum(np.bincount(both_j, minlength=len(grid)), out=start[1:])
    arrays = start, place.astype(np.int64), upper[order], np.concatenate((mass, mass))[order]
    for a in arrays:
        a.setflags(write=False)
    # a plan without competitors still needs a threshold to ask for
    return PHSPlan(grid, tuple(thresholds.tolist()) or (0,), c, *arrays)


def _records(grid: BinomialGrid, c: float) -> tuple[Int64s, Int64s, Floats]:
    """Scan outward to larger p: hypothesis, crossing and H_k(W_jk) of every record maximum."""
    d = len(grid)
    record = np.full(d, -1.0)  # below 0: a rival with p = 1 has no mass below m, and counts
    found: list[tuple[Int64s, Int64s, Floats]] = []
    active = np.arange(d)
    for offset in range(1, d):
        active = active[active + offset < d]
        gap = grid.angle[active + offset] - grid.angle[active]
        active = active[np.cos(gap) ** grid.m > record[active]]
        if not len(active):
            break
        rival = active + offset
        t = grid.crossing(active, rival)
        theirs = grid.below(rival, t)
        new = (grid.below(active, t) - theirs > 2 * c) & (theirs > record[active])
        record[active[new]] = theirs[new]
        found.append((active[new], t[new], theirs[new]))
    j, t, mass = (np.concatenate(x) for x in zip(*found, strict=True))
    return j, t, mass


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _phs_scores(
    counts: Floats,
    n_users: float,
    start: Int64s,
    place: Int64s,
    upper: NDArray[np.bool_],
    target: Floats,
    out: Floats,
) -> None:
    """Fill ``out`` (k, d) with min(s, max(0, count(W) - target)) over each one's competitors."""
    for i in range(counts.shape[0]):
        for j in range(out.shape[1]):
            best = n_users
            for e in range(start[j], start[j + 1]):
                c = counts[i, place[e]]
                best = min(best, (n_users - c if upper[e] else c) - target[e])
            out[i, j] = max(best, 0.0)
