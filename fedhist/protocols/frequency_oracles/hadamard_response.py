"""Hadamard response of one item per user [1]_.

References
----------
.. [1] Acharya, Sun & Zhang, "Hadamard response: estimating distributions privately, efficiently,
   and with little communication", AISTATS 2019, Section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.vote_reports import hadamard_response
from fedhist.base.arrays import Array, Bounds
from fedhist.base.errors import WireError
from fedhist.channels.finite import FiniteChannel, hadamard_law
from fedhist.channels.votes import HadamardChannel
from fedhist.model.query import CHUNK, Report, Summary, only_array
from fedhist.model.registry import register_protocol, register_query
from fedhist.model.results import Goal
from fedhist.protocols.frequency_oracles.oracle import FrequencyOracle, OracleQuery
from fedhist.protocols.shared.noninteractive_error import hadamard_noise
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams


@register_query
@dataclass(frozen=True)
class HadamardIndices(OracleQuery):
    """Each user reports one of its items as one index.

    Its channel is :class:`~fedhist.channels.votes.HadamardChannel`; see the base class.
    """

    wire_name: ClassVar[str] = "hadamard-response"
    part: ClassVar[str] = "index"

    @property
    def channel(self) -> HadamardChannel:
        """What happens to an item."""
        return HadamardChannel(self.epsilon, len(self.domain))

    @property
    def noise(self) -> tuple[float, float]:
        """(coth^2(epsilon / 2), 0)."""
        return hadamard_noise(self.epsilon)

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for every input of its channel."""
        return hadamard_law(self.channel)

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Draw an item and report it."""
        y = hadamard_response(self.symbols(users, rng), self.channel, rng)
        return Report(users.ids, {"index": y})

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Count once for the whole node: there may be more indices than users in a chunk."""
        found = [self.answer(c, rng(c)).arrays["index"] for c in users.chunks(CHUNK)]
        return self._count(np.concatenate([np.zeros(0, np.uint32), *found]))

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw everybody's item, count the items, and report as many of each."""
        votes = self.votes(users, rng)
        symbols = np.repeat(np.arange(-1, len(votes) - 1), votes)
        streams = SeededStreams(users.ids, int(rng.integers(1 << 62)), "aggregate")
        return self._count(hadamard_response(symbols, self.channel, streams))

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Count the indices: (K,) int64."""
        return self._count(report.arrays["index"])

    def _count(self, index: Array) -> Summary:
        counts = np.bincount(index, minlength=self.channel.size).astype(np.int64)
        return Summary(len(index), {"index": counts})

    def check(self, report: Report) -> None:
        """Raise WireError unless every user sends an index below K."""
        index = only_array(report, "index")
        Bounds((report.n_users,), "u", 0, self._largest).check("index", index)
        if index.dtype != np.uint32:
            raise WireError(f"'index' has dtype {index.dtype}, expected uint32")

    @property
    def _largest(self) -> int:
        """K - 1; without noise the last symbol's row."""
        return self.channel.size - 1 if np.isfinite(self.epsilon) else len(self.domain)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Between nobody and everybody for each index."""
        return {"index": Bounds((self.channel.size,), "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        """Every user has sent one index."""
        super().check_summary(summary)
        total = int(summary.sums["index"].sum())
        if total != summary.n_users:
            raise WireError(f"'index' adds up to {total}, expected {summary.n_users}")


@register_protocol
@dataclass(frozen=True)
class HadamardResponse(FrequencyOracle):
    """Distribution of one item per user, by Hadamard response: local privacy, log2 K bits.

    Each user draws one of its items and reports an index below K, the power of two above k, that
    is in its symbol's half with probability e^epsilon / (e^epsilon + 1). The server takes one fast
    Hadamard transform.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    domain : Keys
        Public symbols, fewer than 2^24; other items are dropped before one is drawn.
    project : bool
        Project the estimate onto the simplex, which is free. It suits populations where every user
        has an item of the domain.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round; exact as drawn. A user without items sends
    a uniform index.

    Error
    -----
    Less than k coth^2(epsilon / 2) / n in squared l2 distance, whatever number of items the users
    hold: k / n more than unary encoding, less 2 / n, and shorter messages.

    Examples
    --------
    >>> from fedhist import Keys
    >>> HadamardResponse(epsilon=1.0, domain=Keys.of(["tea", "rye"])).query.channel.size
    4
    """

    name: ClassVar[str] = "hadamard-response"
    paper: ClassVar[str] = "Acharya, Sun & Zhang, AISTATS 2019, Section 4"
    asks: ClassVar[type[OracleQuery]] = HadamardIndices
    goals: ClassVar[tuple[Goal, ...]] = (Goal(0.02, words="k = 64"),)
