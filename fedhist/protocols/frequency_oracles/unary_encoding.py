"""Optimized unary encoding of one item per user [1]_.

References
----------
.. [1] Wang, Blocki, Li & Jha, "Locally differentially private protocols for frequency estimation",
   USENIX Security 2017, Section 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.vote_reports import optimal_unary
from fedhist.base.arrays import Bounds
from fedhist.channels.bits import check_bits, count_bits
from fedhist.channels.finite import FiniteChannel, optimal_unary_law
from fedhist.channels.summed_reports import vote_totals
from fedhist.channels.votes import OptimalUnaryChannel
from fedhist.model.query import Report, Summary
from fedhist.model.registry import register_protocol, register_query
from fedhist.model.results import Goal
from fedhist.protocols.frequency_oracles.oracle import FrequencyOracle, OracleQuery
from fedhist.protocols.shared.noninteractive_error import unary_noise
from fedhist.users.batch import Users
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class UnaryVotes(OracleQuery):
    """Each user reports one of its items as k noisy bits.

    Its channel is :class:`~fedhist.channels.votes.OptimalUnaryChannel`; see the base class.
    """

    wire_name: ClassVar[str] = "unary-encoding"
    part: ClassVar[str] = "bits"

    @property
    def channel(self) -> OptimalUnaryChannel:
        """What happens to an item."""
        return OptimalUnaryChannel(self.epsilon, len(self.domain))

    @property
    def noise(self) -> tuple[float, float]:
        """(1 / sinh^2(epsilon / 2), 2)."""
        return unary_noise(self.epsilon)

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for every input of its channel."""
        return optimal_unary_law(self.channel)

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Draw an item and report it."""
        bits = optimal_unary(self.symbols(users, rng), self.channel, rng)
        return Report(users.ids, {"bits": bits})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw everybody's item, then the totals: binomials, independent given the items."""
        votes, channel = self.votes(users, rng)[1:], self.channel
        kept = rng.binomial(votes, channel.keep)
        others = np.zeros_like(votes)
        turned = vote_totals(others, len(users) - votes, channel.flip, rng)
        return Summary(len(users), {"bits": kept + turned})

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Count the ones of each symbol: (k,) int64."""
        bits = count_bits(report.arrays["bits"], len(self.domain))
        return Summary(report.n_users, {"bits": bits})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a packed vector of k bits."""
        check_bits(report, "bits", len(self.domain))

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Between nobody and everybody for each symbol."""
        return {"bits": Bounds((len(self.domain),), "i", 0, n_users)}


@register_protocol
@dataclass(frozen=True)
class UnaryEncoding(FrequencyOracle):
    """Distribution of one item per user, by optimized unary encoding: local privacy, k bits.

    Each user draws one of its items and reports k bits, where its own symbol's bit is a fair coin
    and every other bit is one with probability 1 / (e^epsilon + 1).

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    domain : Keys
        Public symbols, at most 2^16; other items are dropped before one is drawn.
    project : bool
        Project the estimate onto the simplex, which is free. It suits populations where every user
        has an item of the domain.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round; exact as drawn. A user without items sends
    the zero vector through the same flips.

    Error
    -----
    k / (n sinh^2(epsilon / 2)) and less than 2 / n in squared l2 distance, whatever number of
    items the users hold.

    Examples
    --------
    >>> from fedhist import Keys
    >>> UnaryEncoding(epsilon=1.0, domain=Keys.of(["tea", "rye"])).max_rounds
    1
    """

    name: ClassVar[str] = "unary-encoding"
    paper: ClassVar[str] = "Wang, Blocki, Li & Jha, USENIX Security 2017, Section 4.3"
    asks: ClassVar[type[OracleQuery]] = UnaryVotes
    goals: ClassVar[tuple[Goal, ...]] = (Goal(0.02, words="k = 64", protocol={"project": False}),)
