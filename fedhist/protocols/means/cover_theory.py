"""How often a vote over the cells of a cover finds the right one, and which cover is best.

Every user votes for one of N cells by unary randomized response with tau = tanh(epsilon / 4). The
totals of the true cell and of another one differ by n tau on average, a sum of 2n independent
bits of variance (1 - tau^2) / 4 each.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Theorem 1 and its proof, eq. (53), (54).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr
from scipy.stats import binom

from fedhist.base.arrays import Floats, Integers
from fedhist.base.search import MOST_USERS, first_true
from fedhist.channels.catalogue import UnaryChannel
from fedhist.channels.covers import Cover

_REACH = 10.0
"""Deviations beyond which a normal tail (1e-23) is nothing."""
_STEP = 1.1
_BLOCK = 4096


@dataclass(frozen=True)
class CoverPlan:
    """Which cover a population votes on; computed from public numbers only.

    Attributes
    ----------
    cover : Cover
    failure : float
        Bound on the probability that the wrong cell wins; see :func:`failure_bound`.
    risk : float
        delta^2 + diameter^2 failure: a bound on the expected squared l_2 error in the model.
    feasible : bool
        Whether the risk is below that of the centre of the set, which takes no data.
    """

    cover: Cover
    failure: float
    risk: float
    feasible: bool


def failure_bound(n_users: int, n_cells: int, flip: float) -> float:
    """Bound P(the wrong cell wins) when all users vote for one cell, by a union over the others.

    The total X of the true cell and Y of another one are independent, Bin(n, 1 - flip) and
    Bin(n, flip), so that Y + n - X is Bin(2n, flip) and

        P(the wrong cell wins) <= (N - 1) P(Bin(2n, flip) >= n) <= (N - 1) (1 - tau^2)^n,

    which is at most the (N - 1) e^{-n tau^2} of Hoeffding [1, eq. (53), (54), with twice the
    exponent there, because the bits of one user are independent]. For large n it is
    (N - 1) Phi(-tau sqrt(2n / (1 - tau^2))).

    Examples
    --------
    >>> failure_bound(1, 2, 0.25)
    0.4375
    """
    return min(1.0, (n_cells - 1) * float(binom.sf(n_users - 1, 2 * n_users, flip)))


@lru_cache(maxsize=64)
def _candidates(one: Cover) -> tuple[tuple[int, int, float], ...]:
    """List (per_axis, n_cells, radius) of the covers that are finer than one cell."""
    out: list[tuple[int, int, float]] = []
    m = 2
    while True:
        try:
            cover = replace(one, per_axis=m)
        except ValueError:  # too many cells
            return tuple(out)
        if cover.radius < one.radius:
            out.append((m, cover.n_cells, cover.radius))
        m = max(m + 1, int(m * _STEP))


def _options(one: Cover, per_axis: int | None) -> tuple[tuple[int, int, float], ...]:
    if per_axis is None:
        return _candidates(one)
    given = replace(one, per_axis=per_axis)
    return ((per_axis, given.n_cells, given.radius),)


@lru_cache(maxsize=256)
def plan_cover(one: Cover, n_users: int, epsilon: float, per_axis: int | None = None) -> CoverPlan:
    """Choose the cover of least risk, or assess a given one.

    Parameters
    ----------
    one : Cover
        The set, as a cover of one cell (per_axis = 1).
    n_users : int
        Planned number of users.
    epsilon : float
    per_axis : int, optional
        The cover to assess; by default all of at most MAX_CELLS cells compete, per_axis in steps
        of a tenth. Where none is feasible, the plan holds the cover of one cell.

    Notes
    -----
    risk = delta^2 + diameter^2 P with P the :func:`failure_bound`: the upper bound of Theorem 1.

    Examples
    --------
    >>> from fedhist.channels.covers import BoxGrid
    >>> plan_cover(BoxGrid(1, 1.0, 1), 400, 1.0).cover.n_cells > 8
    True
    """
    flip = UnaryChannel(epsilon).flip
    options = _options(one, per_axis)
    failures = [failure_bound(n_users, n_cells, flip) for _, n_cells, _ in options]
    risks = [
        delta**2 + one.diameter**2 * failure
        for (_, _, delta), failure in zip(options, failures, strict=True)
    ]
    alone = one.radius**2
    best = int(np.argmin(risks)) if risks else -1
    feasible = best >= 0 and risks[best] < alone
    if not feasible and per_axis is None:
        return CoverPlan(one, 0.0, alone, False)
    return CoverPlan(replace(one, per_axis=options[best][0]), failures[best], risks[best], feasible)


def least_users(one: Cover, epsilon: float, per_axis: int | None = None) -> int | None:
    """Return the least number of users for which the plan is feasible; None above 2^50.

    >>> from fedhist.channels.covers import BoxGrid
    >>> n = least_users(BoxGrid(2, 1.0, 1), 1.0)
    >>> [plan_cover(BoxGrid(2, 1.0, 1), k, 1.0).feasible for k in (n - 1, n)]
    [False, True]
    """
    flip = UnaryChannel(epsilon).flip
    # what P(Bin(2n, flip) >= n), which falls with n, may be at most
    allowed = max(
        (
            (one.radius**2 - delta**2) / (one.diameter**2 * (n_cells - 1))
            for _, n_cells, delta in _options(one, per_axis)
            if n_cells > 1
        ),
        default=0.0,
    )
    return first_true(lambda n: failure_bound(n, 2, flip) < allowed, MOST_USERS)


def expected_loss(cover: Cover, votes: Integers, n_users: int, tau: float, truth: Floats) -> float:
    """Predict the expected squared l_2 distance of the winning centre to the truth.

    Parameters
    ----------
    cover : Cover
    votes : (n_cells,) int64
        True votes for each cell.
    n_users : int
        Users who vote; those without a usable record have no true vote.
    tau : float
    truth : (dimension,) float64

    Notes
    -----
    The totals are independent over cells and taken as normal, all of the same variance
    n (1 - tau^2) / 4; the probability to win is one integral for each distinct number of votes.
    """
    values, which = np.unique(votes, return_inverse=True)
    if tau >= 1 or n_users == 0:
        wins = np.zeros(len(votes))
        wins[int(np.argmax(votes))] = 1.0
    else:
        wins = _win_probabilities(values, np.bincount(which), n_users, tau)[which]
    total = 0.0
    for start in range(0, len(votes), _BLOCK):
        cells = np.arange(start, min(start + _BLOCK, len(votes)), dtype=np.int64)
        square = np.square(cover.centres(cells) - truth).sum(axis=1)
        total += float(wins[cells] @ square)
    return total


def _win_probabilities(values: Integers, cells: Integers, n_users: int, tau: float) -> Floats:
    """P(one given cell with so many votes wins), for every distinct number of votes."""
    at = values * (2 * tau / math.sqrt(n_users * (1 - tau**2)))
    # the cells with most votes leave the largest total above this grid's start
    t = at[-1] + np.linspace(-_REACH, 2 * _REACH, 6001)
    z = t - at[:, None]
    below = log_ndtr(z)
    every = cells @ below
    density = np.exp(every - below - z**2 / 2) / math.sqrt(2 * math.pi)
    wins = density.sum(axis=1) * (t[1] - t[0])
    return np.asarray(wins / (cells @ wins))
