"""How far users' means lie from a point: one shell of each user, through a frequency oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.oracle_reports import draw_counts, fold_reports, report_symbols
from fedhist.base.arrays import Bounds, Floats, Integers
from fedhist.channels.finite import FiniteChannel
from fedhist.channels.oracle_base import OracleChannel
from fedhist.channels.oracle_messages import check_counts, check_reports
from fedhist.channels.oracles import oracle_channel
from fedhist.model.part import Functional
from fedhist.model.query import LocalQuery, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams

MAX_SHELLS = 64


@register_query
@dataclass(frozen=True)
class DistanceBins(LocalQuery):
    """Each user reports which shell around a point its scalar lies in.

    Parameters
    ----------
    functional : Functional
        One scalar of a record; its only fold.
    centre : float
    edges : (k,) float64
        Increasing outer edges of the shells; what lies beyond the last counts for the last shell.
    epsilon : float
    cohort : Cohort, optional

    Privacy
    -------
    epsilon-LDP for a user's whole record: one report of a frequency oracle. A record without
    usable data reports the null symbol, at the same cost.
    """

    wire_name: ClassVar[str] = "distance-bins"
    functional: Functional
    centre: float
    edges: Floats
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        if self.functional.n_folds != 1:
            raise ValueError(f"the functional must have one fold, got {self.functional.n_folds}")
        if not math.isfinite(self.centre):
            raise ValueError(f"centre must be finite, got {self.centre}")
        e = self.edges
        if e.dtype != np.float64 or e.ndim != 1 or not 2 <= len(e) <= MAX_SHELLS:
            raise ValueError(f"edges must be 2 to {MAX_SHELLS} float64, got {e.dtype}{e.shape}")
        if not (np.isfinite(e).all() and e[0] > 0 and (np.diff(e) > 0).all()):
            raise ValueError(f"edges must be positive, finite and increase, got {e.tolist()}")
        _ = self.channel

    @property
    def channel(self) -> OracleChannel:
        """What happens to the number of a shell."""
        return oracle_channel("auto", self.epsilon, len(self.edges))

    @property
    def exact(self) -> bool:
        """Symbols are drawn against integer thresholds."""
        return self.channel.exact

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for two shells."""
        return self.channel.law()

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report the shell."""
        return Report(users.ids, {"votes": report_symbols(self._shells(users), self.channel, rng)})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Count the users in each shell, then draw their folded reports."""
        k = len(self.edges)
        shells = self._shells(users)
        counts = np.bincount(np.where(shells < 0, k, shells), minlength=k + 1).astype(np.int64)
        return Summary(len(users), {"votes": draw_counts(counts, self.channel, rng)})

    def _shells(self, users: Users) -> Integers:
        """Find the shell of each scalar: (n,) int64; -1 for a record without usable data."""
        x = self.functional.scalars(users, np.zeros(len(users), dtype=np.int64))
        shell = np.searchsorted(self.edges[:-1], np.abs(x - self.centre))
        return np.where(np.isnan(x), -1, shell).astype(np.int64)

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Count the reports."""
        return Summary(
            report.n_users, {"votes": fold_reports(report.arrays["votes"], self.channel)}
        )

    def check(self, report: Report) -> None:
        """Raise WireError unless every report is one that the oracle can send."""
        check_reports(report, "votes", self.channel)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Between nobody and everybody for each count."""
        return {"votes": Bounds((self.channel.size,), "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        """Every user has sent one symbol, or as many as a subset has."""
        super().check_summary(summary)
        check_counts(summary, "votes", self.channel)

    def shares(self, summary: Summary) -> Floats:
        """Return the unbiased share of the users in each shell: (k,); 0 where nobody answered."""
        k = len(self.edges)
        if summary.n_users == 0:
            return np.zeros(k)
        return np.asarray(self.channel.debias(summary.sums["votes"], summary.n_users)[:k])
