"""All quantiles from one curve: cohorts vote for the nodes of a tree of bins, level by level.

References
----------
.. [1] Cormode, Kulkarni & Srivastava, "Answering range queries under local differential privacy",
   VLDB 2019: frequency oracles on the levels of a tree, made consistent.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from clients.randomizers.oracle_reports import draw_counts
from fedhist.base.arrays import Floats, Integers
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.model.query import Query, Summary
from fedhist.protocols.quantiles.bin_shares import BinShares
from fedhist.protocols.quantiles.quantile_votes import QuantileVotes
from fedhist.protocols.quantiles.theory import Ranks, largest_of_curves
from fedhist.users.cohort import Cohort
from server.quantiles.inversion import quantile_bins
from server.quantiles.tree_fit import best_widths, fitted_bins, node_sums

DRAWS = 200
"""Of the votes' law, for a prediction."""
SEEN = 2.5
"""Standard errors from which on a share of users without numbers is believed."""
USEFUL = 0.25
"""Largest standard deviation of a running sum of the votes, of the fewest users."""


@dataclass(frozen=True)
class Votes:
    """One vote of each user for the node that holds its number, on one level of a tree of bins.

    The cohorts of the h levels are equal. The bins that fit all levels best, in least squares, are
    summed up, made monotone and inverted. With one level it is a vote for the bins themselves.

    Parameters
    ----------
    epsilon : float
    levels : (J,) float64
    n_bins : int

    Privacy
    -------
    epsilon-LDP for a user's whole record, non-interactive: each user answers one query, which does
    not depend on anybody's messages.
    """

    epsilon: float
    levels: Floats
    n_bins: int

    @property
    def noise(self) -> float:
        """Variance of a debiased report: 4 e^epsilon / (e^epsilon - 1)^2."""
        return 1 / math.sinh(min(self.epsilon, 700.0) / 2) ** 2

    def variance(self, h: int, b: int) -> float:
        """Variance of a running sum, per user, before the fit: of the votes, and of the cohorts."""
        return h * h * (b - 1) / 2 * self.noise + h / 4

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Bins of a node on each level of the tree; from public numbers only."""
        return best_widths(self.n_bins, self.variance)

    @property
    def n_rounds(self) -> int:
        """Of the script: the levels of the tree."""
        return len(self.widths)

    @property
    def least_users(self) -> float:
        """Fewest users whose votes say something."""
        h = len(self.widths)
        branches = max(2, round(self.n_bins ** (1 / h)))
        return self.variance(h, branches) / USEFUL**2

    def channels(self) -> list[OracleChannel]:
        """Return what happens to a vote on each level."""
        nodes = [-(-self.n_bins // width) for width in self.widths]
        return [oracle_channel("auto", self.epsilon, k) for k in nodes]

    def ask(self, grid: BinShares, salt: int) -> Generator[Query, Summary, tuple[Integers, int]]:
        """Run the rounds; return the bin of each level, and the users who answered."""
        shares, sizes = [], []
        h = len(self.widths)
        for level, width in enumerate(self.widths):
            query = QuantileVotes(
                grid.low,
                grid.high,
                grid.n_bins,
                grid.of,
                self.epsilon,
                width,
                cohort=Cohort(salt, level / h, (level + 1) / h),
            )
            summary = yield query
            n = summary.n_users
            shares.append(query.shares(summary) if n else np.zeros(query.channel.n_symbols + 1))
            sizes.append(n)
        return quantile_bins(self.curve(shares, sizes), self.levels), sum(sizes)

    def curve(self, shares: list[Floats], sizes: list[int]) -> Floats:
        """Add up the bins that fit the shares of the nodes on all levels: (K,)."""
        n, channels = np.array(sizes, dtype=np.float64), self.channels()
        one = np.array([float(c.variance(0.0)) for c in channels])
        # a vote on an oracle of bits says nothing of its own about those who have no number
        none = np.array(
            [
                v * (c.n_symbols if c.kind == "unary" else 1)
                for v, c in zip(one, channels, strict=True)
            ]
        )
        weight = n / np.maximum(none, 1e-12)
        null = float(np.average([s[-1] for s in shares], weights=weight)) if weight.any() else 0.0
        error = 1 / math.sqrt(max(weight.sum(), 1e-300))
        seen = null > SEEN * error
        total, spread = (1 - null, error**2) if seen else (1.0, 0.0)
        whole = self.widths[0] * (-(-self.n_bins // self.widths[0]))
        variances = np.where(n > 0, one / np.maximum(n, 1) + 1e-12, 1e12)
        bins = fitted_bins(
            [np.array([total]), *(s[:-1] for s in shares)],
            [spread, *variances.tolist()],
            [whole, *self.widths],
            self.n_bins,
        )
        return np.cumsum(bins)

    def expected(self, given: Ranks, draws: int = DRAWS) -> float:
        """Predict the largest rank error, by draws of the votes' counts from their law."""
        return _expected(
            self.epsilon,
            self.n_bins,
            draws,
            (given.n, given.null),
            given.ends.tobytes(),
            given.levels.tobytes(),
            given.errors.tobytes(),
        )

    def drawn_curve(self, given: Ranks, rng: np.random.Generator) -> Floats:
        """Draw a curve: (K,)."""
        n, h = round(given.n / (1 - given.null)) if given.null < 1 else 0, len(self.widths)
        if n == 0:
            return np.zeros(self.n_bins)
        bins = (1 - given.null) * np.diff(given.ends, prepend=0.0)
        shares, sizes = [], []
        for width, channel in zip(self.widths, self.channels(), strict=True):
            size = max(round(n / h), 1)
            law = np.append(np.maximum(node_sums(bins, width), 0.0), given.null)
            held = rng.multinomial(size, law / law.sum())
            shares.append(channel.debias(draw_counts(held, channel, rng), size))
            sizes.append(size)
        return self.curve(shares, sizes)


@lru_cache(maxsize=256)  # seconds each, and every run of a study asks again
def _expected(
    epsilon: float,
    n_bins: int,
    draws: int,
    users: tuple[int, float],
    ends: bytes,
    levels: bytes,
    errors: bytes,
) -> float:
    n, null = users
    q = np.frombuffer(levels)
    given = Ranks(n, np.frombuffer(ends), q, np.frombuffer(errors).reshape(len(q), -1), null)
    votes, rng = Votes(epsilon, q, n_bins), np.random.default_rng(1)
    return largest_of_curves((votes.drawn_curve(given, rng) for _ in range(draws)), given)
