"""Every user's own counts as a row: what compares users with each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.bounding.item_encodings import cut_rows
from clients.bounding.sampling import MOST_CLIP
from fedhist.base.arrays import Bounds, Integers
from fedhist.base.checks import check_integer
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.shared.domains import check_domain
from fedhist.protocols.shared.item_encodings import cut_words
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys, keyed_hash
from fedhist.users.streams import Streams

MOST_NUMBERS, MOST_ROWS = 1 << 22, 1 << 15
"""Numbers and rows that a server keeps of all users together: 32 MB."""


@register_query
@dataclass(frozen=True)
class CountRows(Query):
    """Each user sends its counts of all symbols, cut to m items.

    Parameters
    ----------
    domain : Keys
        The k public symbols; other items are dropped.
    m : int
        Most items of a user; one with more draws m of them, uniformly without replacement.
    cohort : Cohort, optional

    Privacy
    -------
    None by itself: the server must be trusted with the rows. What it makes of them has a
    sensitivity for one replaced row, whose place is public.
    """

    wire_name: ClassVar[str] = "count-rows"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys
    m: int
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_integer("m", self.m, MOST_CLIP)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the cut counts; randomness is used by users with more than m items only."""
        indptr, item, count = cut_rows(users.counts, self.domain, self.m, cut_words(rng))
        rows = np.zeros((len(users), len(self.domain)), dtype=np.int64)
        rows[np.repeat(np.arange(len(users)), np.diff(indptr)), item] = count
        return Report(users.ids, {"counts": rows})

    def fold(self, report: Report) -> Summary:
        """Keep the rows."""
        return Summary(report.n_users, rows={"counts": report.arrays["counts"]}, ids=report.ids)

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is of at most m items."""
        if report.arrays.keys() != {"counts"} or report.ragged:
            raise WireError(f"'counts' is expected, got {[*report.arrays, *report.ragged]}")
        self.bounds(report.n_users)["counts"].check("counts", report.arrays["counts"])
        self._check_rows(report.arrays["counts"])

    def check_summary(self, summary: Summary) -> None:
        """Check every row as well: the rows are the summary."""
        super().check_summary(summary)
        self._check_rows(summary.rows["counts"])

    def _check_rows(self, rows: Integers) -> None:
        most = int(rows.sum(axis=1).max(initial=0))
        if most > self.m:
            raise WireError(f"a row adds up to {most}, more than m = {self.m}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound every count by m."""
        return {"counts": Bounds((n_users, len(self.domain)), "i", 0, self.m, part="rows")}

    # -- what the server makes of them -----------------------------------------------------------

    def shuffled(self, summary: Summary) -> Integers:
        """Return the rows in an order by a public hash of the users' ids: (n, k). NOT PRIVATE."""
        if summary.ids is None:
            raise WireError("rows come with their users' ids")
        order = np.argsort(keyed_hash(summary.ids, 0), kind="stable")
        return np.asarray(summary.rows["counts"][order])

    def below(self, summary: Summary, thresholds: tuple[int, ...]) -> Integers:
        """Count the users with at most t of each symbol: (k, |T|). NOT PRIVATE."""
        k, width = len(self.domain), len(thresholds) + 1
        cell = np.searchsorted(np.array(thresholds), summary.rows["counts"])
        cell += width * np.arange(k)
        found = np.bincount(cell.ravel(), minlength=k * width).reshape(k, width)
        return np.asarray(np.cumsum(found, axis=1)[:, :-1])
