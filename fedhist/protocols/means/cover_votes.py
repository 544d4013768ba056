"""The query of CoverSelect: a vote for the cell of a cover, a bit for each.

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
from fedhist.channels.bits import BitTally, check_bits, count_bits, vote_totals
from fedhist.channels.catalogue import UnaryChannel, unary_law
from fedhist.channels.covers import Cover
from fedhist.channels.hiding import hiding_of
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import LocalQuery, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shuffling import Hiding
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.shards import BLOCK
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class CoverVotes(LocalQuery):
    """Each user votes for the cell that holds the mean of its samples, by randomized response.

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


def true_cells(cover: Cover, users: Users) -> Integers:
    """Find the cell of every user's mean, (n,) int64; -1 for a user without a finite mean."""
    return cover.cells(user_points(samples_of(users, cover.dimension)))


def count_cells(cover: Cover, users: Users) -> Integers:
    """Count the users whose mean lies in each cell: (n_cells,) int64."""
    counts = np.zeros(cover.n_cells, dtype=np.int64)
    for some in users.blocks(BLOCK):
        counts += np.bincount(true_cells(cover, some) + 1, minlength=cover.n_cells + 1)[1:]
    return counts
