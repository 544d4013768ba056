"""The two queries of localize-then-refine, by fold: votes for bins, reports of a clipped scalar.

The users of a cohort are split into folds; a user reports about the one scalar functional of its
record that belongs to its fold. A mean of one coordinate is the case of one fold.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (26), (27), (30), Lemma 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.scalars import add_votes, bin_indices, neighbours, randomize, unary_votes
from fedhist.base.arrays import Bounds, Floats, Integers, Words
from fedhist.base.checks import check_choice, check_size, check_within
from fedhist.base.errors import WireError
from fedhist.channels.bits import BitTally, check_bits, count_bits_by, vote_totals
from fedhist.channels.catalogue import (
    CHANNELS,
    ScalarChannel,
    UnaryChannel,
    scalar_channel,
    unary_law,
)
from fedhist.channels.hiding import hiding_of
from fedhist.model.finite import FiniteChannel
from fedhist.model.part import Functional
from fedhist.model.query import CHUNK, LocalQuery, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shuffling import Hiding
from fedhist.protocols.localize.fold_reports import FoldReports, check_sizes
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.folds import MAX_FOLDS, fold_of, fold_sizes
from fedhist.users.streams import Streams
from server.means.localize import MAX_BINS

MAX_CELLS = 1 << 27
"""Folds times bins of one summary: a gigabyte of counts."""


@register_query
@dataclass(frozen=True)
class BinVotes(LocalQuery):
    """Each user votes for the bin of its fold's scalar, by unary randomized response.

    Parameters
    ----------
    functional : Functional
        The scalars, one per fold, and their range.
    n_bins : int
        Bins of equal width on the range; one bit each.
    epsilon : float
    cohort : Cohort, optional
    fold_salt : int
        Public salt of the folds.
    neighbours : bool
        Vote for the bin and the bins beside it, as the paper does [1, eq. (26)].

    Privacy
    -------
    epsilon-LDP for a user's whole record: at most one bit is set, or three with neighbours, and
    no bit for a user without usable data [1, Lemma 16]. The fold is a hash of the public id.
    """

    wire_name: ClassVar[str] = "bin-votes"
    functional: Functional
    n_bins: int
    epsilon: float
    cohort: Cohort | None = None
    fold_salt: int = 0
    neighbours: bool = False

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        _check_folds(self.functional, self.fold_salt)
        check_within("n_bins", self.n_bins, 1, MAX_BINS)
        if self.n_bins * self.functional.n_folds > MAX_CELLS:
            raise ValueError(
                f"{self.functional.n_folds} folds of {self.n_bins} bins are more than the "
                f"{MAX_CELLS} counts that a summary may have"
            )

    @property
    def channel(self) -> UnaryChannel:
        """What happens to a vote."""
        return UnaryChannel(self.epsilon, ones=3 if self.neighbours else 1)

    @property
    def exact(self) -> bool:
        """Votes are bits, flipped against an integer threshold."""
        return True

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for every input of its channel."""
        return unary_law(self.channel, self.n_bins)

    @property
    def hiding(self) -> Hiding:
        """Bits are read alike within their fold."""
        return hiding_of(self.channel)

    @property
    def n_batches(self) -> int:
        """The folds."""
        return self.functional.n_folds

    def batch_sizes(self, total: Summary) -> Integers:
        """Count the users of each fold."""
        return np.asarray(total.sums["users"])

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Vote."""
        wanted = self._wanted(users, self._fold(users.ids))
        return Report(users.ids, {"votes": unary_votes(wanted, self.n_bins, self.channel, rng)})

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Vote and count, without keeping the votes; the same bits, so the same counts."""
        k = self.functional.n_folds
        tally = BitTally(self.n_bins, k)
        for chunk in users.blocks(CHUNK):
            fold = self._fold(chunk.ids)
            add_votes(tally, self._wanted(chunk, fold), self.channel, fold, rng(chunk))
        sizes = fold_sizes(users.ids, self.fold_salt, k)
        return Summary(len(users), {"votes": tally.totals(), "users": sizes})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Count the true votes, then draw the totals of the reported ones: binomials."""
        k = self.functional.n_folds
        fold = self._fold(users.ids)
        wanted = self._wanted(users, fold)
        # transposed, a user's fold goes with its one position or with each of its three
        cell = (fold * self.n_bins + wanted.T)[wanted.T >= 0]
        counts = np.bincount(cell, minlength=k * self.n_bins).reshape(k, self.n_bins)
        sizes = np.bincount(fold, minlength=k).astype(np.int64)
        votes = vote_totals(counts.astype(np.int64), sizes[:, None], self.channel.flip, rng)
        return Summary(len(users), {"votes": votes, "users": sizes})

    def _fold(self, ids: Words) -> Integers:
        return fold_of(ids, self.fold_salt, self.functional.n_folds)

    def _wanted(self, users: Users, fold: Integers) -> Integers:
        """Positions to set: (n,), or (n, 3) with neighbours; -1 for none."""
        x = self.functional.scalars(users, fold)
        bins = bin_indices(x, self.functional.low, self.functional.high, self.n_bins)
        return neighbours(bins, self.n_bins) if self.neighbours else bins

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Count the votes of each fold and bin, and the users of each fold."""
        fold, k = self._fold(report.ids), self.functional.n_folds
        votes = count_bits_by(report.arrays["votes"], self.n_bins, fold, k)
        sizes = np.bincount(fold, minlength=k).astype(np.int64)
        return Summary(report.n_users, {"votes": votes, "users": sizes})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a packed vector of n_bins bits."""
        check_bits(report, "votes", self.n_bins)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Between no vote and everybody's for each bin."""
        k = self.functional.n_folds
        return {
            "votes": Bounds((k, self.n_bins), "i", 0, n_users),
            "users": Bounds((k,), "i", 0, n_users),
        }

    def check_summary(self, summary: Summary) -> None:
        """Bound the votes of a fold by its users as well."""
        super().check_summary(summary)
        check_sizes(summary)
        if (summary.sums["votes"] > summary.sums["users"][:, None]).any():
            raise WireError("a fold has more votes for a bin than users")

    def frequencies(self, summary: Summary) -> Floats:
        """Return the unbiased share of each fold's voters in each bin: (k, n_bins).

        A fold without voters has zeros.
        """
        sizes = summary.sums["users"][:, None]
        found = self.channel.debias(summary.sums["votes"], np.maximum(sizes, 1))
        return np.where(sizes > 0, found, 0.0)


@register_query
@dataclass(frozen=True)
class ClippedMean(FoldReports):
    """Each user reports its fold's scalar, clipped to a short interval, through a scalar channel.

    Parameters
    ----------
    functional : Functional
    centres : (k,) float64
        The middle of each fold's interval.
    half_width : float
        Of every interval.
    epsilon : float
    kind : {"laplace", "onebit", "piecewise"}
    cohort : Cohort, optional
    fold_salt : int

    Privacy
    -------
    epsilon-LDP for a user's whole record: the clipped scalar lies in an interval of width exactly
    2 half_width, whatever the record; the middle stands for a record without usable data.
    """

    wire_name: ClassVar[str] = "clipped-mean"
    functional: Functional
    centres: Floats
    half_width: float
    epsilon: float
    kind: str
    cohort: Cohort | None = None
    fold_salt: int = 0

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
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
        """What happens to a clipped scalar."""
        return scalar_channel(self.kind, self.epsilon)

    @property
    def n_folds(self) -> int:
        """Those of the functional."""
        return self.functional.n_folds

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report the position of the scalar in its interval, in [-1, 1] before noise."""
        u = self._positions(users, self._fold(users.ids))
        return Report(users.ids, {"reports": randomize(u, self.channel, rng)})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw the sum of each fold's reports."""
        fold = self._fold(users.ids)
        u = np.clip(np.nan_to_num(self._positions(users, fold), nan=0.0), -1.0, 1.0)
        return self.draw_sums(u, fold, rng)

    def _positions(self, users: Users, fold: Integers) -> Floats:
        x = self.functional.scalars(users, fold)
        with np.errstate(over="ignore"):  # whose record overflows in a strange interval is private
            return np.asarray((x - self.centres[fold]) / self.half_width)

    # -- server half

    def estimates(self, summary: Summary, clip: bool = True) -> Floats:
        """Average the debiased reports of each fold, in the units of the scalars: (k,).

        Parameters
        ----------
        summary : Summary
        clip : bool
            Whether to clip the average to the interval, where the clipped scalars lie.

        Returns
        -------
        (k,) float64
            The middle of the interval for a fold without reports.
        """
        n = np.maximum(summary.sums["users"], 1)
        u = summary.sums["reports"] / n / self.channel.gain
        return self.centres + self.half_width * (np.clip(u, -1.0, 1.0) if clip else u)


def _check_folds(functional: Functional, fold_salt: int) -> None:
    if not 1 <= functional.n_folds <= MAX_FOLDS:
        raise ValueError(f"there must be 1 to {MAX_FOLDS} folds, got {functional.n_folds}")
    check_within("fold_salt", fold_salt, 0, 1 << 63, "[)")
