"""The two queries of localize-then-refine, by fold: votes for bins, reports of a clipped scalar.

The users of a cohort are split into folds; a user reports about the one scalar functional of its
record that belongs to its fold. A mean of one coordinate is the case of one fold.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (26), (27), (30), Lemma 16.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from clients.randomizers.scalars import add_votes, bin_indices, neighbours, randomize, unary_votes
from fedhist.base.arrays import ROUNDING, Array, Bounds, Floats, Integers, Words
from fedhist.base.checks import check_choice, check_size, check_within
from fedhist.base.errors import WireError
from fedhist.channels.bits import (
    BitTally,
    UnaryChannel,
    check_bits,
    count_bits_by,
    unary_law,
    vote_totals,
)
from fedhist.channels.hiding import hiding_of
from fedhist.channels.scalar import CHANNELS, ScalarChannel, scalar_channel, scalar_law
from fedhist.model.codec import query_digest
from fedhist.model.finite import FiniteChannel
from fedhist.model.part import Functional
from fedhist.model.query import CHUNK, LocalQuery, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shuffling import Hiding
from fedhist.users.batch import Users
from fedhist.users.cohort import MAX_FOLDS, Cohort, fold_of
from fedhist.users.shards import Shard
from fedhist.users.streams import Streams

MAX_BINS = 65536
"""Bits of one vote message; a user mean over 2^32 samples would need more."""


class ByFold(LocalQuery):
    """A query whose answers are added up by fold, with the users of each."""

    exact = True
    fold_salt: int

    @property
    @abstractmethod
    def channel(self) -> ScalarChannel | UnaryChannel:
        """What happens to the part of a record that is reported about."""

    @property
    @abstractmethod
    def n_folds(self) -> int:
        """Groups that are added up on their own."""

    @property
    def hiding(self) -> Hiding:
        return hiding_of(self.channel)

    @property
    def n_batches(self) -> int:
        return self.n_folds

    def batch_sizes(self, total: Summary) -> Integers:
        return np.asarray(total.sums["users"])

    def _fold(self, ids: Words) -> Integers:
        return fold_of(ids, self.fold_salt, self.n_folds)

    def _sizes(self, fold: Integers) -> Integers:
        return np.bincount(fold, minlength=self.n_folds).astype(np.int64)

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        users = summary.sums["users"]
        if int(users.sum()) != summary.n_users:
            raise WireError(f"the folds have {users.sum()} users, {summary.n_users} answered")
        if self._beyond(summary.sums, users):
            raise WireError("a fold adds up to more than its users can report")

    @abstractmethod
    def _beyond(self, sums: Mapping[str, Array], users: Integers) -> bool:
        """Whether the sums of a fold are larger than its users allow."""


class FoldReports(ByFold):
    """A query whose report is one call of a scalar channel; subclasses say what is reported."""

    @property
    @abstractmethod
    def channel(self) -> ScalarChannel:
        """What happens to a scalar in [-1, 1]."""

    def finite_channel(self) -> FiniteChannel | None:
        return scalar_law(self.channel)

    def draw_sums(self, u: Floats, fold: Integers, rng: np.random.Generator) -> Summary:
        """Draw the sum of each fold's reports of the scalars u in [-1, 1]: (n,) float64."""
        sums = self.channel.sum_law_by(u, fold, self.n_folds, rng)
        return Summary(len(u), {"reports": sums, "users": self._sizes(fold)})

    # -- server half

    def fold(self, report: Report) -> Summary:
        fold = self._fold(report.ids)
        sums = np.zeros(self.n_folds, dtype=self.channel.sum_dtype)
        np.add.at(sums, fold, report.arrays["reports"].astype(self.channel.sum_dtype))
        return Summary(report.n_users, {"reports": sums, "users": self._sizes(fold)})

    def check(self, report: Report) -> None:
        self.channel.check("reports", only_array(report, "reports"), report.n_users)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        k, kind = self.n_folds, np.dtype(self.channel.sum_dtype).kind
        most = n_users * self.channel.bound * (ROUNDING if kind == "f" else 1) if n_users else 0.0
        return {
            "reports": Bounds((k,), kind, -most, most),
            "users": Bounds((k,), "i", 0, n_users),
        }

    def _beyond(self, sums: Mapping[str, Array], users: Integers) -> bool:
        most = users * self.channel.bound * ROUNDING
        return bool((np.abs(sums["reports"]) > most).any())


@register_query
@dataclass(frozen=True)
class BinVotes(ByFold):
    """Each user votes for the bin of its fold's scalar, by unary randomized response.

    Privacy
    -------
    epsilon-LDP for a user's whole record: at most one bit is set, or three with neighbours, and
    no bit for a user without usable data [1, Lemma 16]. The fold is a hash of the public id.
    """

    wire_name: ClassVar[str] = "bin-votes"
    functional: Functional
    n_bins: int  # of equal width on the range; one bit each
    epsilon: float
    cohort: Cohort | None = None
    fold_salt: int = 0
    neighbours: bool = False  # vote for the bins beside it, too [1, eq. (26)]

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        _check_folds(self.functional, self.fold_salt)
        check_within("n_bins", self.n_bins, 1, MAX_BINS)
        if self.n_bins * self.n_folds > 1 << 27:  # a gigabyte of counts
            raise ValueError(
                f"{self.n_folds} folds of {self.n_bins} bins are more than the 2^27 counts that a "
                "summary may have"
            )

    @property
    def channel(self) -> UnaryChannel:
        return UnaryChannel(self.epsilon, ones=3 if self.neighbours else 1)

    def finite_channel(self) -> FiniteChannel | None:
        return unary_law(self.channel, self.n_bins)

    @property
    def n_folds(self) -> int:
        return self.functional.n_folds

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        wanted = self._wanted(users, self._fold(users.ids))
        return Report(users.ids, {"votes": unary_votes(wanted, self.n_bins, self.channel, rng)})

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        tally, sizes = BitTally(self.n_bins, self.n_folds), np.zeros(self.n_folds, dtype=np.int64)
        for chunk in users.blocks(CHUNK):
            fold = self._fold(chunk.ids)
            add_votes(tally, self._wanted(chunk, fold), self.channel, fold, rng(chunk))
            sizes += self._sizes(fold)
        return Summary(len(users), {"votes": tally.totals(), "users": sizes})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Count the true votes, then draw the totals of the reported ones: binomials."""
        return self._drawn(*self._counts(users), rng)

    def summary_law(
        self, users: Shard, cache: dict[str, Any]
    ) -> Callable[[np.random.Generator], Summary]:
        parts = [self._counts(block) for block in users.blocks()] or [self._counts(users.none)]
        counts, sizes = (np.sum(part, axis=0) for part in zip(*parts, strict=True))
        return lambda rng: self._drawn(counts, sizes, rng)

    def _drawn(self, counts: Integers, sizes: Integers, rng: np.random.Generator) -> Summary:
        votes = vote_totals(counts, sizes[:, None], self.channel.flip, rng)
        return Summary(int(sizes.sum()), {"votes": votes, "users": sizes})

    def _counts(self, users: Users) -> tuple[Integers, Integers]:
        """Count the true votes of each fold and bin, and the users of each fold."""
        fold = self._fold(users.ids)
        wanted, size = self._wanted(users, fold), self.n_folds * self.n_bins
        # transposed, a user's fold goes with its one position or with each of its three
        cell = (fold * self.n_bins + wanted.T)[wanted.T >= 0]
        counts = np.bincount(cell, minlength=size).reshape(self.n_folds, self.n_bins)
        return counts.astype(np.int64), self._sizes(fold)

    def _wanted(self, users: Users, fold: Integers) -> Integers:
        """Positions to set: (n,), or (n, 3) with neighbours; -1 for none."""
        x = self.functional.scalars(users, fold)
        bins = bin_indices(x, self.functional.low, self.functional.high, self.n_bins)
        return neighbours(bins, self.n_bins) if self.neighbours else bins

    # -- server half

    def fold(self, report: Report) -> Summary:
        fold = self._fold(report.ids)
        votes = count_bits_by(report.arrays["votes"], self.n_bins, fold, self.n_folds)
        return Summary(report.n_users, {"votes": votes, "users": self._sizes(fold)})

    def check(self, report: Report) -> None:
        check_bits(report, "votes", self.n_bins)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        k = self.n_folds
        return {
            "votes": Bounds((k, self.n_bins), "i", 0, n_users),
            "users": Bounds((k,), "i", 0, n_users),
        }

    def _beyond(self, sums: Mapping[str, Array], users: Integers) -> bool:
        return bool((sums["votes"] > users[:, None]).any())

    def frequencies(self, summary: Summary) -> Floats:
        """Return the unbiased share of each fold's voters in each bin: (k, n_bins)."""
        sizes = summary.sums["users"][:, None]
        counts = self.channel.debias(summary.sums["votes"], np.maximum(sizes, 1))
        return np.where(sizes > 0, counts, 0.0)


@register_query
@dataclass(frozen=True)
class ClippedMean(FoldReports):
    """Each user reports its fold's scalar, clipped to a short interval, through a scalar channel.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the clipped scalar lies in an interval of width exactly
    2 half_width, whatever the record; the middle stands for a record without usable data.
    """

    wire_name: ClassVar[str] = "clipped-mean"
    functional: Functional
    centres: Floats  # the middle of each fold's interval: (k,)
    half_width: float  # of every interval
    epsilon: float
    kind: str
    cohort: Cohort | None = None
    fold_salt: int = 0

    def __post_init__(self) -> None:
        _check_folds(self.functional, self.fold_salt)
        check_choice("kind", self.kind, CHANNELS)
        c = self.centres
        if c.dtype != np.float64 or c.shape != (self.functional.n_folds,):
            raise ValueError(
                f"centres must be ({self.functional.n_folds},) float64, got {c.dtype}{c.shape}"
            )
        if not np.isfinite(c).all():
            raise ValueError(f"centres must be finite, got {c[~np.isfinite(c)][0]}")
        check_size("half_width", self.half_width)
        _ = self.channel

    @property
    def channel(self) -> ScalarChannel:
        return scalar_channel(self.kind, self.epsilon)

    @property
    def n_folds(self) -> int:
        return self.functional.n_folds

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report the position of the scalar in its interval, in [-1, 1] before noise."""
        u = self._positions(*self._scalars(users))
        return Report(users.ids, {"reports": randomize(u, self.channel, rng)})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        return self._drawn(*self._scalars(users), rng)

    def summary_law(
        self, users: Shard, cache: dict[str, Any]
    ) -> Callable[[np.random.Generator], Summary]:
        key = query_digest(replace(self, centres=np.zeros(self.n_folds), half_width=1.0), 0)
        if key not in cache:
            parts = [self._scalars(b) for b in users.blocks()] or [self._scalars(users.none)]
            cache[key] = [np.concatenate(part) for part in zip(*parts, strict=True)]
        x, fold = cache[key]
        return lambda rng: self._drawn(x, fold, rng)

    def _drawn(self, x: Floats, fold: Integers, rng: np.random.Generator) -> Summary:
        u = np.clip(np.nan_to_num(self._positions(x, fold), nan=0.0), -1.0, 1.0)
        return self.draw_sums(u, fold, rng)

    def _scalars(self, users: Users) -> tuple[Floats, Integers]:
        fold = self._fold(users.ids)
        return self.functional.scalars(users, fold), fold

    def _positions(self, x: Floats, fold: Integers) -> Floats:
        with np.errstate(over="ignore"):  # whose record overflows in a strange interval is private
            return np.asarray((x - self.centres[fold]) / self.half_width)

    # -- server half

    def estimates(self, summary: Summary, clip: bool = True) -> Floats:
        """Average the debiased reports of each fold, in the units of the scalars: (k,) float64.

        With ``clip`` no average leaves its interval, where the clipped scalars lie; a fold without
        reports has the middle of its own.
        """
        n = np.maximum(summary.sums["users"], 1)
        u = summary.sums["reports"] / n / self.channel.gain
        return self.centres + self.half_width * (np.clip(u, -1.0, 1.0) if clip else u)


def _check_folds(functional: Functional, fold_salt: int) -> None:
    check_within("the number of folds", functional.n_folds, 1, MAX_FOLDS)
    check_within("fold_salt", fold_salt, 0, 1 << 63, "[)")
