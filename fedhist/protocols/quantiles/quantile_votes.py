"""Which node of a tree of bins a user's number lies in, through a frequency oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_integer
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.model.query import CHUNK, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.protocols.quantiles.on_bins import MOST_BINS, OnBins
from fedhist.protocols.shared.oracle_votes import OracleVotes
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class QuantileVotes(OnBins, OracleVotes):
    """Each user says which of the public bins its number lies in, ``width`` of them taken as one.

    Its number is its own mean, or one of its samples, drawn uniformly.

    Parameters
    ----------
    low, high, n_bins, of
        See :class:`~fedhist.protocols.quantiles.on_bins.OnBins`.
    epsilon : float
    width : int
        Bins that count as one symbol; the last symbol may hold fewer.
    cohort : Cohort, optional

    Privacy
    -------
    epsilon-LDP for a user's whole record: the report is one symbol's through the frequency oracle
    of least variance, exact as drawn. A user without samples, or with a NaN among them, has a
    symbol of its own.
    """

    wire_name: ClassVar[str] = "quantile-votes"
    sent: ClassVar[str] = "bin"
    epsilon: float
    width: int = 1
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.epsilon)
        check_integer("width", self.width, MOST_BINS)
        _ = self.channel

    @property
    def channel(self) -> OracleChannel:
        """What happens to a symbol."""
        return oracle_channel("auto", float(self.epsilon), -(-self.n_bins // self.width))

    # -- client half

    def symbols(self, users: Users, rng: Streams) -> Integers:
        """Find every user's symbol: (n,) int64; -1 for an unusable record."""
        return self._nodes(self.one_bin(users, rng.substream("sample").words(1)[:, 0]))

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        """Find every user's symbol, chunk by chunk: (n,) int64."""
        return self._nodes(bins_drawn(self, users, rng))

    def _nodes(self, bins: Integers) -> Integers:
        return np.where(bins < 0, -1, bins // self.width)

    # -- server half

    def shares(self, summary: Summary) -> Floats:
        """Return unbiased shares of the users in the nodes, (k + 1,); the last have no number."""
        return self.channel.debias(summary.sums["bin"], summary.n_users)


def bins_drawn(query: OnBins, users: Users, rng: np.random.Generator) -> Integers:
    """Find the bin of one number of each user, what is drawn from another source: (n,) int64."""
    found = [
        query.one_bin(chunk, rng.integers(1 << 64, size=len(chunk), dtype=np.uint64))
        for chunk in users.blocks(CHUNK)
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])
