"""One randomized bit of each user: whether its number lies at or below the end of a bin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.scalars import randomize
from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_within
from fedhist.channels.scalar import OneBitChannel
from fedhist.model.query import Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.protocols.localize.queries import FoldReports
from fedhist.protocols.quantiles.on_bins import OnBins
from fedhist.protocols.quantiles.quantile_votes import bins_drawn
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams

MOST_LEVELS = 1 << 10


@register_query
@dataclass(frozen=True)
class RankBits(OnBins, FoldReports):
    """Each user tells, by randomized response, whether its number lies in its group's first bins.

    Its number is its own mean, or one of its samples, drawn uniformly.

    Parameters
    ----------
    low, high, n_bins, of
        See :class:`~fedhist.protocols.quantiles.on_bins.OnBins`.
    epsilon : float
    upto : (g,) int64
        The last of the bins that each group is asked about.
    cohort : Cohort, optional
    fold_salt : int
        Public salt of the groups.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the group is a hash of the public id, and the report is
    one randomized response to a bit of the record. A user without samples, or with a NaN among
    them, tells a fair coin by the same draws.
    """

    wire_name: ClassVar[str] = "rank-bits"
    epsilon: float
    upto: Integers
    cohort: Cohort | None = None
    fold_salt: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.epsilon)
        check_within("fold_salt", self.fold_salt, 0, 1 << 63, "[)")
        b = self.upto
        if b.dtype != np.int64 or b.ndim != 1 or not 1 <= len(b) <= MOST_LEVELS:
            raise ValueError(f"upto must be 1 to {MOST_LEVELS} int64, got {b.dtype}{b.shape}")
        if b.min() < 0 or b.max() >= self.n_bins:
            raise ValueError(f"upto must lie in [0, {self.n_bins}), got {b.min()}, {b.max()}")

    @property
    def channel(self) -> OneBitChannel:
        """What happens to a bit, told as -1 or 1."""
        return OneBitChannel(float(self.epsilon))

    @property
    def n_folds(self) -> int:
        """Groups."""
        return len(self.upto)

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Look, and answer by randomized response."""
        bins = self.one_bin(users, rng.substream("sample").words(1)[:, 0])
        signs = self._signs(bins, self._fold(users.ids))
        return Report(users.ids, {"reports": randomize(signs, self.channel, rng)})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw everybody's sample, then the sum of each group's reports."""
        fold = self._fold(users.ids)
        return self.draw_sums(self._signs(bins_drawn(self, users, rng), fold), fold, rng)

    def _signs(self, bins: Integers, fold: Integers) -> Floats:
        """1 at or below, -1 above, 0 for an unusable record: (n,) float64."""
        return np.where(bins < 0, 0.0, np.where(bins <= self.upto[fold], 1.0, -1.0))
