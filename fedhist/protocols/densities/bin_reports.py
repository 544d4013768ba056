"""One sample of each user, by bins of [0, 1] and a frequency oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.records.draws import one_value
from clients.records.functionals import samples_of
from fedhist.base.arrays import Floats, Integers, Words
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.model.query import CHUNK, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.protocols.shared.oracle_votes import OracleVotes
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class BinReports(OracleVotes):
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
    sent: ClassVar[str] = "bin"
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

    # -- client half

    def symbols(self, users: Users, rng: Streams) -> Integers:
        """Bin of one sample of each user, drawn from its own: (n,) int64."""
        return self._bins(users, rng.substream("sample").words(1)[:, 0])

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        """Bin of one sample of each user, chunk by chunk: (n,) int64."""
        found = [
            self._bins(chunk, rng.integers(1 << 64, size=len(chunk), dtype=np.uint64))
            for chunk in users.blocks(CHUNK)
        ]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _bins(self, users: Users, words: Words) -> Integers:
        """Bin of one sample of each user, (n,) int64; -1 for an unusable record."""
        samples_of(users, 1)  # of one dimension
        x = one_value(users, words)
        bins = np.clip(np.where(np.isnan(x), 0.0, x), 0.0, 1.0) * self.n_bins
        held = np.minimum(bins.astype(np.int64), self.n_bins - 1)
        return np.where(np.isnan(x), -1, held)

    # -- server half

    def masses(self, summary: Summary) -> Floats:
        """Return unbiased shares of the users in the bins: (B,) float64."""
        return self.channel.debias(summary.sums["bin"], summary.n_users)[:-1]
