"""Batches of reports that hide less than is claimed, and the correct ones beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from bank_frame import BankProtocol, held, item_users, protocol, query
from numpy.typing import NDArray

from fedhist import (
    Adjacency,
    Bounds,
    Estimate,
    Guarantee,
    Keys,
    Report,
    Streams,
    Summary,
    Trust,
    Users,
    WireError,
)
from fedhist.model.finite import FiniteChannel
from fedhist.model.protocol import Script
from fedhist.model.query import LocalQuery, Query
from fedhist.model.shuffled import Shuffled
from fedhist.privacy.shuffling import Hiding, shuffled_epsilon
from server.session.curator import Curator

SYMBOLS, USERS, DELTA = 8, 400, 1e-3
ITEMS = Keys.range(SYMBOLS)
TOTAL = 1 << 40
"""Of the integer weights: e^epsilon is rounded down to one of 2^-30."""


@dataclass(frozen=True)
class SymbolReport(LocalQuery):
    """A user's item through a matrix of integers; the empty record counts as the first item."""

    epsilon: float = 1.0

    @property
    def weights(self) -> NDArray[np.int64]:
        """k-ary randomized response: (k, k), every row adding up to the same."""
        each = math.ceil(TOTAL / (math.exp(self.epsilon) + SYMBOLS - 1))
        out = np.full((SYMBOLS, SYMBOLS), each)
        np.fill_diagonal(out, TOTAL - (SYMBOLS - 1) * each)
        return out

    @property
    def hiding(self) -> Hiding | None:
        """Bound (C) holds for it."""
        return Hiding(mixes=True)

    @property
    def exact(self) -> bool:
        """Whole numbers against whole numbers."""
        return True

    def finite_channel(self) -> FiniteChannel | None:
        """Return the matrix."""
        weights = self.weights
        return FiniteChannel.of(weights, [f"item {x}" for x in range(len(weights))])

    def answer(self, users: Users, rng: Streams) -> Report:
        """Draw by inversion."""
        weights = self.weights
        item = np.argmax(held(users, ITEMS), axis=1) % len(weights)
        total = int(weights[0].sum())
        drawn = (rng.words(1)[:, 0] % np.uint64(total)).astype(np.int64)
        at = np.cumsum(weights, axis=1)[item]
        return Report(users.ids, {"symbol": (drawn[:, None] >= at).sum(axis=1)})

    def fold(self, report: Report) -> Summary:
        """Count."""
        counts = np.bincount(report.arrays["symbol"], minlength=SYMBOLS)
        return Summary(report.n_users, {"counts": counts})

    def check(self, report: Report) -> None:
        """One array."""
        if report.arrays.keys() != {"symbol"}:
            raise WireError(f"'symbol' is expected, got {sorted(report.arrays)}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """At most everybody."""
        return {"counts": Bounds((SYMBOLS,), "i", 0, n_users)}


@query("bank-symbols")
class Symbols(SymbolReport):
    """One batch of all users."""


FOLDS = 5


@query("bank-folded-symbols")
class FoldedSymbols(SymbolReport):
    """Counts by fold: a user hides among those of its own."""

    @property
    def n_batches(self) -> int:
        """One a fold."""
        return FOLDS

    def batch_sizes(self, total: Summary) -> NDArray[np.int64]:
        """Count each."""
        return np.asarray(total.sums["counts"].reshape(FOLDS, SYMBOLS).sum(axis=1))

    def fold(self, report: Report) -> Summary:
        """Count in the fold that the id says."""
        at = (report.ids % np.uint64(FOLDS)).astype(np.int64) * SYMBOLS
        counts = np.bincount(at + report.arrays["symbol"], minlength=FOLDS * SYMBOLS)
        return Summary(report.n_users, {"counts": counts})

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """At most everybody."""
        return {"counts": Bounds((FOLDS * SYMBOLS,), "i", 0, n_users)}


@query("bank-total-symbols")
class TotalSymbols(FoldedSymbols):
    """The same folds, taken for one batch."""

    @property
    def n_batches(self) -> int:
        """Forget them."""
        return 1

    def batch_sizes(self, total: Summary) -> NDArray[np.int64]:
        """Count everybody."""
        return np.array([total.n_users])


@query("bank-hadamard-symbols")
class HadamardSymbols(SymbolReport):
    """Hadamard response, K = 8, with the bound of k-ary randomized response."""

    @property
    def weights(self) -> NDArray[np.int64]:
        """Give half of the outcomes e^epsilon times the probability of the others."""
        x = np.arange(SYMBOLS)
        common = np.array([[(a & b).bit_count() for b in x.tolist()] for a in x.tolist()])
        high = math.floor((1 << 30) * math.exp(self.epsilon))
        return np.where(np.roll(common, -1, axis=0) % 2 == 0, high, 1 << 30)[: SYMBOLS - 1]


@dataclass(frozen=True)
class ShuffleBank(BankProtocol):
    """Count shuffled symbols; a subclass says in how many batches."""

    trust: ClassVar[Trust] = Trust.SHUFFLE
    adjacency: ClassVar[Adjacency] = Adjacency.REPLACE_USER
    delta: ClassVar[float] = DELTA
    report: ClassVar[type[SymbolReport]] = Symbols
    least: ClassVar[int] = USERS
    batch: ClassVar[type[Shuffled]] = Shuffled
    epsilon: float = 3.0

    @property
    def guarantee(self) -> Guarantee:
        """What so many users of a batch make of it."""
        hiding = self.report(self.epsilon).hiding or Hiding()
        epsilon = shuffled_epsilon(self.least, self.epsilon, DELTA, hiding)
        return Guarantee(epsilon, DELTA, Trust.SHUFFLE, self.adjacency)

    def asks(self, query: Query, round_index: int) -> Query:
        """Shuffle."""
        return self.batch(query, DELTA, self.least)

    def rounds(self, server: Curator) -> Script:
        """Ask."""
        summary = yield self.report(self.epsilon)
        return Estimate.ok(summary.sums["counts"])

    @classmethod
    def example_users(cls) -> Users:
        """As many as are needed, one item each."""
        return item_users([{str(i % SYMBOLS): 1} for i in range(USERS)], ITEMS)


@protocol("bank-ok-batch")
class OkBatch(ShuffleBank):
    """Correct: one batch."""


@protocol("bank-ok-folds")
class OkFolds(ShuffleBank):
    """Correct: the size of a fold."""

    report: ClassVar[type[SymbolReport]] = FoldedSymbols
    least: ClassVar[int] = USERS // FOLDS


@protocol("bank-local-epsilon-by-the-total")
class LocalEpsilonByTheTotal(ShuffleBank):
    """Amplified by all users, of whom a fifth are read together."""

    report: ClassVar[type[SymbolReport]] = TotalSymbols


@protocol("bank-bound-of-others")
class BoundOfOthers(ShuffleBank):
    """Bound (C) for Hadamard response."""

    report: ClassVar[type[SymbolReport]] = HadamardSymbols


@query("bank-hasty-batch")
class HastyBatch(Shuffled):
    """Passes whatever has come."""

    def lift(self, total: Summary, nodes: int) -> Summary:
        """Wait for nobody."""
        return Summary(total.n_users, total.sums)


@protocol("bank-small-batches-pass")
class SmallBatchesPass(ShuffleBank):
    """A batch of a few reports is handed on."""

    batch: ClassVar[type[Shuffled]] = HastyBatch


@query("bank-signed-batch")
class SignedBatch(Shuffled):
    """Tells who has reported what."""

    def fold(self, report: Report) -> Summary:
        """Keep the rows."""
        rows = {"symbol": report.arrays["symbol"]}
        return Summary(report.n_users, self.query.fold(report).sums, rows=rows, ids=report.ids)

    def answer_folded(self, users: Users, rng: object) -> Summary:  # type: ignore[override]
        """Keep them on the way."""
        return self.fold(self.answer(users, rng(users)))  # type: ignore[operator]

    def lift(self, total: Summary, nodes: int) -> Summary:
        """Pass on all of it."""
        super().lift(total, nodes)
        return total

    def check_summary(self, summary: Summary) -> None:
        """Accept anything."""


@protocol("bank-signed-batch")
class SignedBatches(ShuffleBank):
    """Users' ids stand beside what they reported."""

    batch: ClassVar[type[Shuffled]] = SignedBatch
