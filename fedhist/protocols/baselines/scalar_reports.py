"""Naive reports of one coordinate: of a drawn sample, or of every sample on its own.

The mean itself is reported by :class:`~fedhist.protocols.localize.queries.ClippedMean`, with
intervals as wide as the range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.randomizers.scalars import randomize
from clients.records.draws import ItemStreams, draw_one, each_alone
from fedhist.base.arrays import Array, Bounds
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.protocols.localize.queries import ClippedMean
from fedhist.users.batch import Users
from fedhist.users.folds import fold_of
from fedhist.users.streams import Streams

MOST_ITEMS = 1 << 32
"""Samples of one user."""


@register_query
@dataclass(frozen=True)
class SampledScalar(ClippedMean):
    """Each user reports its fold's scalar of ONE of its samples, drawn uniformly.

    Parameters
    ----------
    functional, centres, half_width, epsilon, kind, cohort, fold_salt
        As in :class:`~fedhist.protocols.localize.queries.ClippedMean`.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the report is one call of the scalar channel, whichever
    sample was drawn.
    """

    wire_name: ClassVar[str] = "sampled-scalar"

    def answer(self, users: Users, rng: Streams) -> Report:
        """Draw a sample and report it."""
        words = rng.substream("one-sample").words(1)[:, 0]
        return super().answer(draw_one(users, words), rng)

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw everybody's sample, then the sum of each fold's reports."""
        words = rng.integers(1 << 64, size=len(users), dtype=np.uint64)
        return super().draw_summary(draw_one(users, words), rng)


class ItemLevel(Query):
    """Item-level answers: a user's reports of all its samples, added up, and how many they are."""

    def refuse_items(self, items: Array, n_users: int) -> None:
        """Raise WireError unless numbers of samples are (n,) int64 and possible."""
        Bounds((n_users,), "i", 0, MOST_ITEMS).check("items", items)

    @property
    def exact(self) -> bool:
        """False: the cost is per item, and real clients count per user, so they refuse it."""
        return False


@register_query
@dataclass(frozen=True)
class ItemScalars(ItemLevel, ClippedMean):
    """Each user reports its fold's scalar of EVERY sample and sends the sum: item-level privacy.

    Parameters
    ----------
    functional, centres, half_width, epsilon, kind, cohort, fold_salt
        As in :class:`~fedhist.protocols.localize.queries.ClippedMean`; epsilon is per sample.

    Privacy
    -------
    NOT user-level. Each sample goes through the channel once, with randomness of its own, so that
    replacing one sample costs epsilon. The number of samples is sent as it is: it is declared
    public, and replacing a sample does not change it. Replacing a record of T samples by another
    one of T costs T epsilon.
    """

    wire_name: ClassVar[str] = "item-level-scalars"

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report every sample and add up."""
        u, indptr, _ = self._items(users)
        reports = randomize(u, self.channel, ItemStreams(rng, indptr))
        sums = np.zeros(len(reports) + 1, dtype=self.channel.sum_dtype)
        sums[:-1] = reports
        edges = np.stack((indptr[:-1], indptr[1:]), axis=1).reshape(-1)
        totals = np.add.reduceat(sums, edges)[::2] if len(edges) else sums[:0]
        sizes = np.diff(indptr)
        return Report(users.ids, {"reports": np.where(sizes > 0, totals, 0), "items": sizes})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw the sum of the reports about each fold's samples."""
        k = self.functional.n_folds
        u, indptr, fold = self._items(users)
        u = np.clip(np.nan_to_num(u, nan=0.0), -1.0, 1.0)
        sums = self.channel.sum_law_by(u, fold, k, rng)
        return self._summary(sums, np.diff(indptr), users.ids)

    def _items(
        self, users: Users
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Position of every sample in its interval, the users' bounds, every sample's fold."""
        alone, indptr = each_alone(users)
        fold = np.repeat(self._fold(users.ids), np.diff(indptr))
        return self._positions(alone, fold), indptr, fold

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Add up the reports, the samples and the users of each fold."""
        fold, k = self._fold(report.ids), self.functional.n_folds
        sums = np.zeros(k, dtype=self.channel.sum_dtype)
        np.add.at(sums, fold, report.arrays["reports"])
        return self._summary(sums, report.arrays["items"], report.ids)

    def _summary(self, sums: Array, sizes: Array, ids: Array) -> Summary:
        k = self.functional.n_folds
        fold = fold_of(ids, self.fold_salt, k)
        items = np.zeros(k, dtype=np.int64)
        np.add.at(items, fold, sizes)
        people = np.bincount(fold, minlength=k).astype(np.int64)
        return Summary(len(ids), {"reports": sums, "items": items, "users": people})

    def check(self, report: Report) -> None:
        """Raise WireError unless every sum is one of so many reports."""
        if report.arrays.keys() != {"reports", "items"} or report.ragged:
            raise WireError(f"'reports' and 'items' are expected, got {sorted(report.arrays)}")
        reports, items = report.arrays["reports"], report.arrays["items"]
        self.refuse_items(items, report.n_users)
        Bounds((report.n_users,), np.dtype(self.channel.sum_dtype).kind).check("reports", reports)
        self._refuse_sums(reports, items)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """As far from zero as the reports of n_users with the most samples can be."""
        k, kind = self.functional.n_folds, np.dtype(self.channel.sum_dtype).kind
        most = n_users * float(MOST_ITEMS)
        far = most * self.channel.bound if n_users else 0.0
        return {
            "reports": Bounds((k,), kind, -far, far),
            "items": Bounds((k,), "i", 0, most),
            "users": Bounds((k,), "i", 0, n_users),
        }

    def check_summary(self, summary: Summary) -> None:
        """Bound the reports by the samples, and the samples by the users, of each fold."""
        Query.check_summary(self, summary)
        users, items = summary.sums["users"], summary.sums["items"]
        if int(users.sum()) != summary.n_users:
            raise WireError(f"the folds hold {int(users.sum())} users of {summary.n_users}")
        if (items > users * float(MOST_ITEMS)).any():
            raise WireError("a fold has more samples than its users can hold")
        self._refuse_sums(summary.sums["reports"], items)

    def _refuse_sums(self, sums: Array, items: Array) -> None:
        if (np.abs(sums.astype(np.float64)) > items * self.channel.bound * (1 + 1e-9)).any():
            raise WireError("'reports' add up to more than so many samples can report")
