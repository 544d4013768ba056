"""From the scores of hashed votes to a support; and when that is worth the users [1]_.

A score sums a user's reports with its public signs: it has mean 0 at a coordinate that nobody
voted for, and a gain per voter elsewhere. Everything here is in units of one user's average.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1, Theorem 8, eq. (38)-(48).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats, Integers
from fedhist.channels.catalogue import ScalarChannel

Z_MIN = 3.0
"""A score below so many standard deviations is no evidence."""


def vote_threshold(mean_scale: float, dimension: int, votes: int) -> float:
    """Distance from 0 at which a user votes: sqrt(2 log(4 d / w)) / 2 deviations of its mean.

    Half of what noise stays below: w is the most votes that it has, and that cap does the rest.
    """
    return 0.5 * mean_scale * math.sqrt(2 * math.log(4 * dimension / min(votes, dimension)))


def paper_threshold(
    n_users: float,
    samples_per_user: float,
    dimension: int,
    sparsity: int,
    radius: float,
    epsilon: float,
) -> tuple[float, int]:
    """Return (39), radius sqrt(K log(2 d) / T*), and how many first samples of a user count: T*.

    T* = min(T, exp(c n min(epsilon, epsilon^2) / s)), at least 1. For the paper's unnamed constants
    stand K = 2, with which a user casts one false vote at most in expectation, and c = 1/100.
    """
    power = 0.01 * n_users * min(epsilon, epsilon * epsilon) / sparsity
    items = max(1, math.floor(min(samples_per_user, math.exp(min(700.0, power)))))
    return radius * math.sqrt(2 * math.log(2 * dimension) / items), items


@lru_cache(maxsize=1 << 12)
def vote_gain(n_votes: int, reach: float = 0.0) -> float:
    """Return E v_j f(S) for a coordinate among n_votes voted ones, S the sum of their signs.

    f clips to [-reach, reach]; for 0 it is the sign, whose gain is the probability C(2h, h) / 4^h
    that 2h fair signs cancel, h = floor(n_votes / 2): an even number of votes has the gain of one
    vote more. 0 for no votes.

    >>> [round(vote_gain(s), 6) for s in range(6)], round(vote_gain(3, 2.0), 6)
    ([0.0, 1.0, 0.5, 0.5, 0.375, 0.375], 0.75)
    """
    from scipy.stats import binom  # takes a second to be imported

    if not n_votes:
        return 0.0
    if not reach:
        return float(binom.pmf(n_votes // 2, n_votes // 2 * 2, 0.5))
    ups = np.arange(n_votes)
    total = np.clip(1 + 2 * ups - (n_votes - 1), -reach, reach)
    return float(binom.pmf(ups, n_votes - 1, 0.5) @ total)


@dataclass(frozen=True)
class VoteLaw:
    """Gain and noise of one user's hashed vote.

    ``channel`` is of one bit for signs, ``sparsity`` the votes that a user casts, and ``reach`` M
    of the clipped sum; 0 for signs.
    """

    channel: ScalarChannel
    sparsity: int
    reach: float = 0.0

    @property
    def unit(self) -> float:
        """What one unit of a report is worth: reports times this have the gains below."""
        return self.reach / self.channel.gain if self.reach else 1.0

    def gain(self, n_votes: int) -> float:
        """Return the expected score of a coordinate among the n_votes that a user voted for."""
        gain = vote_gain(n_votes, self.reach)
        return gain if self.reach else self.channel.gain * gain

    @property
    def deviation(self) -> float:
        """Standard deviation of one user's score where it did not vote."""
        square = self.reach**2
        noise = square * float(self.channel.variance(0.0)) if self.reach else 1.0
        return math.sqrt(min(float(self.sparsity), square) + noise)

    def lead(self, n_users: float) -> float:
        """Score of a coordinate that everybody votes for, in standard deviations."""
        return self.gain(self.sparsity) * math.sqrt(n_users) / self.deviation


def pick_support(scores: Floats, sparsity: int, least: float, *, first: bool = False) -> Integers:
    """Pick at most s coordinates whose score is at least a threshold: increasing, (k,) int64.

    The s largest, of equal scores the lowest coordinates; or, as the paper does [1, eq. (41)], the
    ``first`` s.

    >>> pick_support(np.array([2.0, 5.0, 1.0, 9.0]), 2, 1.5)
    array([1, 3])
    >>> pick_support(np.array([2.0, 5.0, 1.0, 9.0]), 2, 1.5, first=True)
    array([0, 1])
    """
    over = np.flatnonzero(scores >= least)
    if not first:
        over = np.sort(over[np.argsort(-scores[over], kind="stable")[:sparsity]])
    return over[:sparsity]


def keep_largest(
    value: Floats, stderr: ArrayLike, sparsity: int, sure: NDArray[np.bool_] | bool = False
) -> Floats:
    """Zero the entries that noise explains, and all but the s largest of the others: (d,).

    An entry below stderr sqrt(2 log(2 d)) becomes 0, unless other evidence makes it ``sure``.
    """
    size = np.abs(value)
    good = (size >= np.asarray(stderr) * math.sqrt(2 * math.log(2 * len(value)))) | sure
    out = np.zeros_like(value)
    kept = pick_support(np.where(good, size, -1.0), sparsity, 0.0)
    out[kept] = value[kept]
    return out


def selection_level(dimension: int, sparsity: int) -> float:
    """Deviations that a score must lead by: Z_MIN, or what the largest of the noise reaches."""
    return max(Z_MIN, math.sqrt(2 * math.log(2 * dimension / sparsity)))
