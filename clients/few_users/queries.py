"""Every user's own mean as a row: what estimators ask that need all users' points."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import domain_lookup
from clients.records.functionals import samples_of
from clients.records.user_rows import mean_rows, share_rows
from fedhist.base.arrays import ROUNDING, Bounds
from fedhist.base.checks import check_count, check_size
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys, check_domain
from fedhist.users.streams import Streams


class _Rows(Query):
    """One real row per user under the name "mean"."""

    trust: ClassVar[Trust] = Trust.CENTRAL

    def fold(self, report: Report) -> Summary:
        return Summary(report.n_users, rows={"mean": report.arrays["mean"]}, ids=report.ids)

    def check(self, report: Report) -> None:
        rows = only_array(report, "mean")
        self.bounds(report.n_users)["mean"].check("mean", rows)
        self._check_rows(rows)

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        self._check_rows(summary.rows["mean"])

    @abstractmethod
    def _check_rows(self, rows: NDArray[np.float64]) -> None:
        """Raise WireError unless every row could be an honest user's."""


@register_query
@dataclass(frozen=True)
class UserMeans(_Rows):
    """Each user sends the mean of its samples, shortened to a public norm.

    Privacy
    -------
    None by itself: the server must be trusted with the rows. A user without samples, or with a NaN
    or an infinity among them, sends the zero vector.
    """

    wire_name: ClassVar[str] = "user-means"

    d: int  # of the samples
    box: float  # largest l2 norm of a row
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_count("the dimension", self.d)
        check_size("box", self.box)

    def answer(self, users: Users, rng: Streams) -> Report:
        return Report(users.ids, {"mean": mean_rows(samples_of(users, self.d), self.box)})

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        high = self.box * ROUNDING
        return {"mean": Bounds((n_users, self.d), "f", -high, high, part="rows")}

    def _check_rows(self, rows: NDArray[np.float64]) -> None:
        # scaled, so that squares do not overflow
        worst = math.sqrt(np.square(rows / self.box).sum(axis=1).max(initial=0.0))
        if worst > ROUNDING:
            raise WireError(f"a row has norm {worst * self.box:g}, more than {self.box:g}")


@register_query
@dataclass(frozen=True)
class UserShares(_Rows):
    """Each user sends the shares of the public items among its own: counts / m.

    Privacy
    -------
    None by itself, as for :class:`UserMeans`. A user without items sends the zero vector.
    """

    wire_name: ClassVar[str] = "user-shares"

    domain: Keys  # public items; others do not count
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)

    def answer(self, users: Users, rng: Streams) -> Report:
        items = users.counts
        lookup = domain_lookup(self.domain, items.vocabulary)
        return Report(users.ids, {"mean": share_rows(items, lookup, len(self.domain))})

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {"mean": Bounds((n_users, len(self.domain)), "f", 0.0, ROUNDING, part="rows")}

    def _check_rows(self, rows: NDArray[np.float64]) -> None:
        most = float(rows.sum(axis=1).max(initial=0.0))
        if most > ROUNDING:
            raise WireError(f"a row of shares adds up to {most:g}, more than 1")
