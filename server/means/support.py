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
from numpy.typing import ArrayLike
from scipy.special import ndtr

from fedhist.base.arrays import Floats, Integers
from fedhist.channels.catalogue import ScalarChannel
from server.means.localize import Plan

Z_MIN = 3.0
"""A score below so many standard deviations is no evidence."""
VOTE_FACTOR = 0.5
"""Of the level that noise alone stays below; the cap on the votes does the rest."""
PAPER_K, PAPER_C = 2.0, 0.01
"""For the unnamed constants of the paper: K of eq. (39), with which a user casts one false vote
at most in expectation, and c of T*."""
REACH = 2.0
"""M = 2 sqrt(s): where the sum of s signs is clipped before Laplace noise."""


def vote_threshold(mean_scale: float, dimension: int, votes: int) -> float:
    """Distance from 0 at which a user votes: sqrt(2 log(4 d / w)) / 2 deviations of its mean.

    w is the most votes that it has; the cap does the rest.
    """
    log = math.log(4 * dimension / min(votes, dimension))
    return VOTE_FACTOR * mean_scale * math.sqrt(2 * log)


def paper_threshold(
    n_users: float,
    samples_per_user: float,
    dimension: int,
    sparsity: int,
    radius: float,
    epsilon: float,
) -> tuple[float, int]:
    """Return (39), radius sqrt(K log(2 d) / T*), and how many first samples of a user count.

    T* = min(T, exp(c n min(epsilon, epsilon^2) / s)), at least 1.
    """
    power = PAPER_C * n_users * min(epsilon, epsilon * epsilon) / sparsity
    items = max(1, math.floor(min(samples_per_user, math.exp(min(700.0, power)))))
    return radius * math.sqrt(PAPER_K * math.log(2 * dimension) / items), items


@lru_cache(maxsize=1 << 12)
def sign_gain(n_votes: int) -> float:
    """Return E v_j sign(S) for a coordinate among n_votes voted ones, S the sum of their signs.

    With h = floor(n_votes / 2) it is the probability C(2h, h) / 4^h that 2h fair signs cancel:
    an even number of votes has the gain of one vote more. 0 for no votes.

    Examples
    --------
    >>> [round(sign_gain(s), 6) for s in range(6)]
    [0.0, 1.0, 0.5, 0.5, 0.375, 0.375]
    """
    from scipy.stats import binom

    h = n_votes // 2
    return float(binom.pmf(h, 2 * h, 0.5)) if n_votes else 0.0


def clip_gain(n_votes: int, reach: float) -> float:
    """Return E v_j clip(S, -M, M) for a voted coordinate: E clip(1 + R, -M, M), R the others' sum.

    Examples
    --------
    >>> round(clip_gain(3, 2.0), 6), clip_gain(1, 2.0)
    (0.75, 1.0)
    """
    from scipy.stats import binom

    if not n_votes:
        return 0.0
    ups = np.arange(n_votes)
    total = np.clip(1 + 2 * ups - (n_votes - 1), -reach, reach)
    return float(binom.pmf(ups, n_votes - 1, 0.5) @ total)


@dataclass(frozen=True)
class VoteLaw:
    """Gain and noise of one user's hashed vote.

    Parameters
    ----------
    channel : ScalarChannel
        What happens to the number; for signs that of one bit.
    sparsity : int
        Votes that a user casts.
    reach : float
        M of the clipped sum; 0 for signs.
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
        if self.reach:
            return clip_gain(n_votes, self.reach)
        return self.channel.gain * sign_gain(n_votes)

    @property
    def deviation(self) -> float:
        """Standard deviation of one user's score where it did not vote."""
        if not self.reach:
            return 1.0
        spread = min(float(self.sparsity), self.reach**2)
        noise = self.reach**2 * float(self.channel.variance(0.0))
        return math.sqrt(spread + noise)

    def lead(self, n_users: float) -> float:
        """Score of a coordinate that everybody votes for, in standard deviations."""
        return self.gain(self.sparsity) * math.sqrt(n_users) / self.deviation


def pick_support(scores: Floats, sparsity: int, least: float, *, first: bool = False) -> Integers:
    """Pick at most s coordinates whose score is at least a threshold.

    Parameters
    ----------
    scores : (d,) float64
    sparsity : int
    least : float
    first : bool
        Take the first s of them, as the paper does [1, eq. (41)], in place of the s largest.

    Returns
    -------
    (k,) int64
        Increasing; of equal scores the lowest coordinates.

    Examples
    --------
    >>> pick_support(np.array([2.0, 5.0, 1.0, 9.0]), 2, 1.5)
    array([1, 3])
    >>> pick_support(np.array([2.0, 5.0, 1.0, 9.0]), 2, 1.5, first=True)
    array([0, 1])
    """
    over = np.flatnonzero(scores >= least)
    if not first:
        over = np.sort(over[np.argsort(-scores[over], kind="stable")[:sparsity]])
    return over[:sparsity]


def keep_largest(value: Floats, stderr: Floats, sparsity: int) -> Floats:
    """Zero the entries that noise explains, and all but the s largest of the others.

    Parameters
    ----------
    value : (d,) float64
        Estimates relative to the middle of the range, 0.
    stderr : (d,) float64
        An entry below stderr sqrt(2 log(2 d)) becomes 0.
    sparsity : int

    Returns
    -------
    (d,) float64
    """
    size = np.abs(value)
    level = stderr * math.sqrt(2 * math.log(2 * len(value)))
    kept = pick_support(np.where(size >= level, size, -1.0), sparsity, 0.0)
    out = np.zeros_like(value)
    out[kept] = value[kept]
    return out


def selection_level(dimension: int, sparsity: int) -> float:
    """Deviations that a score must lead by: Z_MIN, or what the largest of the noise reaches."""
    return max(Z_MIN, math.sqrt(2 * math.log(2 * dimension / sparsity)))


def kept_noise(theta: ArrayLike, variance: float, dimension: int) -> tuple[Floats, Floats]:
    """Return P(kept) and E[error^2; kept] of a hard threshold at sd sqrt(2 log 2d): as theta.

    The estimate of theta is Gaussian around it, of this variance.
    """
    sd, a = math.sqrt(variance), math.sqrt(2 * math.log(2 * dimension))
    z = np.asarray(theta) / sd
    up, down = a - z, a + z  # kept where noise > up or noise < -down
    kept = ndtr(-up) + ndtr(-down)
    tails = up * np.exp(-np.square(up) / 2) + down * np.exp(-np.square(down) / 2)
    return kept, variance * (kept + tails / math.sqrt(2 * math.pi))


def selection_error(
    theta: Floats, mean_score: Floats, n_voters: float, law: VoteLaw, sparsity: int, risk: float
) -> float:
    """Predict the squared error of selection where the voters' mean scores are known.

    Parameters
    ----------
    theta : (d,) float64
        The means.
    mean_score : (d,) float64
        Expected score of a coordinate, per user.
    n_voters : float
    law : VoteLaw
    sparsity : int
    risk : float
        Mean squared error of one selected coordinate.

    Error
    -----
    Scores are taken as Gaussian. The s coordinates of largest mean score are found if they pass
    :func:`selection_level`; the others never.
    """
    level = selection_level(len(theta), sparsity)
    top = pick_support(np.abs(mean_score), sparsity, -math.inf)
    z = np.abs(mean_score[top]) * math.sqrt(n_voters) / law.deviation
    found = ndtr(z - level)
    hit = ((1 - found) * theta[top] ** 2 + found * risk).sum()
    return float(hit + (theta**2).sum() - (theta[top] ** 2).sum())


def thresholding_error(theta: Floats, plan: Plan, sparsity: int, radius: float) -> float:
    """Predict the squared error of thresholding Gaussian estimates of variance ``plan.variance``.

    Error
    -----
    For the s largest means the exact risk of a hard threshold at sd sqrt(2 log 2d); the others are
    kept only where those leave room. A fold that finds the wrong window costs radius^2.
    """
    d = len(theta)
    kept, noise = kept_noise(theta, plan.variance, d)
    first = np.zeros(d, dtype=bool)
    first[pick_support(np.abs(theta), sparsity, 0.0)] = True
    room = (sparsity - kept[first].sum()) / max(float(kept[~first].sum()), 1e-300)
    share = np.where(first, 1.0, min(1.0, max(0.0, room)))
    error = float((share * noise + (1 - share * kept) * theta**2).sum())
    return (1 - plan.failure) * error + d * plan.failure * radius**2
