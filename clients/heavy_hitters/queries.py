"""What users are asked for popular items: some bits of one item's code, and whether they hold one.

A code is a row of packed bits, see :mod:`clients.heavy_hitters.codes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np

from clients.bounding.sampling import out_of_domain
from clients.frequency_oracles.oracle_votes import OracleVotes
from clients.heavy_hitters.codes import MOST_CODE_BITS, Bytes, Code, encode
from clients.localize.queries import FoldReports
from clients.randomizers.scalars import randomize
from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_choice, check_integer, check_within
from fedhist.channels.oracles import OracleChannel, SymbolOracle, oracle_channel
from fedhist.channels.scalar import ScalarChannel, scalar_channel
from fedhist.model.query import Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust, check_budget
from fedhist.users.batch import Users
from fedhist.users.cohort import MAX_FOLDS, Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams, Streams


def check_codes(name: str, codes: Bytes, n_bits: int) -> None:
    """Raise ValueError unless these are codes of so many bits, packed, in increasing order."""
    if codes.dtype != np.uint8 or codes.shape[1:] != (-(-n_bits // 8),) or not len(codes):
        raise ValueError(f"{name} must be (k, {-(-n_bits // 8)}) uint8, got {codes.dtype}")
    if np.unpackbits(codes, axis=1)[:, n_bits:].any():
        raise ValueError(f"{name} must have {n_bits} bits, and zeros behind them")
    rows = list(map(bytes, codes))
    if rows != sorted(set(rows)):
        raise ValueError(f"{name} must increase")


def positions(codes: Bytes, wanted: Bytes) -> Integers:
    """Find each code among others in increasing order: (n,) int64, -1 where it is none."""
    if not codes.shape[1]:
        return np.zeros(len(codes), dtype=np.int64)
    mine, others = (np.ascontiguousarray(a).view(f"S{a.shape[1]}")[:, 0] for a in (codes, wanted))
    at = np.minimum(np.searchsorted(others, mine), len(others) - 1)
    return np.asarray(np.where(others[at] == mine, at, -1), dtype=np.int64)


def drawn_items(users: Users, rng: Streams) -> Integers:
    """Draw one of each user's D distinct items, uniformly up to D / 2^32: (n,) int64, -1: none."""
    items, sizes = users.counts, users.n_items()
    high = rng.substream("item").words(1)[:, 0] >> np.uint64(32)
    rank = (high * sizes.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
    out = np.full(len(users), -1, dtype=np.int64)
    some = sizes > 0
    out[some] = items.item[(items.indptr[:-1] + rank)[some]]
    return out


@register_query
@dataclass(frozen=True)
class CodePieces(OracleVotes):
    """Each user reports the next bits of one item's code, if that begins with a prefix asked about.

    The symbol is (place of the prefix) 2^bits + the bits. Prefixes, packed and in increasing order,
    that are whole codes, and no bits, ask which of some items it is. The oracle has ``size``
    symbols, so that the law of a report need not depend on what was found before; nobody reports
    the public items ``exclude``.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the report is one symbol's, or the null symbol's, by the
    oracle, and it has the same odds whatever the prefixes are. A user without items, or whose
    drawn item has none of the prefixes, sends the null symbol by the same draws.
    """

    wire_name: ClassVar[str] = "code-pieces"
    sent: ClassVar[str] = "piece"
    prefixes: Bytes
    first: int
    bits: int
    code: Code
    epsilon: float
    size: int
    cohort: Cohort | None = None
    exclude: Keys | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_choice("code", self.code, get_args(Code))
        check_integer("first", self.first, MOST_CODE_BITS, least=0)
        check_integer("bits", self.bits, 22, least=0)
        check_codes("prefixes", self.prefixes, self.first)
        check_integer("size", self.size, 1 << 22, least=len(self.prefixes) << self.bits)
        _ = self.channel

    @property
    def channel(self) -> OracleChannel:
        return oracle_channel("auto", float(self.epsilon), self.size, max_bits=64)

    def symbols(self, users: Users, rng: Streams) -> Integers:
        """Find the piece of every user's drawn item; items are encoded once."""
        own = out_of_domain(users, self.exclude)
        items, at = np.unique(drawn_items(own, rng), return_inverse=True)
        some = items >= 0
        names = users.vocabulary.take(items[some])
        whole = encode(names, self.code, self.first + self.bits)
        bits = np.unpackbits(whole, axis=1)[:, : self.first + self.bits]
        place = positions(np.packbits(bits[:, : self.first], axis=1), self.prefixes)
        tail = bits[:, self.first :].astype(np.int64) @ (1 << np.arange(self.bits)[::-1])
        out = np.full(len(items), -1, dtype=np.int64)
        out[some] = np.where(place < 0, -1, (place << self.bits) + tail)
        return np.asarray(out[at])

    def draw_reports(self, users: Users, rng: np.random.Generator) -> Report | None:
        """Draw the reports where they are fewer than the counts; the law is the same."""
        if not isinstance(self.channel, SymbolOracle) or len(users) > self.channel.size:
            return None
        key = int(rng.integers(1 << 62))
        return self.answer(users, SeededStreams(users.ids, key, "aggregate"))

    def counts(self, summary: Summary) -> Floats:
        """Count the reports in the set of every symbol that was asked about."""
        sets = self.channel.set_counts(summary.sums[self.sent])
        return sets[: len(self.prefixes) << self.bits]


@register_query
@dataclass(frozen=True)
class CodeCounts(CodePieces):
    """The same pieces as they are, epsilon being inf, for sums to which nodes add their noise.

    Another record moves one user from an entry to another one, by 2 in the l1 norm: users without a
    piece have an entry, too.
    """

    wire_name: ClassVar[str] = "code-counts"
    trust: ClassVar[Trust] = Trust.CENTRAL

    def __post_init__(self) -> None:
        super().__post_init__()
        if math.isfinite(self.epsilon):
            raise ValueError(f"epsilon is inf: exact sums have none, got {self.epsilon}")

    def answer(self, users: Users, rng: Streams) -> Report:
        own = self.symbols(users, rng)
        return Report(users.ids, {self.sent: np.where(own < 0, self.size, own).astype(np.uint32)})

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        return 2.0 if norm == 1 else super().integer_sensitivity(norm, adjacency)


@register_query
@dataclass(frozen=True)
class HoldsCode(FoldReports):
    """Each user tells in one randomized bit whether it holds the item of its fold.

    Item j of the ``codes``, packed and in increasing order, is that of fold j.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the fold is a hash of the public id, and the report is
    one bit by randomized response. A user without items says no.
    """

    wire_name: ClassVar[str] = "holds-code"
    spare: ClassVar[tuple[str, ...]] = ("round",)  # a bit is an end of the range
    codes: Bytes
    n_bits: int
    code: Code
    epsilon: float
    cohort: Cohort | None = None
    fold_salt: int = 0

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_choice("code", self.code, get_args(Code))
        check_integer("n_bits", self.n_bits, MOST_CODE_BITS)
        check_codes("codes", self.codes, self.n_bits)
        check_integer("items", len(self.codes), MAX_FOLDS)
        check_within("fold_salt", self.fold_salt, 0, 1 << 63, "[)")

    @property
    def channel(self) -> ScalarChannel:
        return scalar_channel("onebit", float(self.epsilon))

    @property
    def n_folds(self) -> int:
        return len(self.codes)

    def _says(self, users: Users) -> Floats:
        """1 for who holds its fold's item, -1 for the others: (n,) float64."""
        items = users.counts
        names, at = np.unique(items.item, return_inverse=True)
        codes = encode(users.vocabulary.take(names.astype(np.int64)), self.code, self.n_bits)
        owner = np.repeat(np.arange(len(users)), users.n_items())
        mine = positions(codes, self.codes)[at] == self._fold(users.ids)[owner]
        out = np.full(len(users), -1.0)
        out[owner[mine]] = 1.0
        return out

    def answer(self, users: Users, rng: Streams) -> Report:
        return Report(users.ids, {"reports": randomize(self._says(users), self.channel, rng)})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        return self.draw_sums(self._says(users), self._fold(users.ids), rng)

    def shares(self, summary: Summary) -> tuple[Floats, Floats]:
        """Return the unbiased share of holders of each item, and its standard error: (k,) each."""
        n, tau = summary.sums["users"], self.channel.gain
        yes = (n + summary.sums["reports"]) / 2
        share = (yes / np.maximum(n, 1) - (1 - tau) / 2) / tau
        told = (yes + 1) / (n + 2)  # the error is never 0
        return share, np.sqrt(told * (1 - told) / np.maximum(n, 1)) / tau


def packed(codes: list[str], n_bits: int) -> Bytes:
    """Pack codes that are written in bits: (k, n_bits / 8) uint8."""
    rows = np.array([list(map(int, bits)) for bits in codes], dtype=np.uint8)
    return np.packbits(rows.reshape(len(codes), n_bits), axis=1)
