"""How every user's record lies over public bins: exact rows, for a trusted server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.scalars import bin_indices
from fedhist.base.arrays import Bounds
from fedhist.base.errors import WireError
from fedhist.model.query import Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.quantiles.on_bins import OnBins
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams

STEPS = 1 << 18
"""A user's record is sent in so many whole steps, so that sums are exact in any order."""


@register_query
@dataclass(frozen=True)
class BinShares(OnBins):
    """Each user sends which share of its record lies in every bin, in whole steps.

    Parameters
    ----------
    low, high, n_bins, of
        See :class:`~fedhist.protocols.quantiles.on_bins.OnBins`.
    cohort : Cohort, optional

    Privacy
    -------
    None by itself: the server must be trusted with the rows. A row adds up to one record exactly,
    or it is the null record, zeros: of a user without samples, or with a NaN among them.
    """

    wire_name: ClassVar[str] = "bin-shares"
    trust: ClassVar[Trust] = Trust.CENTRAL
    cohort: Cohort | None = None

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the row; uses no randomness."""
        owner, x = self.points(users)
        cell = owner * self.n_bins + bin_indices(x, self.low, self.high, self.n_bins)
        counts = np.bincount(cell, minlength=len(users) * self.n_bins)
        below = counts.reshape(len(users), self.n_bins).cumsum(axis=1)
        # whole steps of the cumulative shares, so that a row adds up to a record without rounding
        upto = below * STEPS // np.maximum(below[:, -1:], 1)
        return Report(users.ids, {"shares": np.diff(upto, axis=1, prepend=0).astype(np.int32)})

    def fold(self, report: Report) -> Summary:
        """Add up the rows: (K,) int64."""
        rows = report.arrays["shares"]
        return Summary(report.n_users, {"shares": rows.sum(axis=0, dtype=np.int64)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a whole record, or none."""
        rows = only_array(report, "shares")
        Bounds((report.n_users, self.n_bins), "i", 0, STEPS).check("shares", rows)
        sizes = rows.sum(axis=1, dtype=np.int64)
        if not np.isin(sizes, (0, STEPS)).all():
            raise WireError(f"a row adds up to {STEPS} steps or to none, got {sizes.max()}")
        if self.of == "user-means" and not np.isin(rows, (0, STEPS)).all():
            raise WireError("a user's mean lies in one bin, got shares of several")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound each bin by everybody's record."""
        return {"shares": Bounds((self.n_bins,), "i", 0, n_users * STEPS)}

    def check_summary(self, summary: Summary) -> None:
        """See that all bins together hold whole records, at most one of each user."""
        super().check_summary(summary)
        records, rest = divmod(sum(summary.sums["shares"].tolist()), STEPS)
        if rest or records > summary.n_users:
            raise WireError(f"{records} records and {rest} steps of {summary.n_users} users")
