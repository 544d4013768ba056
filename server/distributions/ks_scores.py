"""Scores of binomial hypotheses by their Kolmogorov-Smirnov distance: what the curator selects by.

For one symbol, C(t) counts the users who hold it at most t times. A user who is replaced moves
every C(t) by at most 1, so

    S_j = - max_t |C(t) - s F_j(t)|,    F_j(t) = P(Bin(m, p_j) <= t),

has sensitivity 1 for ANY fixed thresholds t, without tuning constants. In this family the
Kolmogorov-Smirnov distance IS total variation, which makes the selection at least as good as the
Scheffe tests of private hypothesis selection, whose competitors and tents it does without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numba import njit

from fedhist.base.arrays import Floats
from server.distributions.binomial_grid import BinomialGrid, SelectionPlan, dyadic

EXTREMES = 16
"""Thresholds kept one by one at both ends, where the arcsine scale jumps over integers."""

MOST_CELLS = 1 << 25
"""Largest table of distribution functions, in doubles: 256 MB."""


@dataclass(frozen=True)
class KSPlan(SelectionPlan):
    """Plan of the Kolmogorov-Smirnov scores, which lie between -n_users and 0.

    Attributes
    ----------
    table : (len(T), d) float64
        F_j(t).
    """

    table: Floats

    @classmethod
    def of(cls, m: int, eta: float) -> KSPlan:
        """Build the plan, or return the one built before for the same public numbers."""
        return _build(m, eta)

    def score(self, counts: Floats, n_users: int) -> Floats:
        """Score the counts, in k d |T| operations."""
        out = np.zeros((len(counts), len(self.grid)))
        _ks_scores(counts, dyadic(self.table * n_users, n_users), out)
        return np.negative(out, out=out)


def arcsine_thresholds(m: int) -> tuple[int, ...]:
    """All of 0, ..., m - 1 where these are few, else integers half a standard deviation apart.

    The standard deviation of arcsin sqrt(X / m) is 1 / (2 sqrt(m)), whatever p is: about
    2 pi sqrt(m) thresholds, and the 16 extreme ones on both sides.

    >>> arcsine_thresholds(3), len(arcsine_thresholds(1000))
    ((0, 1, 2), 199)
    """
    n = math.ceil(2 * math.pi * math.sqrt(m))
    if m <= n:
        return tuple(range(m))
    spaced = np.rint(m * np.sin(np.linspace(0, math.pi / 2, n + 1)) ** 2).astype(np.int64)
    ends = np.concatenate((np.arange(EXTREMES), m - 1 - np.arange(EXTREMES)))
    return tuple(np.unique(np.clip(np.concatenate((spaced, ends)), 0, m - 1)).tolist())


def oversized(m: int, hypotheses: float) -> bool:
    """Say whether the table for this many hypotheses would pass :data:`MOST_CELLS`."""
    return hypotheses * min(m, 2 * math.pi * math.sqrt(m) + 2 * EXTREMES + 2) > MOST_CELLS


@lru_cache(maxsize=8)
def _build(m: int, eta: float) -> KSPlan:
    grid = BinomialGrid.of(m, eta)
    if oversized(m, 0.5 * len(grid)):  # hopeless: do not even list the thresholds
        raise ValueError(f"m = {m} is too large for a table with eta = {eta}: raise eta")
    thresholds = arcsine_thresholds(m)
    if len(grid) * len(thresholds) > MOST_CELLS:
        raise ValueError(
            f"{len(grid)} hypotheses at {len(thresholds)} thresholds make too large a table: "
            f"raise eta = {eta} (m = {m})"
        )
    table = grid.below(np.arange(len(grid))[None, :], np.array(thresholds)[:, None])
    table.setflags(write=False)
    return KSPlan(grid, thresholds, table)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _ks_scores(counts: Floats, targets: Floats, out: Floats) -> None:
    """Raise ``out`` (k, d) to the largest |counts[i, t] - targets[t, j]| over t."""
    for i in range(counts.shape[0]):
        for t in range(counts.shape[1]):
            c = counts[i, t]
            for j in range(targets.shape[1]):
                out[i, j] = max(out[i, j], abs(c - targets[t, j]))
