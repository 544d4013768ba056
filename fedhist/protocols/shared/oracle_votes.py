"""A vote through a frequency oracle: the two halves that all queries with one have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from clients.randomizers.oracle_reports import draw_counts, fold_reports, report_symbols
from fedhist.base.arrays import Array, Bounds, Integers
from fedhist.base.errors import WireError
from fedhist.channels.bits import check_bits
from fedhist.channels.hiding import hiding_of
from fedhist.channels.oracles import OracleChannel, SubsetOracle, SymbolOracle
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import CHUNK, LocalQuery, Report, Summary, only_array
from fedhist.privacy.shuffling import Hiding
from fedhist.users.batch import Users
from fedhist.users.streams import Streams


class OracleVotes(LocalQuery):
    """Each user sends one of k symbols, or that it has none, through a frequency oracle.

    Subclasses are frozen dataclasses; they say which channel, what a user's symbol is, and how the
    one array of a report, and of a summary, is called: ``sent``. epsilon-LDP for a user's whole
    record as the channel is: the report is one symbol's.
    """

    sent: ClassVar[str]

    @property
    @abstractmethod
    def channel(self) -> OracleChannel:
        """What happens to a symbol."""

    @property
    def exact(self) -> bool:
        """Reports are drawn with integer thresholds and bits."""
        return self.channel.exact

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for every input of its channel."""
        return self.channel.law()

    @property
    def hiding(self) -> Hiding:
        """A message is read alike, whoever sends it."""
        return hiding_of(self.channel)

    # -- client half

    @abstractmethod
    def symbols(self, users: Users, rng: Streams) -> Integers:
        """Find every user's symbol: (n,) int64; -1 for a user that has none."""

    @abstractmethod
    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        """Find every user's symbol as :meth:`symbols` does, what is drawn from another source."""

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report the symbol."""
        reports = report_symbols(self.symbols(users, rng), self.channel, rng)
        return Report(users.ids, {self.sent: reports})

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Count symbols once for the whole block: there may be more than users in a chunk."""
        if not isinstance(self.channel, SymbolOracle):
            return super().answer_folded(users, rng)
        found = [self.answer(c, rng(c)).arrays[self.sent] for c in users.blocks(CHUNK)]
        return self._count(np.concatenate([np.zeros(0, np.uint32), *found]))

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Count the true symbols, then draw the counts of the reports from their joint law."""
        k = self.channel.n_symbols
        symbols = self.true_symbols(users, rng)
        counts = np.bincount(np.where(symbols < 0, k, symbols), minlength=k + 1).astype(np.int64)
        return Summary(len(users), {self.sent: draw_counts(counts, self.channel, rng)})

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Count the messages, or the ones of each symbol."""
        return self._count(report.arrays[self.sent])

    def _count(self, reports: Array) -> Summary:
        return Summary(len(reports), {self.sent: fold_reports(reports, self.channel)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every user sends one message that the channel can give.

        That is a symbol or the erasure; or packed bits, of which a subset has a fixed number.
        """
        name, channel = self.sent, self.channel
        if isinstance(channel, SymbolOracle):
            sent = only_array(report, name)
            Bounds((report.n_users,), "u", 0, channel.layers.erasure).check(name, sent)
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
        """Between nobody and everybody for each message, or for each symbol."""
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
