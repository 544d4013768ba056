"""Binomial hypotheses on the arcsine scale: a grid, where two cross, how far apart they are.

On the scale theta = arcsin sqrt(p) binomials of one size look alike: the Bhattacharyya coefficient
of Bin(m, sin^2 a) and Bin(m, sin^2 b) is cos(a - b)^m, whatever a and b are. A grid that is even in
theta therefore covers all of them in total variation with of order sqrt(m) points, where the
paper's, even in p, takes of order m [1]_.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Algorithm 2 and Theorem 5.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_within

Int64s = NDArray[np.int64]

TIE = 1e-9
"""A crossing this close to an integer is one: there the two probabilities are equal."""

MOST_HYPOTHESES = 1 << 20

MOST_CELLS = 1 << 26
"""Most counts in a summary, symbols times thresholds: 512 MB."""

SENSITIVITY = 1 + 1e-9
"""Of a score: 1, exactly; the rest is room for the rounding of its product with epsilon / 2."""

SMALL = 2.0
"""Symbols selected with m p below this are read from presence [1, Algorithm 5, line 6]."""


@dataclass(frozen=True)
class BinomialGrid:
    """Hypotheses Bin(m, p_j), j = 0, ..., d - 1, within ``eta`` of every binomial of size m.

    Attributes
    ----------
    m : int
    eta : float
        Total variation.
    angle : (d,) float64
        theta_j, increasing from 0 to pi / 2 and symmetric around pi / 4.
    p, q : (d,) float64
        sin^2 theta_j and cos^2 theta_j; q is p reversed, bit for bit.
    """

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
        if not m >= 1:
            raise ValueError(f"m must be positive, got {m}")
        check_within("eta", eta, 0, 1, "()")
        n = math.ceil(math.pi * math.sqrt(m) / (4 * eta))
        if n > MOST_HYPOTHESES:
            raise ValueError(f"{n} hypotheses are too many: raise eta = {eta} (m = {m})")
        half = np.concatenate(([0.0], (np.arange((n + 1) // 2) + 0.5) * (math.pi / (2 * n))))
        if n % 2:  # the middle one is pi / 4 itself
            half[-1] = math.pi / 4
            rest = half[:-1]
        else:
            rest = half
        low, high = np.sin(half) ** 2, np.cos(rest) ** 2
        if n % 2:
            low[-1] = 0.5
        p = np.concatenate((low, high[::-1]))
        angle = np.concatenate((half, (math.pi / 2 - rest)[::-1]))
        return cls(m, eta, angle, p, p[::-1].copy())

    def __len__(self) -> int:
        return len(self.p)

    def below(self, j: ArrayLike, t: ArrayLike) -> Floats:
        """P(Bin(m, p_j) <= t) for 0 <= t < m, elementwise."""
        j, t = np.asarray(j), np.asarray(t, dtype=np.float64)
        return np.asarray(betainc(self.m - t, t + 1, self.q[j]))

    def crossing(self, j: ArrayLike, k: ArrayLike) -> Int64s:
        """For p_j < p_k, the t with {x : H_j(x) > H_k(x)} = {x <= t}, elementwise.

        The likelihood ratio is monotone and crosses 1 at x* = m b / (a + b), where a = log(p_k /
        p_j) and b = log(q_j / q_k); t is the largest integer below x*, so that a tie at an integer
        x* belongs to neither of the two sets.
        """
        j, k = np.asarray(j), np.asarray(k)
        with np.errstate(divide="ignore"):  # p = 0 or 1: the set is {0}, or everything below m
            a = np.log(self.p[k]) - np.log(self.p[j])
            b = np.log(self.q[j]) - np.log(self.q[k])
        edge = np.isinf(a) | np.isinf(b)
        a, b = np.where(edge, 1.0, a), np.where(edge, 1.0, b)
        x = self.m * b / (a + b)
        x = np.where(np.abs(x - np.rint(x)) < TIE, np.rint(x), x)
        t = np.where(self.p[j] == 0, 0.0, np.where(self.q[k] == 0, self.m - 1.0, np.ceil(x) - 1))
        return t.astype(np.int64)


@dataclass(frozen=True)
class SelectionPlan(ABC):
    """Everything about scores that does not depend on data; public, built once.

    Attributes
    ----------
    grid : BinomialGrid
    thresholds : tuple of int
        T, increasing, in [0, m - 1].
    """

    grid: BinomialGrid
    thresholds: tuple[int, ...]

    @property
    def p(self) -> Floats:
        """Probability of each hypothesis, (d,)."""
        return self.grid.p

    def scores(self, below: NDArray[np.number[Any]], n_users: int) -> Floats:
        """Score all hypotheses for every symbol: (k, d). NOT PRIVATE.

        Parameters
        ----------
        below : (k, len(T)) integers
            C(t), the users with at most t of the symbol.
        n_users : int
            s, public (or released: counts may then lie outside [0, s]).

        Privacy
        -------
        Sensitivity exactly 1 per row, also in doubles: what counts are compared with is rounded to
        a dyadic grid on which the differences are exact. One user changes at most min(k, 2m) rows.
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
    """Width of the grid from public numbers: an eighth of the error to be expected anyway.

    That is 1 / sqrt(n) from sampling and 5 / (epsilon n) from privacy, in total variation; kept
    within [0.004, 0.05].
    """
    privacy = 0.0 if math.isinf(epsilon) else 5 / (epsilon * n_users)
    return min(max(max(1 / math.sqrt(n_users), privacy) / 8, 0.004), 0.05)


def dyadic(targets: Floats, n_users: int) -> Floats:
    """Round to multiples of 2^-g, so fine that counts of n_users less these are exact doubles.

    A score made of such differences has exactly the sensitivity that the integers have: nothing is
    left to the rounding of floating-point numbers. g = 50 less the bits of n_users.
    """
    g = 50 - int(n_users).bit_length()
    return np.asarray(np.ldexp(np.rint(np.ldexp(targets, g)), -g))


def doubles(counts: NDArray[np.number[Any]], n_users: int) -> Floats:
    """Convert counts, moved into [-s, 2 s] so that they too are exact next to :func:`dyadic`.

    Counts of s users lie in [0, s] anyway. Where s is an estimate they may not; moving them to the
    nearest end changes none of them by more than a user does.
    """
    return np.ascontiguousarray(np.clip(counts, -n_users, 2 * n_users), dtype=np.float64)
