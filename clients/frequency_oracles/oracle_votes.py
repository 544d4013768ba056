"""Votes through a frequency oracle: what all queries with one share, and those about one item."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from clients.randomizers.oracle_reports import draw_counts, fold_reports, report_symbols
from clients.records.draws import drawn_symbols, draws_of_symbols, padded_symbols
from fedhist.base.arrays import Array, Bounds, Integers, Words
from fedhist.base.checks import check_choice, check_integer
from fedhist.base.errors import WireError
from fedhist.channels.bits import check_bits
from fedhist.channels.hiding import hiding_of
from fedhist.channels.oracles import (
    OracleChannel,
    SubsetOracle,
    SymbolOracle,
    oracle_channel,
)
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import CHUNK, LocalQuery, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.shuffling import Hiding
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard
from fedhist.users.streams import SeededStreams, Streams

Kind = Literal["krr", "hadamard", "projective", "subset", "unary"]
AnyKind = Literal["auto", Kind]


class OracleVotes(LocalQuery):
    """Each user sends one of k symbols, or that it has none, through a frequency oracle.

    Subclasses are frozen dataclasses; they say which channel, what a user's symbol is, and how the
    one array of a report, and of a summary, is called: ``sent``. epsilon-LDP for a user's whole
    record as the channel is: the report is one symbol's.
    """

    exact = True
    spare: ClassVar[tuple[str, ...]] = ("others 0", "one-item")
    sent: ClassVar[str]

    @property
    @abstractmethod
    def channel(self) -> OracleChannel:
        """What happens to a symbol."""

    def finite_channel(self) -> FiniteChannel | None:
        return self.channel.law()

    @property
    def hiding(self) -> Hiding:
        """A message is read alike, whoever sends it."""
        return hiding_of(self.channel)

    # -- client half

    @abstractmethod
    def symbols(self, users: Users, rng: Streams) -> Integers:
        """Find every user's symbol: (n,) int64; -1 for a user that has none."""

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report the symbol."""
        reports = report_symbols(self.symbols(users, rng), self.channel, rng)
        return Report(users.ids, {self.sent: reports})

    @property
    def at_once(self) -> int:
        """A whole block of single symbols: there may be more of them than users in a chunk."""
        return BLOCK if isinstance(self.channel, SymbolOracle) else CHUNK

    # -- sums of reports from their joint law

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        return self.symbols(
            users, SeededStreams(users.ids, int(rng.integers(1 << 62)), "aggregate")
        )

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Count the true symbols, then draw the counts of the reports from their joint law."""
        symbols = self.true_symbols(users, rng)
        return self._drawn(count_symbols(symbols, self.channel.n_symbols), rng)

    def _drawn(self, counts: Integers, rng: np.random.Generator) -> Summary:
        reports = draw_counts(counts, self.channel, rng)
        return Summary(int(counts.sum()), {self.sent: reports})

    # -- server half

    def fold(self, report: Report) -> Summary:
        reports = fold_reports(report.arrays[self.sent], self.channel)
        return Summary(report.n_users, {self.sent: reports})

    def check(self, report: Report) -> None:
        name, channel = self.sent, self.channel
        if isinstance(channel, SymbolOracle):
            sent = only_array(report, name)
            Bounds((report.n_users,), "u", 0, channel.layers.size).check(name, sent)
            if sent.dtype != np.uint32:
                raise WireError(f"{name!r} has dtype {sent.dtype}, expected uint32")
            return
        check_bits(report, name, channel.size)
        if isinstance(channel, SubsetOracle):
            ones = np.bitwise_count(report.arrays[name]).sum(axis=1)
            if (ones != channel.chosen).any():
                bad = int(ones[ones != channel.chosen][0])
                raise WireError(f"{name!r} has {bad} bits set, expected {channel.chosen}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {self.sent: Bounds((self.channel.size,), "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        """Raise WireError unless counts add up to one symbol of every user, or to its subset."""
        super().check_summary(summary)
        name, channel = self.sent, self.channel
        if isinstance(channel, SymbolOracle | SubsetOracle):
            each = channel.chosen if isinstance(channel, SubsetOracle) else 1
            total, expected = int(summary.sums[name].sum()), each * summary.n_users
            if total != expected:
                raise WireError(f"{name!r} adds up to {total}, expected {expected}")


def count_symbols(symbols: Integers, k: int) -> Integers:
    """Count the users with each symbol, and last those with none, -1: (k + 1,) int64."""
    return np.bincount(np.where(symbols < 0, k, symbols), minlength=k + 1).astype(np.int64)


@register_query
@dataclass(frozen=True)
class OracleReports(OracleVotes):
    """Each user reports one of its items through an oracle that is named.

    What else the law depends on follows from epsilon and the size of the domain. Items outside are
    dropped first.

    Privacy
    -------
    epsilon-LDP for a user's whole record, see the oracle's channel: the report is a function of
    the one item.
    """

    wire_name: ClassVar[str] = "frequency-oracle"
    sent: ClassVar[str] = "report"
    n_words: ClassVar[int] = 1
    domain: Keys
    epsilon: float
    cohort: Cohort | None = None
    kind: Kind = "krr"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        _ = self.channel

    @property
    def channel(self) -> OracleChannel:
        """What happens to an item."""
        return oracle_channel(self.kind, self.epsilon, len(self.domain))

    def shares(self, summary: Summary) -> Array:
        """Return the unbiased share of the users that drew each symbol: (k,)."""
        return self.channel.debias(summary.sums[self.sent], summary.n_users)[:-1]

    def drawn(self, users: Users, words: Words) -> Integers:
        """Draw every user's symbol, (n,) int64, -1 for none, from its (n, n_words) words."""
        return drawn_symbols(users.counts, self.domain, words[:, 0])

    def symbols(self, users: Users, rng: Streams) -> Integers:
        return self.drawn(users, rng.substream("one-item").words(self.n_words))

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        words = rng.integers(1 << 64, size=(len(users), self.n_words), dtype=np.uint64)
        return self.drawn(users, words)

    def prepared(self, users: Users) -> Callable[[np.random.Generator], Integers]:
        """Prepare draws of how many users have each symbol, and last none: (k + 1,) int64."""
        return draws_of_symbols(users.counts, self.domain)

    def summary_law(
        self, users: Shard, cache: dict[str, Any]
    ) -> Callable[[np.random.Generator], Summary]:
        parts = [self.prepared(block.select(self.cohort)) for block in users.blocks()]
        none = np.zeros(len(self.domain) + 1, dtype=np.int64)
        return lambda rng: self._drawn(sum((part(rng) for part in parts), none), rng)


@register_query
@dataclass(frozen=True)
class OracleSlots(OracleReports):
    """Each user reports one of its L = ``padding`` slots through an oracle that is named.

    Of more items a uniform subset is taken; fewer leave slots empty.

    Privacy
    -------
    epsilon-LDP for a user's whole record. The report is a function of the one slot, and its law a
    mixture of those of the oracle's votes, whose likelihood ratios are no larger than these votes'
    own. Drawing one slot of L buys nothing on top: all of them may hold the same item.
    """

    wire_name: ClassVar[str] = "oracle-slots"
    n_words: ClassVar[int] = 2
    padding: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("padding", self.padding, 1 << 30)

    def drawn(self, users: Users, words: Words) -> Integers:
        """Draw what lies in a slot of every user: (n,) int64, -1 if it is empty."""
        return padded_symbols(users.counts, self.domain, self.padding, words)

    def prepared(self, users: Users) -> Callable[[np.random.Generator], Integers]:
        """Prepare draws of how many users have each symbol, and last none: (k + 1,) int64."""
        return draws_of_symbols(users.counts, self.domain, self.padding)


def chosen_kind(kind: AnyKind, epsilon: float, n_symbols: int) -> Kind:
    """Say what "auto" takes, from public numbers only."""
    check_choice("kind", kind, get_args(AnyKind))
    channel = oracle_channel(kind, epsilon, n_symbols)
    chosen: Kind = channel.kind if kind == "auto" else kind  # type: ignore[assignment]
    return chosen
