"""Votes for a bin of the range by users with enough samples; by the others at random [1]_.

References
----------
.. [1] Pla, Richard & Vono, "Distribution-aware mean estimation under user-level local differential
   privacy", arXiv 2410.09506.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.oracle_reports import draw_counts, fold_reports, report_symbols
from clients.randomizers.scalars import bin_indices
from clients.records.functionals import samples_of
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Bounds, Floats, Integers, Words
from fedhist.base.checks import check_integer, check_within
from fedhist.channels.finite import FiniteChannel
from fedhist.channels.oracle_messages import check_counts, check_reports
from fedhist.channels.symbol_oracles import KrrOracle
from fedhist.model.query import LocalQuery, Report, Summary
from fedhist.model.registry import register_query
from fedhist.protocols.localize.queries import check_range
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import SeededStreams, Streams

MAX_BINS = 1 << 20


@register_query
@dataclass(frozen=True)
class SizedVotes(LocalQuery):
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

    @property
    def exact(self) -> bool:
        """Reports are drawn with integer thresholds."""
        return self.channel.exact

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for every input of its channel."""
        return self.channel.law()

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

    def answer(self, users: Users, rng: Streams) -> Report:
        """Vote and randomize."""
        votes = self._votes(users, rng.substream("random vote").words(1)[:, 0])
        return Report(users.ids, {"votes": report_symbols(votes, self.channel, rng)})

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Count the reports of the whole node."""
        return self.fold(self.answer(users, rng(users)))

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw the votes at random, then the counts from their joint law."""
        words = SeededStreams(users.ids, int(rng.integers(1 << 62)), "aggregate").words(1)
        counts = np.bincount(self._votes(users, words[:, 0]), minlength=self.n_bins + 1)
        return Summary(len(users), {"votes": draw_counts(counts, self.channel, rng)})

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Count the reports."""
        counts = fold_reports(report.arrays["votes"], self.channel)
        return Summary(report.n_users, {"votes": counts})

    def check(self, report: Report) -> None:
        """Raise WireError unless every user sends one symbol."""
        check_reports(report, "votes", self.channel)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Between nobody and everybody for each symbol."""
        return {"votes": Bounds((self.channel.size,), "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        """Every user has sent one symbol."""
        super().check_summary(summary)
        check_counts(summary, "votes", self.channel)

    def shares(self, summary: Summary) -> Floats:
        """Return the unbiased share of the votes in each bin: (k,)."""
        return self.channel.debias(summary.sums["votes"], max(summary.n_users, 1))[:-1]
