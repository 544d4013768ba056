"""One sample of each user, by bins of [0, 1] and a frequency oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.oracle_reports import draw_counts, fold_reports, report_symbols
from clients.records.functionals import samples_of
from clients.records.item_records import draw_one
from fedhist.base.arrays import Bounds, Floats, Integers, Words, offsets
from fedhist.channels.bits import check_bits
from fedhist.channels.finite import FiniteChannel
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.model.query import CHUNK, LocalQuery, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class BinReports(LocalQuery):
    """Each user says in which of B equal bins of [0, 1] one of its samples lies.

    Parameters
    ----------
    n_bins : int
        B.
    epsilon : float
    cohort : Cohort, optional

    Privacy
    -------
    epsilon-LDP for a user's whole record: the report is one symbol's through the frequency oracle
    of least variance, exact as drawn. A user without samples, or with a NaN among them, has a
    symbol of its own.
    """

    wire_name: ClassVar[str] = "bin-reports"
    n_bins: int
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        _ = self.channel

    @property
    def channel(self) -> OracleChannel:
        """What happens to a bin."""
        return oracle_channel("auto", float(self.epsilon), self.n_bins)

    @property
    def exact(self) -> bool:
        """Whether the channel keeps its promise as it is drawn."""
        return self.channel.exact

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for every input of its channel."""
        return self.channel.law()

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report the bin."""
        bins = self._bins(users, rng.substream("sample").words(1)[:, 0])
        return Report(users.ids, {"bin": report_symbols(bins, self.channel, rng)})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Count the true bins, then draw the counts of the reports."""
        counts = np.zeros(self.n_bins + 1, dtype=np.int64)
        for chunk in users.chunks(CHUNK):
            bins = self._bins(chunk, rng.integers(1 << 64, size=len(chunk), dtype=np.uint64))
            counts += np.bincount(np.where(bins < 0, self.n_bins, bins), minlength=len(counts))
        return Summary(len(users), {"bin": draw_counts(counts, self.channel, rng)})

    def _bins(self, users: Users, words: Words) -> Integers:
        """Bin of one sample of each user, (n,) int64; -1 for an unusable record."""
        samples = samples_of(users, 1)
        broken = offsets(np.isnan(samples.values[:, 0]))
        usable = (np.diff(broken[samples.indptr]) == 0) & (np.diff(samples.indptr) > 0)
        one = draw_one(users, words).reals
        out = np.full(len(users), -1, dtype=np.int64)
        x = np.clip(one.values[usable[np.diff(one.indptr) > 0], 0], 0.0, 1.0)
        out[usable] = np.minimum((x * self.n_bins).astype(np.int64), self.n_bins - 1)
        return out

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Count the reports."""
        counts = fold_reports(report.arrays["bin"], self.channel)
        return Summary(report.n_users, {"bin": counts})

    def check(self, report: Report) -> None:
        """Raise WireError unless every report is one that the channel can produce."""
        reports = only_array(report, "bin")
        if reports.dtype == np.uint64:
            check_bits(report, "bin", self.channel.size)
        else:
            Bounds((report.n_users,), "u", 0, self.channel.size - 1).check("bin", reports)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Between nobody and everybody for each symbol or bit."""
        return {"bin": Bounds((self.channel.size,), "i", 0, n_users)}

    def masses(self, summary: Summary) -> Floats:
        """Return unbiased shares of the users in the bins: (B,) float64."""
        return self.channel.debias(summary.sums["bin"], summary.n_users)[:-1]
