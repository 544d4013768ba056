"""How often a vote over the cells of a cover finds the right one, and which cover is best.

Every user votes for one of N cells: by unary randomized response with tau = tanh(epsilon / 4),
where the totals of the true cell and of another one differ by n tau on average, a sum of 2n
independent bits of variance (1 - tau^2) / 4 each; or by one symbol, see
:mod:`fedhist.channels.wide_votes`.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Theorem 1 and its proof, eq. (53), (54).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import betainc, log_ndtr

from fedhist.base.arrays import Floats, Integers
from fedhist.base.search import MOST_USERS, first_true
from fedhist.channels.catalogue import UnaryChannel
from fedhist.channels.covers import Cover
from fedhist.channels.oracles import SymbolOracle
from fedhist.channels.wide_votes import is_wide, wide_channel, wide_steps

_REACH = 10.0
"""Deviations beyond which a normal tail (1e-23) is nothing."""
_STEP = 1.1
MOST_PLANNED = 1 << 18
"""Cells of the covers that compete; finer ones, which take seconds of the server, can be given."""
_BLOCK = 4096
_FEW, _DISTINCT = 4096, 64
"""Users, and distinct numbers of votes, up to which totals have their binomial laws."""


@dataclass(frozen=True)
class CoverPlan:
    """Which cover a population votes on; computed from public numbers only.

    Attributes
    ----------
    cover : Cover
    failure : float
        Probability that the wrong cell wins; see :func:`vote_failure`.
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
    # P(Bin(2n, flip) >= n), without scipy.stats, which takes half a second to be imported
    return min(1.0, (n_cells - 1) * float(betainc(n_users, n_users + 1, flip)))


def vote_failure(n_users: int, n_cells: int, epsilon: float) -> float:
    """Bound or predict P(the wrong cell wins) for the vote that is asked for, by a union.

    In bits :func:`failure_bound`; as one symbol the pairwise probability of
    :meth:`~fedhist.channels.wide_votes.Steps.log_failure`.
    """
    if n_cells == 1 or not is_wide(epsilon, n_cells):
        return failure_bound(n_users, n_cells, UnaryChannel(epsilon).flip)
    pair = wide_steps(epsilon, n_cells)[0].log_failure(n_users)
    return math.exp(min(0.0, math.log(n_cells - 1) + pair))


@lru_cache(maxsize=4096)
def _candidate(one: Cover, per_axis: int) -> tuple[int, int, float] | None:
    """Return (per_axis, n_cells, radius) of a cover; None with too many cells."""
    try:
        cover = replace(one, per_axis=per_axis)
    except ValueError:
        return None
    return per_axis, cover.n_cells, cover.radius


def _options(one: Cover, per_axis: int | None) -> Iterator[tuple[int, int, float]]:
    """List (per_axis, n_cells, radius) of the given cover, or of those finer than one cell."""
    if per_axis is not None:
        given = replace(one, per_axis=per_axis)
        yield per_axis, given.n_cells, given.radius
        return
    m = 2
    while (found := _candidate(one, m)) and found[1] <= MOST_PLANNED:
        if found[2] < one.radius:
            yield found
        m = max(m + 1, int(m * _STEP))


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
        The cover to assess; by default all of at most MOST_PLANNED cells compete, per_axis in steps
        of a tenth. Where none is feasible, the plan holds the cover of one cell.

    Notes
    -----
    risk = delta^2 + diameter^2 P with P the :func:`vote_failure`: the upper bound of Theorem 1.

    Examples
    --------
    >>> from fedhist.channels.covers import BoxGrid
    >>> plan_cover(BoxGrid(1, 1.0, 1), 400, 1.0).cover.n_cells > 8
    True
    """
    alone, worst = one.radius**2, one.diameter**2
    best: tuple[float, int, float] | None = None
    for m, n_cells, delta in _options(one, per_axis):
        failure = vote_failure(n_users, n_cells, epsilon)
        risk = delta**2 + worst * failure
        if best is None or risk < best[0]:
            best = risk, m, failure
        if worst * failure >= min(best[0], alone):
            break  # failures are likelier with more cells
    feasible = best is not None and best[0] < alone
    if best is None or (not feasible and per_axis is None):
        return CoverPlan(one, 0.0, alone, False)
    return CoverPlan(replace(one, per_axis=best[1]), best[2], best[0], feasible)


def least_users(one: Cover, epsilon: float, per_axis: int | None = None) -> int | None:
    """Return the least number of users for which the plan is feasible; None above 2^50.

    >>> from fedhist.channels.covers import BoxGrid
    >>> n = least_users(BoxGrid(2, 1.0, 1), 1.0)
    >>> [plan_cover(BoxGrid(2, 1.0, 1), k, 1.0).feasible for k in (n - 1, n)]
    [False, True]
    """

    def feasible(n: int) -> bool:
        for _, n_cells, delta in _options(one, per_axis):
            lost = one.diameter**2 * vote_failure(n, n_cells, epsilon)
            if n_cells > 1 and delta**2 + lost < one.radius**2:
                return True
            if lost >= one.radius**2:
                return False
        return False

    return first_true(feasible, MOST_USERS)


def expected_loss(
    cover: Cover, votes: Integers, n_users: int, epsilon: float, truth: Floats
) -> float:
    """Predict the expected squared l_2 distance of the winning centre to the truth.

    Parameters
    ----------
    cover : Cover
    votes : (n_cells,) int64
        True votes for each cell.
    n_users : int
        Users who vote; those without a usable record have no true vote.
    epsilon : float
    truth : (dimension,) float64

    Notes
    -----
    The totals are taken as independent over cells. In bits they are, all of the same variance
    n (1 - tau^2) / 4; those of one symbol nearly so, as any two sets of messages overlap as
    independent ones would. They are taken as normal, or, for one symbol and at most 4,096 users,
    with their binomial laws, ties at random. The probability to win is one integral for each
    distinct number of votes.
    """
    values, which = np.unique(votes, return_inverse=True)
    cells_of = np.bincount(which)
    tau = 1.0 if math.isinf(epsilon) else UnaryChannel(epsilon).tau
    if n_users == 0 or tau == 1.0:  # as it is in doubles from some epsilon on
        wins = np.zeros(len(votes))
        wins[int(np.argmax(votes))] = 1.0
    elif not is_wide(epsilon, len(votes)):
        step = 2 * tau / math.sqrt(n_users * (1 - tau**2))
        wins = _win_probabilities(np.asarray(values * step), cells_of)[which]
    elif n_users <= _FEW and len(values) <= _DISTINCT:
        wins = _win_by_counts(values, cells_of, n_users, wide_channel(epsilon, len(votes)))[which]
    else:
        found, top = wide_steps(epsilon, len(votes))[0], int(values[-1])
        spread = found.up + found.down - found.drift**2
        variance = top * spread / 2 + (n_users - top) * found.aside
        at = np.asarray(values * (found.drift / math.sqrt(variance)))
        wins = _win_probabilities(at, cells_of)[which]
    total = 0.0
    for start in range(0, len(votes), _BLOCK):
        cells = np.arange(start, min(start + _BLOCK, len(votes)), dtype=np.int64)
        square = np.square(cover.centres(cells) - truth).sum(axis=1)
        total += float(wins[cells] @ square)
    return total


def _win_by_counts(values: Integers, cells: Integers, n_users: int, law: SymbolOracle) -> Floats:
    """P(one given cell with so many votes wins), for every distinct number of votes.

    A total is Bin(v, p) + Bin(n - v, q); the largest one wins, of several each as likely: with mu
    others at the same total on average, (1 - e^-mu) / mu.
    """
    from scipy.stats import binom

    k = np.arange(n_users + 1)
    share = [
        np.convolve(
            binom.pmf(k[: v + 1], v, law.p), binom.pmf(k[: n_users - v + 1], n_users - v, law.q)
        )
        for v in values.tolist()
    ]
    here = np.array(share)
    up_to = np.maximum(np.cumsum(here, axis=1), 1e-300)
    ties = (cells @ (here / up_to))[None, :] - here / up_to
    alone = np.where(ties > 1e-9, -np.expm1(-ties) / np.maximum(ties, 1e-9), 1.0)
    others = np.exp((cells @ np.log(np.minimum(up_to, 1.0)))[None, :]) / up_to
    wins = (here * np.minimum(others, 1.0) * alone).sum(axis=1)
    return np.asarray(wins / (cells @ wins))


def _win_probabilities(at: Floats, cells: Integers) -> Floats:
    """P(one given cell wins), for every distinct mean of totals, in standard deviations."""
    # the cells with most votes leave the largest total above this grid's start
    t = at[-1] + np.linspace(-_REACH, 2 * _REACH, 6001)
    z = t - at[:, None]
    below = log_ndtr(z)
    every = cells @ below
    density = np.exp(every - below - z**2 / 2) / math.sqrt(2 * math.pi)
    wins = density.sum(axis=1) * (t[1] - t[0])
    return np.asarray(wins / (cells @ wins))
