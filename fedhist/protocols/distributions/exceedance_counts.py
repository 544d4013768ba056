"""The query of hypothesis selection: how many users hold a symbol more than t times [1]_.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Algorithms 2, 3 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.exceedances import add_exceedances, cell_table, threshold_rows
from fedhist.base.arrays import Array, Bounds
from fedhist.base.checks import check_integer
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.shared.domains import check_domain
from fedhist.protocols.shared.item_encodings import cut_words
from fedhist.protocols.shared.ragged_rows import check_distinct, only_rows, row_sums
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams
from server.distributions.binomial_grid import MOST_CELLS

MOST_M = 1 << 24


@register_query
@dataclass(frozen=True)
class ExceedanceCounts(Query):
    """Each user names the cell of its count, between public thresholds, for every symbol.

    A one-hot vector per symbol over the cells (T_0, T_1], ..., (T_last, m]. The first cell,
    [0, T_0], is left out: it follows from the number of users. So a row has at most min(k, m) ones
    among k |T| entries, and the sum is linear: secure aggregation could compute it, modulo any
    number above that of the users.

    Parameters
    ----------
    domain : Keys
        The k public symbols; other items are dropped.
    m : int
        Most items of a user; one with more draws m of them, uniformly without replacement.
    thresholds : tuple of int
        T, increasing, in [0, m - 1].
    cohort : Cohort, optional

    Privacy
    -------
    Replacing a user moves C_i(t), the number of users with at most t of symbol i, by at most 1,
    for every t; and only for the symbols that one of the two records holds, at most min(k, 2m).
    The vector of cells changes by at most 1 in at most 2 min(k, m) places: l2 sensitivity
    sqrt(2 min(k, m)). Corrected against the paper, which lets min(k, m) symbols change.
    """

    wire_name: ClassVar[str] = "threshold-counts"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys
    m: int
    thresholds: tuple[int, ...]
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_integer("m", self.m, MOST_M)
        t = self.thresholds
        if not t or t[0] < 0 or t[-1] >= self.m or any(a >= b for a, b in pairwise(t)):
            raise ValueError(
                f"thresholds must increase within [0, {self.m - 1}], got {t[:5]} to {t[-1:]}"
            )
        if len(self.domain) * len(t) > MOST_CELLS:
            raise ValueError(
                f"{len(self.domain)} symbols at {len(t)} thresholds are too many: at most 2^26"
            )

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the cells; randomness is used by users with more than m items only."""
        table = cell_table(self.thresholds, self.m)
        how = self.domain, self.m, len(self.thresholds), table
        indptr, cell = threshold_rows(users.counts, *how, cut_words(rng))
        return Report(users.ids, ragged={"cell": cell}, indptr=indptr)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Cut and add up in one walk; integers, so bit-identical to folding the answers."""
        table = cell_table(self.thresholds, self.m)
        total = np.zeros(len(self.domain) * len(self.thresholds), dtype=np.int64)
        how = self.domain, self.m, len(self.thresholds), table
        add_exceedances(users.counts, *how, lambda rows: cut_words(rng(users.take(rows))), total)
        return self._summary(len(users), total)

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up by symbol and cell: (k, |T|) int64."""
        n = len(self.domain) * len(self.thresholds)
        total = np.bincount(report.ragged["cell"].astype(np.int64), minlength=n)
        return self._summary(report.n_users, total.astype(np.int64))

    def _summary(self, n_users: int, total: Array) -> Summary:
        return Summary(n_users, {"users": total.reshape(len(self.domain), len(self.thresholds))})

    def above(self, summary: Summary) -> NDArray[np.int64]:
        """Count the users with more than t of each symbol: (k, |T|), a copy. NOT PRIVATE."""
        cells = summary.sums["users"]
        return np.array(np.cumsum(cells[:, ::-1], axis=1)[:, ::-1], dtype=np.int64)

    def below(self, summary: Summary) -> NDArray[np.int64]:
        """Count the users with at most t of each symbol, C(t): (k, |T|). NOT PRIVATE."""
        return np.asarray(summary.n_users - self.above(summary))

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is one-hot per symbol and needs at most m items."""
        only_rows(report, "cell")
        k, width, cell = len(self.domain), len(self.thresholds), report.ragged["cell"]
        Bounds((None,), "u", 0, k * width - 1).check("cell", cell)
        symbol, place = np.divmod(cell, np.uint32(width))
        check_distinct(report, symbol, k)
        size = row_sums(report, np.array(self.thresholds, dtype=np.int64)[place] + 1)
        if (size > self.m).any():
            raise WireError(f"a row needs {int(size.max())} items, more than m = {self.m}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound each cell by the number of users."""
        shape = len(self.domain), len(self.thresholds)
        return {"users": Bounds(shape, "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        """Bound each symbol's cells by the users, and the items that all cells need, as well."""
        super().check_summary(summary)
        cells, n = summary.sums["users"], summary.n_users
        most = int(cells.sum(axis=1).max())
        if most > n:
            raise WireError(f"{most} users hold one symbol, more than {n}")
        need = float(cells.sum(axis=0) @ (np.array(self.thresholds, dtype=np.float64) + 1))
        if need > n * self.m * (1 + 1e-9):
            raise WireError(f"the cells need {need:.15g} items, more than {n} users of {self.m}")
