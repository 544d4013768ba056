"""Votes for a bin of the range by users with enough samples; by the others at random [1]_.

References
----------
.. [1] Pla, Richard & Vono, "Distribution-aware mean estimation under user-level local differential
   privacy", arXiv 2410.09506.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.scalars import bin_indices
from clients.records.functionals import samples_of
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.checks import check_integer, check_range, check_within
from fedhist.channels.oracles import KrrOracle
from fedhist.model.query import Summary
from fedhist.model.registry import register_query
from fedhist.protocols.shared.oracle_votes import OracleVotes
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import SeededStreams, Streams

MAX_BINS = 1 << 20


@register_query
@dataclass(frozen=True)
class SizedVotes(OracleVotes):
    """Each user votes for the bin of its mean, by k-ary randomized response.

    A user with fewer samples than ``least_samples``, or whose record cannot be used, votes for a
    bin drawn uniformly.

    Parameters
    ----------
    low, high : float
        Range of a sample; what lies outside is clipped before averaging.
    n_bins : int
        k, of equal width.
    least_samples : int
    epsilon : float
    cohort : Cohort, optional

    Privacy
    -------
    epsilon-LDP for a user's whole record, its number of samples included: every record has one
    bin, its own or one drawn at random, and the channel is epsilon-LDP for any two of those. The
    null record votes at random, too.
    """

    wire_name: ClassVar[str] = "sized-votes"
    sent: ClassVar[str] = "votes"
    low: float
    high: float
    n_bins: int
    least_samples: int
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        check_within("n_bins", self.n_bins, 1, MAX_BINS)
        check_integer("least_samples", self.least_samples, 1 << 40)
        _ = self.channel.layers

    @property
    def channel(self) -> KrrOracle:
        """What happens to a bin."""
        return KrrOracle(self.epsilon, self.n_bins)

    # -- client half

    def own_bins(self, users: Users) -> Integers:
        """Find every user's bin: (n,) int64, -1 for those who vote at random."""
        samples = samples_of(users, 1)
        low, high = float(self.low), float(self.high)
        clipped = samples.__class__(samples.indptr, np.clip(samples.values, low, high))
        mean = coordinate_points(clipped, low, high)[:, 0]
        bins = bin_indices(mean, low, high, self.n_bins)
        return np.where(np.diff(samples.indptr) >= self.least_samples, bins, -1)

    def _votes(self, users: Users, words: Words) -> Integers:
        """Give those without a bin a uniform one, from a word each."""
        own = self.own_bins(users)
        drawn = ((words >> np.uint64(32)) * np.uint64(self.n_bins)) >> np.uint64(32)
        return np.where(own < 0, drawn.astype(np.int64), own)

    def symbols(self, users: Users, rng: Streams) -> Integers:
        """Find every user's bin, or draw one: (n,) int64."""
        return self._votes(users, rng.substream("random vote").words(1)[:, 0])

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        """Find every user's bin, or draw one: (n,) int64."""
        words = SeededStreams(users.ids, int(rng.integers(1 << 62)), "aggregate").words(1)
        return self._votes(users, words[:, 0])

    # -- server half

    def shares(self, summary: Summary) -> Floats:
        """Return the unbiased share of the votes in each bin: (k,)."""
        return self.channel.debias(summary.sums["votes"], max(summary.n_users, 1))[:-1]
