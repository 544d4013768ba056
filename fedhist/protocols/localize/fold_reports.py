"""Reports of one scalar each through a scalar channel, added up by fold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from fedhist.base.arrays import Bounds, Floats, Integers, Words
from fedhist.base.errors import WireError
from fedhist.channels.catalogue import scalar_law
from fedhist.channels.hiding import hiding_of
from fedhist.channels.scalar import ScalarChannel
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import LocalQuery, Report, Summary, only_array
from fedhist.privacy.shuffling import Hiding
from fedhist.users.folds import fold_of


class FoldReports(LocalQuery):
    """A query whose report is one call of a scalar channel; the server keeps each fold's sum.

    Subclasses are frozen dataclasses with the field ``fold_salt``; they say what is reported.
    """

    fold_salt: int

    @property
    @abstractmethod
    def channel(self) -> ScalarChannel:
        """What happens to a scalar in [-1, 1]."""

    @property
    @abstractmethod
    def n_folds(self) -> int:
        """Groups that are added up on their own."""

    @property
    def exact(self) -> bool:
        """Whether the channel keeps its promise as it is drawn."""
        return self.channel.exact

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for every input of its channel."""
        return scalar_law(self.channel)

    @property
    def hiding(self) -> Hiding:
        """A scalar's report is read alike within its fold."""
        return hiding_of(self.channel)

    @property
    def n_batches(self) -> int:
        """The folds."""
        return self.n_folds

    def batch_sizes(self, total: Summary) -> Integers:
        """Count the users of each fold."""
        return np.asarray(total.sums["users"])

    def draw_sums(self, u: Floats, fold: Integers, rng: np.random.Generator) -> Summary:
        """Draw the sum of each fold's reports of the scalars u in [-1, 1]: (n,) float64."""
        sums = self.channel.sum_law_by(u, fold, self.n_folds, rng)
        return Summary(len(u), {"reports": sums, "users": self._sizes(fold)})

    def _fold(self, ids: Words) -> Integers:
        return fold_of(ids, self.fold_salt, self.n_folds)

    def _sizes(self, fold: Integers) -> Integers:
        return np.bincount(fold, minlength=self.n_folds).astype(np.int64)

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Add up the reports of each fold; integers, unless noise is off."""
        fold = self._fold(report.ids)
        sums = np.zeros(self.n_folds, dtype=self.channel.sum_dtype)
        np.add.at(sums, fold, report.arrays["reports"].astype(self.channel.sum_dtype))
        return Summary(report.n_users, {"reports": sums, "users": self._sizes(fold)})

    def shares(self, summary: Summary) -> Floats:
        """Return the unbiased share of ones of each fold, if all else is -1: 1/2 of nobody."""
        n = np.maximum(summary.sums["users"], 1)
        return np.asarray((1 + summary.sums["reports"] / n / self.channel.gain) / 2)

    def check(self, report: Report) -> None:
        """Raise WireError unless every report is one that the channel can produce."""
        self.channel.check("reports", only_array(report, "reports"), report.n_users)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """As far from zero as n_users reports can be."""
        k, kind = self.n_folds, np.dtype(self.channel.sum_dtype).kind
        most = n_users * self.channel.bound if n_users else 0.0
        if kind == "f":
            most *= 1 + 1e-9
        return {
            "reports": Bounds((k,), kind, -most, most),
            "users": Bounds((k,), "i", 0, n_users),
        }

    def check_summary(self, summary: Summary) -> None:
        """Bound the sum of a fold by its users as well."""
        super().check_summary(summary)
        check_sizes(summary)
        most = summary.sums["users"] * self.channel.bound * (1 + 1e-9)
        if (np.abs(summary.sums["reports"]) > most).any():
            raise WireError("a fold's reports add up to more than its users can report")


def check_sizes(summary: Summary) -> None:
    """Raise WireError unless the folds have as many users as answered."""
    if int(summary.sums["users"].sum()) != summary.n_users:
        raise WireError(
            f"the folds have {int(summary.sums['users'].sum())} users, {summary.n_users} answered"
        )
