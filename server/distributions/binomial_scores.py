"""Binomial hypotheses on the arcsine scale, and the scores that one is selected by [1]_.

On the scale theta = arcsin sqrt(p) binomials of one size look alike: the Bhattacharyya coefficient
of Bin(m, sin^2 a) and Bin(m, sin^2 b) is cos(a - b)^m, whatever a and b are. A grid that is even in
theta therefore covers all of them in total variation with of order sqrt(m) points, where the
paper's, even in p, takes of order m.

For one symbol, C(t) counts the users who hold it at most t times; a user who is replaced moves
every C(t) by at most 1. Two scores have sensitivity 1 by that.

:class:`KSPlan`, this project's own: S_j = - max_t |C(t) - s F_j(t)|, F_j(t) = P(Bin(m, p_j) <= t),
for ANY fixed thresholds t. In this family the Kolmogorov-Smirnov distance IS total variation, which
makes the selection at least as good as the Scheffe tests, whose competitors it does without.

:class:`PHSPlan`, Algorithm 1: H_j is tested against every competitor H_k on W_jk = {x : H_j(x) >
H_k(x)}, c being the paper's (3/2) alpha:

    Gamma(j, k) = s                                   if TV(H_j, H_k) <= 2 c,
                  max(0, #{u in W_jk} - s (H_k(W_jk) + c))  otherwise;    S_j = min_k Gamma(j, k).

Maximum and minimum do not enlarge what one user moves, and the first branch is constant. Corrected
against the paper: the probability of H_j is proportional to exp(epsilon S_j / 2), not to
exp(S_j / (2 epsilon)), which is (1 / epsilon)-DP only.

On one side of H_j the events are nested, W_jk = {x <= t_jk}: a competitor that is farther off can
attain the minimum only if its H_k(W_jk) is larger than that of all nearer ones. Some 2.5
competitors per hypothesis are left of these record maxima, which do not depend on data.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Algorithms 1 and 2, Theorem 5; after Bun, Kamath, Steinke & Wu, "Private
   hypothesis selection", NeurIPS 2019.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_integer, check_within

MOST_HYPOTHESES = 1 << 20

SCORE_SENSITIVITY = 1 + 1e-9
"""Of a score: 1, exactly; the rest is room for the rounding of its product with epsilon / 2."""


@dataclass(frozen=True)
class BinomialGrid:
    """Hypotheses Bin(m, p_j), within ``eta`` of every binomial of size m in total variation."""

    m: int
    eta: float
    angle: Floats
    p: Floats
    q: Floats

    @classmethod
    def of(cls, m: int, eta: float) -> BinomialGrid:
        """Build the grid: d = ceil(pi sqrt(m) / (4 eta)) + 2 points, p = 0 and 1 among them.

        Neighbouring angles differ by at most 2 eta / sqrt(m), so that every angle is within half of
        that of one on the grid; and TV <= sqrt(1 - B^2) <= sqrt(m) |a - b|, B the coefficient.

        >>> len(BinomialGrid.of(1000, 0.02).p)
        1244
        """
        check_integer("m", m)
        check_within("eta", eta, 0, 1, "()")
        n = math.ceil(math.pi * math.sqrt(m) / (4 * eta))
        if n > MOST_HYPOTHESES:
            raise ValueError(f"{n} hypotheses are too many: raise eta = {eta} (m = {m})")
        half = np.concatenate(([0.0], (np.arange(n // 2) + 0.5) * (math.pi / (2 * n))))
        middle = [math.pi / 4] * (n % 2), [0.5] * (n % 2)
        angle = np.concatenate((half, middle[0], (math.pi / 2 - half)[::-1]))
        p = np.concatenate((np.sin(half) ** 2, middle[1], np.cos(half[::-1]) ** 2))
        return cls(m, eta, angle, p, p[::-1].copy())

    def __len__(self) -> int:
        return len(self.p)

    def below(self, j: ArrayLike, t: ArrayLike) -> Floats:
        """P(Bin(m, p_j) <= t) for 0 <= t < m, elementwise."""
        j, t = np.asarray(j), np.asarray(t, dtype=np.float64)
        return np.asarray(betainc(self.m - t, t + 1, self.q[j]))

    def crossing(self, j: ArrayLike, k: ArrayLike) -> Integers:
        """For p_j < p_k, the t with {x : H_j(x) > H_k(x)} = {x <= t}, elementwise.

        The largest integer below x* = m b / (a + b), a = log(p_k / p_j), b = log(q_j / q_k), where
        the likelihood ratio crosses 1: a tie at an integer x* belongs to neither of the two sets.
        """
        j, k = np.asarray(j), np.asarray(k)
        with np.errstate(divide="ignore"):  # p = 0 or 1: the set is {0}, or everything below m
            a = np.log(self.p[k]) - np.log(self.p[j])
            b = np.log(self.q[j]) - np.log(self.q[k])
        edge = np.isinf(a) | np.isinf(b)
        a, b = np.where(edge, 1.0, a), np.where(edge, 1.0, b)
        x = self.m * b / (a + b)
        x = np.where(np.abs(x - np.rint(x)) < 1e-9, np.rint(x), x)  # a tie
        t = np.where(self.p[j] == 0, 0.0, np.where(self.q[k] == 0, self.m - 1.0, np.ceil(x) - 1))
        return t.astype(np.int64)


@dataclass(frozen=True)
class SelectionPlan(ABC):
    """Everything about scores that does not depend on data; public, built once."""

    grid: BinomialGrid
    thresholds: tuple[int, ...]

    @property
    def p(self) -> Floats:
        """Probability of each hypothesis, (d,)."""
        return self.grid.p

    def scores(self, below: NDArray[np.number[Any]], n_users: int) -> Floats:
        """Score all hypotheses for every symbol by C(t), (k, len(T)): (k, d). NOT PRIVATE.

        ``n_users`` is s, public (or released: counts may then lie outside [0, s]). Sensitivity
        exactly 1 per row, also in doubles: what counts are compared with is rounded to a dyadic
        grid on which the differences are exact. One user changes at most min(k, 2m) rows.
        """
        counts = doubles(below, n_users)
        if counts.ndim != 2 or counts.shape[1] != len(self.thresholds):
            want = f"(k, {len(self.thresholds)})"
            raise ValueError(f"counts must be {want}, got shape {counts.shape}")
        return self.score(counts, n_users)

    @abstractmethod
    def score(self, counts: Floats, n_users: int) -> Floats:
        """Score what :func:`doubles` makes of the counts: (k, d)."""


def pick_eta(n_users: int, epsilon: float) -> float:
    """Width of the grid from public numbers: an eighth of the error to be expected anyway."""
    privacy = 0.0 if math.isinf(epsilon) else 5 / (epsilon * n_users)
    return min(max(max(1 / math.sqrt(n_users), privacy) / 8, 0.004), 0.05)


def dyadic(targets: Floats, n_users: int) -> Floats:
    """Round to multiples of 2^-g, so fine that counts of n_users less these are exact doubles."""
    g = 50 - int(n_users).bit_length()
    return np.asarray(np.ldexp(np.rint(np.ldexp(targets, g)), -g))


def doubles(counts: NDArray[np.number[Any]], n_users: int) -> Floats:
    """Convert counts, moved into [-s, 2 s] so that they too are exact next to :func:`dyadic`."""
    return np.ascontiguousarray(np.clip(counts, -n_users, 2 * n_users), dtype=np.float64)


# -- Kolmogorov-Smirnov scores

MOST_TABLE = 1 << 25
"""Largest table of distribution functions, in doubles: 256 MB."""


@dataclass(frozen=True)
class KSPlan(SelectionPlan):
    """Plan of the Kolmogorov-Smirnov scores, -n_users to 0, from F_j(t): (len(T), d)."""

    table: Floats

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, m: int, eta: float) -> KSPlan:
        """Build the plan, or return the one built before for the same public numbers."""
        grid = BinomialGrid.of(m, eta)
        if oversized(m, len(grid)):
            raise ValueError(f"m = {m} is too large for a table with eta = {eta}: raise eta")
        thresholds = arcsine_thresholds(m)
        table = grid.below(np.arange(len(grid))[None, :], np.array(thresholds)[:, None])
        table.setflags(write=False)
        return cls(grid, thresholds, table)

    def score(self, counts: Floats, n_users: int) -> Floats:
        """Score the counts, in k d |T| operations."""
        out = np.zeros((len(counts), len(self.grid)))
        for count, target in zip(counts.T, dyadic(self.table * n_users, n_users), strict=True):
            np.maximum(out, np.abs(count[:, None] - target), out=out)
        return np.negative(out, out=out)


def arcsine_thresholds(m: int) -> tuple[int, ...]:
    """All of 0, ..., m - 1 where these are few, else integers half a standard deviation apart.

    >>> arcsine_thresholds(3), len(arcsine_thresholds(1000))
    ((0, 1, 2), 199)
    """
    n = math.ceil(2 * math.pi * math.sqrt(m))
    if m <= n:
        return tuple(range(m))
    spaced = np.rint(m * np.sin(np.linspace(0, math.pi / 2, n + 1)) ** 2).astype(np.int64)
    # one by one at both ends, where the scale jumps over integers
    ends = np.concatenate((np.arange(16), m - 1 - np.arange(16)))
    return tuple(np.unique(np.clip(np.concatenate((spaced, ends)), 0, m - 1)).tolist())


def oversized(m: int, hypotheses: float) -> bool:
    """Say whether the table for this many hypotheses would pass :data:`MOST_TABLE`."""
    return hypotheses * min(m, 2 * math.pi * math.sqrt(m) + 34) > MOST_TABLE


# -- private hypothesis selection


@dataclass(frozen=True)
class PHSPlan(SelectionPlan):
    """Plan of the tests between hypotheses, whose scores lie between 0 and n_users.

    Hypothesis j has the competitors ``start[j]`` to ``start[j + 1]``: each with the number of its
    crossing t among the thresholds, whether W = {x > t} (``upper``) or {x <= t}, and H_k(W).
    """

    c: float
    start: Integers
    place: Integers
    upper: NDArray[np.bool_]
    mass: Floats

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, m: int, eta: float, c: float = 0.4) -> PHSPlan:
        """Build the plan, or return the one built before for the same public numbers."""
        check_within("c", c, 0, 0.5, "()")
        grid = BinomialGrid.of(m, eta)
        j, t, mass = _records(grid, c)
        # the mirror p -> 1 - p maps W = {x <= t} of j to {x > m - 1 - t} of d - 1 - j
        both_j = np.concatenate((j, len(grid) - 1 - j))
        both_t = np.concatenate((t, m - 1 - t))
        upper = np.repeat([False, True], len(j))
        order = np.argsort(both_j, kind="stable")
        thresholds, place = np.unique(both_t[order], return_inverse=True)
        start = np.append(0, np.cumsum(np.bincount(both_j, minlength=len(grid))))
        arrays = start, place.astype(np.int64), upper[order], np.concatenate((mass, mass))[order]
        for a in arrays:
            a.setflags(write=False)
        # a plan without competitors still needs a threshold to ask for
        return cls(grid, tuple(thresholds.tolist()) or (0,), c, *arrays)

    def score(self, counts: Floats, n_users: int) -> Floats:
        """Score the counts, in some 2.5 operations per symbol and hypothesis."""
        target = dyadic((self.mass + self.c) * n_users, n_users)
        out = np.full((len(counts), len(self.grid)), float(n_users))
        some = np.diff(self.start) > 0  # hypotheses with competitors
        for row, count in zip(out, counts, strict=True):
            held = count[self.place]
            gamma = np.where(self.upper, n_users - held, held) - target
            if some.any():
                row[some] = np.minimum.reduceat(gamma, self.start[:-1][some])
        return np.clip(out, 0.0, n_users, out=out)


def _records(grid: BinomialGrid, c: float) -> tuple[Integers, Integers, Floats]:
    """Scan outward to larger p: hypothesis, crossing and H_k(W_jk) of every record maximum."""
    d = len(grid)
    record = np.full(d, -1.0)  # below 0: a rival with p = 1 has no mass below m, and counts
    cells: list[tuple[Integers, Integers, Floats]] = []
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
        cells.append((active[new], t[new], theirs[new]))
    j, t, mass = (np.concatenate(x) for x in zip(*cells, strict=True))
    return j, t, mass
