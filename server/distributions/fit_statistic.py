"""How far users are from binomials of one probability each: a goodness of fit that can be private.

For symbol i, C_i(t) counts the users who hold it at most t times. Where all users draw their m
items from one distribution, the number of times that a user holds symbol i is binomial, and some
hypothesis Bin(m, p_j) fits C_i. The statistic is the distance of the worst symbol from its best
hypothesis,

    T = max_i min_j max_t |C_i(t) - s F_j(t)|,    F_j(t) = P(Bin(m, p_j) <= t).

A user who is replaced moves every C_i(t) by at most 1. What the counts are compared with is public
and fixed; an absolute value, a maximum and a minimum move by no more than what they are taken of:
T has the sensitivity 1, however many symbols there are. (One statistic for each symbol would move
in as many entries as symbols change.) Here s F_j(t) is rounded to steps of 2^-10 users, so that T
is a whole number of steps and discrete noise serves it exactly.

F_j(t) falls with p_j: along the hypotheses the largest excess of C_i rises and the largest deficit
falls, and the minimum over j lies where they cross, which a bisection finds.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020: the counts C_i(t). The statistic and its use are this project's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from fedhist.base.arrays import Floats, Integers
from server.distributions.binomial_grid import MOST_HYPOTHESES, BinomialGrid
from server.distributions.ks_scores import MOST_CELLS, arcsine_thresholds

STEPS = 1 << 10
"""Steps per user, in which the statistic is an integer."""

ETA, MOST_ETA = 0.004, 0.02
"""Total variation within which hypotheses cover all binomials, and up to which it may be raised."""

MOST_STEPS = 1 << 40
"""Most users times steps: sums and differences of targets are then exact integers."""


@dataclass(frozen=True)
class FitPlan:
    """Everything about the statistic that does not depend on data; public, built once.

    Attributes
    ----------
    eta : float
        Every binomial is within eta of a hypothesis, in total variation: alike users have a
        statistic of at most eta s more than their sampling gives.
    thresholds : tuple of int
        T, as of the Kolmogorov-Smirnov scores.
    targets : (d, len(T)) int64
        s F_j(t) in steps, falling along the hypotheses.
    m : int
    means : (d,) int64
        - s p_j in steps, falling as well.
    """

    eta: float
    thresholds: tuple[int, ...]
    targets: Integers
    m: int
    means: Integers

    @classmethod
    def of(cls, m: int, n_users: int) -> FitPlan:
        """Build the plan, or return the one built before for the same public numbers."""
        return _build(m, n_users)

    def statistic(self, below: Integers) -> int:
        """Compute T in steps of 1 / 1024 users. NOT PRIVATE.

        Parameters
        ----------
        below : (k, len(T)) int64
            C_i(t): users who hold symbol i at most t times.

        Privacy
        -------
        Sensitivity exactly :data:`STEPS` under replacement: integers against fixed integers.

        Cost
        ----
        O(k len(T) log d).
        """
        counts = np.ascontiguousarray(below, dtype=np.int64)
        if counts.ndim != 2 or counts.shape[1] != len(self.thresholds) or not counts.size:
            want = f"(k, {len(self.thresholds)})"
            raise ValueError(f"counts must be {want}, got shape {counts.shape}")
        return int(_statistic(counts * STEPS, self.targets))

    def off_mean(self, below: Integers, totals: Integers, slack: int) -> int:
        """Compute max_i min_j max(max_t |C_i(t) - s F_j(t)| - slack, |X_i / m - s p_j|) in steps.

        Whether hypotheses that fit up to a slack also have the users' average: users who are
        spread evenly around one share do, and a cluster that the fit would not miss does not.
        NOT PRIVATE.

        Parameters
        ----------
        below : (k, len(T)) int64
            C_i(t).
        totals : (k,) int64
            X_i: how many of symbol i all users hold.
        slack : int
            In steps.

        Privacy
        -------
        Sensitivity exactly :data:`STEPS` under replacement: X_i moves by at most m.
        """
        mean = -(totals * STEPS // self.m)[:, None]
        counts = np.hstack([below * STEPS, mean - slack, mean + slack])  # |x| + slack, from either
        targets = np.hstack([self.targets, self.means[:, None], self.means[:, None]])
        return int(_statistic(np.ascontiguousarray(counts), targets)) - slack


def fit_eta(m: int) -> float:
    """Width of the cover, from public numbers: .004, or what fits into memory; inf beyond .02."""
    cells = min(m, 2 * math.pi * math.sqrt(m) + 34)
    eta = max(
        ETA,
        math.pi * math.sqrt(m) / 4 * cells / (0.99 * MOST_CELLS),
        math.pi * math.sqrt(m) / 4 / (0.99 * MOST_HYPOTHESES),
    )
    return eta if eta <= MOST_ETA else math.inf


@lru_cache(maxsize=2)
def _build(m: int, n_users: int) -> FitPlan:
    eta = fit_eta(m)
    if math.isinf(eta) or n_users * STEPS > MOST_STEPS:
        raise ValueError(f"no test of fit for m = {m} and {n_users} users: too large a table")
    grid, thresholds = BinomialGrid.of(m, eta), arcsine_thresholds(m)
    below = binomial_below(m, grid.p, grid.q, np.array(thresholds))
    targets = np.rint(below * (n_users * STEPS)).astype(np.int64)
    np.minimum.accumulate(targets, axis=0, out=targets)  # rounding shall not undo their order
    targets.setflags(write=False)
    means = -np.rint(grid.p * (n_users * STEPS)).astype(np.int64)
    return FitPlan(eta, thresholds, targets, m, means)


def binomial_below(m: int, p: Floats, q: Floats, thresholds: Integers) -> Floats:
    """P(Bin(m, p_j) <= t) by the recurrence of the mass function: (d, len(T)), within 1e-11.

    Parameters
    ----------
    m : int
    p, q : (d,) float64
        q = 1 - p, without its rounding.
    thresholds : (T,) int64
        Increasing, in [0, m - 1].

    Examples
    --------
    >>> half = np.array([0.5])
    >>> binomial_below(2, half, half, np.array([0, 1])).round(12)
    array([[0.25, 0.75]])
    """
    out = np.empty((len(p), len(thresholds)))
    _below(m, p, q, thresholds.astype(np.int64), out)
    return out


NEGLIGIBLE = 1e-30
"""Masses below this part of the largest one are left out."""


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _below(m: int, p: Floats, q: Floats, thresholds: Integers, out: Floats) -> None:
    """Fill ``out``: masses relative to the mode's, out to where they vanish, then their sums."""
    mass = np.empty(m + 1)
    for j in range(p.shape[0]):
        if p[j] <= 0.0 or q[j] <= 0.0:
            out[j, :] = 1.0 if p[j] <= 0.0 else 0.0
            continue
        mode = min(m, int((m + 1) * p[j]))
        low = high = mode
        mass[mode] = total = 1.0
        while low > 0:
            x = mass[low] * low / (m - low + 1) * (q[j] / p[j])
            if x < NEGLIGIBLE:
                break
            low -= 1
            mass[low] = x
            total += x
        while high < m:
            x = mass[high] * (m - high) / (high + 1) * (p[j] / q[j])
            if x < NEGLIGIBLE:
                break
            high += 1
            mass[high] = x
            total += x
        at, before = low, 0.0
        for i in range(thresholds.shape[0]):
            while at <= high and at <= thresholds[i]:
                before += mass[at]
                at += 1
            out[j, i] = 1.0 if at > high else before / total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _statistic(counts: Integers, targets: Integers) -> Any:
    """max_i min_j max_t |counts[i, t] - targets[j, t]| where targets fall along j."""
    worst = np.int64(0)
    last = targets.shape[0] - 1
    for i in range(counts.shape[0]):
        low, high = 0, last  # the first j at which the excess is at least the deficit; or the last
        best = np.int64(1) << np.int64(62)
        while low < high:
            j = (low + high) // 2
            excess, deficit = _apart(counts[i], targets[j])
            best = min(best, max(excess, deficit))
            if excess >= deficit:
                high = j
            else:
                low = j + 1
        for j in range(max(low - 1, 0), low + 1):
            excess, deficit = _apart(counts[i], targets[j])
            best = min(best, max(excess, deficit))
        worst = max(worst, best)
    return worst


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _apart(counts: Integers, targets: Integers) -> tuple[int, int]:
    """Largest excess and largest deficit of the counts over the targets."""
    excess = counts[0] - targets[0]
    deficit = -excess
    for t in range(1, counts.shape[0]):
        x = counts[t] - targets[t]
        excess, deficit = max(excess, x), max(deficit, -x)
    return excess, deficit


# -- what the statistic says -----------------------------------------------------------------------


def fit_sampling(k: int, n_users: int, eta: float) -> float:
    """Largest statistic that alike users have without noise, but for one population in a hundred.

    Half of sqrt(s log(2 k / .01) / 2), the bound of Dvoretzky, Kiefer and Wolfowitz over k symbols
    for ONE hypothesis each, and half of what the cover may add, eta s: the best of many hypotheses
    fits better. Measured, for k from 1 to 1000 and m from 3 to 2000: .05 to .5 of the bound.
    """
    return 0.5 * (math.sqrt(n_users * math.log(2 * k / 0.01) / 2) + eta * n_users)


FALSE_ALARM, CAUTION = 0.01, 0.05
"""How often noise is taken for users who differ: by whoever warns, and by who has a choice."""


def fit_limit(
    k: int, n_users: int, eta: float, epsilon: float, alarm: float = FALSE_ALARM
) -> float:
    """Largest noisy statistic, in users, that passes for that of alike users.

    :func:`fit_sampling` + log(.5 / alarm) / epsilon of the noise Lap(1 / epsilon).
    """
    return fit_sampling(k, n_users, eta) + math.log(0.5 / alarm) / epsilon


OWN_AVERAGE = (
    "nothing that rests on one distribution was used, and the estimate is the average of the "
    "users' own"
)
NOTHING = "nothing need be done if that is what you ask for"


def misfit(off: float, limit: float) -> str:
    """Say that the statistic lies above its limit."""
    return (
        "the users do not look as if they all drew from one distribution (their fit is off by "
        f"{off:.4g} users, where {limit:.4g} would pass)"
    )


def kappa(ratio: float) -> float:
    """Distance of a normal law from one ``ratio`` >= 1 times as wide: sup |Phi(x) - Phi(x / r)|.

    Users with Dirichlet(c p) distributions have beta-binomial counts, r = sqrt(1 + (m - 1) /
    (c + 1)) times as wide as binomial ones: their statistic is about kappa(r) s.

    >>> round(kappa(2.0), 4), round(kappa(1.01) / 0.01, 3)
    (0.1613, 0.241)
    """
    if ratio <= 1:
        return 0.0
    log = math.log(ratio)
    x = math.sqrt(2 * log / -math.expm1(-2 * log))
    return 0.5 * (math.erf(x / math.sqrt(2)) - math.erf(x / ratio / math.sqrt(2)))


MOST_RATIO = 1e3


def spread_ratio(statistic: float, k: int, n_users: int) -> float:
    """Read the statistic, in users, as how many times wider than binomial counts are: at least 1.

    kappa^-1(max(0, T - .6 sqrt(s log(2 k) / 2)) / s); what is taken off is about what alike users
    have by chance.

    >>> round(spread_ratio(1613 + 0.6 * (10**4 * np.log(20) / 2) ** 0.5, 10, 10**4), 2)
    2.0
    """
    chance = 0.6 * math.sqrt(n_users * math.log(2 * k) / 2)
    share = max(0.0, statistic - chance) / n_users
    low, high = 1.0, MOST_RATIO
    if share >= kappa(high):
        return high
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if kappa(middle) < share else (low, middle)
    return high
