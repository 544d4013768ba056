"""Every quantile by bisection: disjoint cohorts tell one bit each, round after round."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from fedhist.base.arrays import Floats, Integers
from fedhist.model.query import Query, Summary
from fedhist.protocols.quantiles.bin_shares import BinShares
from fedhist.protocols.quantiles.rank_bits import RankBits
from fedhist.protocols.quantiles.theory import Ranks, largest_in_order
from fedhist.users.cohort import Cohort
from fedhist.users.folds import salt_of_folds

FEWEST = 100
"""Fewest users of a level in a large round, in variances of one bit: a standard error of 0.1."""
MORE = 4
"""Rounds after that in which the interval holds about as much as the noise."""


@dataclass(frozen=True)
class Search:
    """A bisection over the bins for each level at once.

    The users are split by a hash into a group for each level and, by another, into a cohort for
    each round. In a round every group of the cohort is asked whether its numbers lie at or below
    the middle of its level's interval, which is then halved. A wrong turn costs about the rank that
    the middle is away from the level, and that halves from round to round until the noise is
    reached: the cohorts grow by sqrt(2) until then, which is least for users spread evenly (the
    cost of a round is 2^r sigma_r^2 / 4), and stay as they are for a few rounds more.

    Parameters
    ----------
    epsilon : float
    levels : (J,) float64
    n_bins : int
    n_users : int
        Public planning value.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: cohorts are disjoint intervals
    of one hash of the public ids, each user answers one query, and a query depends on other users'
    messages only.
    """

    epsilon: float
    levels: Floats
    n_bins: int
    n_users: int

    @property
    def gain(self) -> float:
        """Of a randomized bit."""
        return math.tanh(self.epsilon / 2)

    @property
    def least_users(self) -> float:
        """Fewest users with whom a turn is no coin."""
        return FEWEST * len(self.levels) / (4 * self.gain**2 * _LARGE)

    @cached_property
    def weights(self) -> Floats:
        """Share of the users in each round: (rounds,), rounds <= log2 K rounded up."""
        each = self.n_users / len(self.levels)
        noise = max(1.0, math.log2(max(_LARGE * each * 4 * self.gain**2, 4.0)) / 2)
        most = (self.n_bins - 1).bit_length()
        r = np.arange(min(most, math.ceil(noise) + MORE))
        w = 2 ** (np.minimum(r, noise) / 2)
        return np.asarray(w / w.sum())

    @property
    def n_rounds(self) -> int:
        """Of the script."""
        return len(self.weights)

    def ask(self, grid: BinShares, salt: int) -> Generator[Query, Summary, tuple[Integers, int]]:
        """Run the rounds; return the bin of each level, and the users who answered."""
        low = np.zeros(len(self.levels), dtype=np.int64)
        high = np.full(len(self.levels), self.n_bins - 1, dtype=np.int64)
        ends = np.append(0.0, np.cumsum(self.weights))
        ends[-1] = 1.0
        answered = 0
        for lo, hi in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            middle = (low + high) // 2
            query = RankBits(
                grid.low,
                grid.high,
                grid.n_bins,
                grid.of,
                self.epsilon,
                middle,
                cohort=Cohort(salt, lo, hi),
                fold_salt=salt_of_folds(salt),
            )
            summary = yield query
            answered += summary.n_users
            left = query.shares(summary) >= self.levels
            low, high = (
                np.where(left, low, np.minimum(middle + 1, high)),
                np.where(left, middle, high),
            )
        return np.sort((low + high) // 2), answered

    def expected(self, given: Ranks) -> float:
        """Predict the largest rank error: every path of turns, each of normal law."""
        if given.n == 0:
            return 1.0
        laws = [self._law(q, given) for q in given.levels.tolist()]
        return largest_in_order(given.errors, np.array(laws))

    def _law(self, q: float, given: Ranks) -> Floats:
        """Compute how likely the search for one level ends in each bin: (K,)."""
        low, high, p = np.zeros(1, np.int64), np.full(1, self.n_bins - 1), np.ones(1)
        for weight in self.weights.tolist():
            middle = (low + high) // 2
            share = (1 - given.null) * given.ends[middle] + given.null / 2
            of_level = weight / len(self.levels)
            told = 0.25 - (self.gain * (share - 0.5)) ** 2
            n = max(of_level * given.n / (1 - given.null), 1.0)
            spread = np.sqrt(told / n) / self.gain
            left = ndtr((share - q) / np.maximum(spread, 1e-12))
            low, high, p = (
                np.concatenate([low, np.minimum(middle + 1, high)]),
                np.concatenate([middle, high]),
                np.concatenate([p * left, p * (1 - left)]),
            )
            some = p > 1e-9
            low, high, p = low[some], high[some], p[some]
        law = np.bincount((low + high) // 2, weights=p, minlength=self.n_bins)
        return np.asarray(law, dtype=np.float64)


_LARGE = 1 - math.sqrt(0.5)
"""Share of the last cohort of an endless series that grows by sqrt(2)."""
