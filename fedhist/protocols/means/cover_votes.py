"""The queries of CoverSelect: a vote for the cell of a cover, in bits or as one symbol.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 2, eq. (10), (11), Lemma 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.scalars import add_votes, unary_votes
from clients.records.functionals import samples_of
from clients.records.user_rows import user_points
from fedhist.base.arrays import Bounds, Floats, Integers
from fedhist.base.checks import check_within
from fedhist.base.hashing import digest64, mix64
from fedhist.channels.bits import BitTally, check_bits, count_bits, vote_totals
from fedhist.channels.catalogue import MAX_BITS, UnaryChannel, unary_law
from fedhist.channels.covers import Cover
from fedhist.channels.hiding import hiding_of
from fedhist.channels.oracles import SymbolOracle
from fedhist.channels.wide_votes import is_wide, wide_channel
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import CHUNK, LocalQuery, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shuffling import Hiding
from fedhist.protocols.shared.oracle_votes import OracleVotes
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.shards import BLOCK
from fedhist.users.streams import Streams

_TIES = digest64("fedhist.cell-ties")


@register_query
@dataclass(frozen=True)
class CoverVotes(LocalQuery):
    """Each user votes for the cell that holds the mean of its samples, by randomized response.

    Parameters
    ----------
    cover : Cover
        The numbered cells; one bit each.
    epsilon : float
    cohort : Cohort, optional

    Privacy
    -------
    epsilon-LDP for a user's whole record: whatever the record, at most one bit is set before the
    flips, and none for a user without a finite mean [1, eq. (11), Lemma 16 with s = 1].
    """

    wire_name: ClassVar[str] = "cell-votes"
    cover: Cover
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_within("cells of a vote in bits", self.cover.n_cells, 1, MAX_BITS)

    @property
    def channel(self) -> UnaryChannel:
        """What happens to a vote."""
        return UnaryChannel(self.epsilon)

    @property
    def exact(self) -> bool:
        """Votes are bits, flipped against an integer threshold."""
        return True

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for every input of its channel."""
        return unary_law(self.channel, self.cover.n_cells)

    @property
    def hiding(self) -> Hiding:
        """Bits are read alike, whoever sends them."""
        return hiding_of(self.channel)

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Vote."""
        cells = true_cells(self.cover, users)
        return Report(
            users.ids, {"votes": unary_votes(cells, self.cover.n_cells, self.channel, rng)}
        )

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Vote and count, without keeping the votes; the same bits, so the same counts."""
        tally = BitTally(self.cover.n_cells, 1)
        for some in users.blocks(BLOCK):
            one_fold = np.zeros(len(some), dtype=np.int64)
            cells = true_cells(self.cover, some)
            add_votes(tally, cells, self.channel, one_fold, rng(some))
        return Summary(len(users), {"votes": tally.totals()[0]})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Count the true votes, then draw the totals of the reported ones: binomials."""
        counts = count_cells(self.cover, users)
        return Summary(
            len(users), {"votes": vote_totals(counts, len(users), self.channel.flip, rng)}
        )

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Count the votes of each cell."""
        votes = count_bits(report.arrays["votes"], self.cover.n_cells)
        return Summary(report.n_users, {"votes": votes})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a packed vector of one bit per cell."""
        check_bits(report, "votes", self.cover.n_cells)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Between no vote and everybody's for each cell."""
        return {"votes": Bounds((self.cover.n_cells,), "i", 0, n_users)}

    def frequencies(self, summary: Summary) -> Floats:
        """Return the unbiased share of the voters in each cell: (n_cells,)."""
        return self.channel.debias(summary.sums["votes"], summary.n_users)

    def winner(self, summary: Summary) -> int:
        """Return the cell of most votes, the lowest of several."""
        return int(np.argmax(summary.sums["votes"]))


@register_query
@dataclass(frozen=True)
class CellReports(OracleVotes):
    """Each user reports the cell that holds the mean of its samples as one symbol.

    Parameters
    ----------
    cover : Cover
        The numbered cells.
    epsilon : float
    cohort : Cohort, optional

    Privacy
    -------
    epsilon-LDP for a user's whole record, exactly as drawn, see the channel; a user without a
    finite mean reports one more cell.
    """

    wire_name: ClassVar[str] = "cell-reports"
    sent: ClassVar[str] = "cell"
    cover: Cover
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        _ = self.channel.layers

    @property
    def channel(self) -> SymbolOracle:
        """What happens to a vote."""
        return wide_channel(self.epsilon, self.cover.n_cells)

    # -- client half

    def symbols(self, users: Users, rng: Streams) -> Integers:
        """Find every user's cell: (n,) int64."""
        return true_cells(self.cover, users)

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        """Find every user's cell, chunk by chunk: (n,) int64."""
        found = [true_cells(self.cover, chunk) for chunk in users.blocks(CHUNK)]
        return np.concatenate([np.zeros(0, np.int64), *found])

    # -- server half

    def frequencies(self, summary: Summary) -> Floats:
        """Return the unbiased share of the voters in each cell: (n_cells,)."""
        return self.channel.debias(summary.sums["cell"], summary.n_users)[:-1]

    def winner(self, summary: Summary) -> int:
        """Return the cell of most votes; of several, which are not rare here, by a public hash."""
        totals = self.channel.set_counts(summary.sums["cell"])[:-1]
        tied = np.flatnonzero(totals == totals.max())
        return int(tied[np.argmin(mix64(tied.astype(np.uint64) ^ np.uint64(_TIES)))])


def vote_query(cover: Cover, epsilon: float) -> CoverVotes | CellReports:
    """Ask for a vote in bits, or for one symbol where that is better or bits are too many."""
    make = CellReports if is_wide(epsilon, cover.n_cells) else CoverVotes
    return make(cover, epsilon)


def true_cells(cover: Cover, users: Users) -> Integers:
    """Find the cell of every user's mean, (n,) int64; -1 for a user without a finite mean."""
    return cover.cells(user_points(samples_of(users, cover.dimension)))


def count_cells(cover: Cover, users: Users) -> Integers:
    """Count the users whose mean lies in each cell: (n_cells,) int64."""
    counts = np.zeros(cover.n_cells, dtype=np.int64)
    for some in users.blocks(BLOCK):
        counts += cast_votes(cover, true_cells(cover, some))
    return counts


def cast_votes(cover: Cover, cells: Integers) -> Integers:
    """Count the users of each cell, -1 for none: (n_cells,) int64."""
    return np.bincount(cells + 1, minlength=cover.n_cells + 1)[1:]
