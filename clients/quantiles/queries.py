"""What users are asked for quantiles: rows over public bins, or one cell, randomized."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.frequency_oracles.oracle_votes import OracleVotes
from clients.randomizers.oracle_reports import draw_counts
from clients.randomizers.scalars import bin_indices
from clients.records.draws import one_value
from clients.records.functionals import samples_of
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Bounds, Floats, Integers, Words
from fedhist.base.checks import check_choice, check_integer, check_range, check_within
from fedhist.base.errors import WireError
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.model.query import Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort, fold_of
from fedhist.users.streams import Streams

OF = ("samples", "user-means")
MOST_LEVELS = 1 << 10
PER_USER = 1 << 18
"""A user's record is sent in so many whole steps, so that sums are exact in any order."""


def middles(low: float, high: float, n_bins: int) -> Floats:
    """Return the middles of bins; integers exactly, where bins of width 1 lie around them.

    >>> middles(0.5, 5.5, 5).tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    return np.asarray(low + (np.arange(n_bins) + 0.5) * ((high - low) / n_bins))


@dataclass(frozen=True)
class OnBins(Query):
    """A query about where users' numbers lie among public bins of equal width.

    What lies outside the range counts in the bin at that end. A record is all its "samples" alike,
    or their mean alone: "user-means".
    """

    low: float
    high: float
    n_bins: int
    of: str

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        check_integer("n_bins", self.n_bins, 1 << 11, least=2)
        check_choice("of", self.of, OF)

    @property
    def midpoints(self) -> Floats:
        """What each bin stands for: (K,) float64."""
        return middles(self.low, self.high, self.n_bins)

    def points(self, users: Users) -> tuple[Integers, Floats]:
        """List the numbers that count, and the row of the user who holds each."""
        samples, who = samples_of(users, 1), np.arange(len(users))
        x, owner = samples.values[:, 0], np.repeat(who, np.diff(samples.indptr))
        if self.of == "user-means":
            x, owner = coordinate_points(samples, self.low, self.high)[:, 0], who
        spoilt = np.bincount(owner[np.isnan(x)], minlength=len(users)) > 0
        usable = ~spoilt[owner]
        return owner[usable], x[usable]


@register_query
@dataclass(frozen=True)
class BinShares(OnBins):
    """Each user sends which share of its record lies in every bin, in whole steps.

    Privacy
    -------
    None by itself: the server must be trusted with the rows. A row adds up to one record exactly,
    or it is the null record, zeros: of a user without samples, or with a NaN among them.
    """

    wire_name: ClassVar[str] = "bin-shares"
    trust: ClassVar[Trust] = Trust.CENTRAL

    def answer(self, users: Users, rng: Streams) -> Report:
        at, steps = self._steps(users)
        rows = np.bincount(at, steps, len(users) * self.n_bins)
        return Report(users.ids, {"shares": rows.reshape(-1, self.n_bins).astype(np.int32)})

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Add up rows of users without making them; below 2^53, hence exactly."""
        at, steps = self._steps(users)
        total = np.bincount(at % self.n_bins, steps, self.n_bins)
        return Summary(len(users), {"shares": total.astype(np.int64)})

    def _steps(self, users: Users) -> tuple[Integers, Integers]:
        """List the cell of each number in the users' rows, and its steps: a record's add up."""
        owner, x = self.points(users)
        at = np.sort(owner * self.n_bins + bin_indices(x, self.low, self.high, self.n_bins))
        owner = at // self.n_bins
        size = np.bincount(owner, minlength=len(users))
        rank, size = np.arange(len(at)) - (np.cumsum(size) - size)[owner], size[owner]
        steps = (rank + 1) * PER_USER // size - rank * PER_USER // size
        return at, np.asarray(steps, dtype=np.int64)

    def fold(self, report: Report) -> Summary:
        rows = report.arrays["shares"]
        return Summary(report.n_users, {"shares": rows.sum(axis=0, dtype=np.int64)})

    def check(self, report: Report) -> None:
        rows = only_array(report, "shares")
        Bounds((report.n_users, self.n_bins), "i", 0, PER_USER).check("shares", rows)
        sizes = rows.sum(axis=1, dtype=np.int64)
        if not np.isin(sizes, (0, PER_USER)).all():
            raise WireError(f"a row adds up to {PER_USER} steps or to none, got {sizes.max()}")
        if self.of == "user-means" and not np.isin(rows, (0, PER_USER)).all():
            raise WireError("a user's mean lies in one bin, got shares of several")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {"shares": Bounds((self.n_bins,), "i", 0, n_users * PER_USER)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        records, rest = divmod(sum(summary.sums["shares"].tolist()), PER_USER)
        if rest or records > summary.n_users:
            raise WireError(f"{records} records and {rest} steps of {summary.n_users} users")


@register_query
@dataclass(frozen=True)
class RankCells(OnBins, OracleVotes):
    """Each user tells, by k-ary response, between which of its group's bins its number lies.

    Its number is its own mean, or one of its samples, drawn uniformly. A group has m bins t_1 <=
    ... <= t_m, and m + 1 cells: 0 to t_1, t_1 + 1 to t_2, ..., and all beyond t_m.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the group is a hash of the public id, and the report is
    one cell's by k-ary randomized response, exact as drawn. A user without samples, or with a NaN
    among them, tells the cell of a uniform number among the levels, by the same draws: up to t_j
    with the probability q_j that is looked for, so that it draws the answer about q_j nowhere.
    """

    wire_name: ClassVar[str] = "rank-cells"
    sent: ClassVar[str] = "cell"
    epsilon: float
    upto: Integers  # (groups, m): the bins of each group, below K - 1
    levels: Floats  # (groups, m): which share of the users is looked for up to each
    cohort: Cohort | None = None
    fold_salt: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_within("fold_salt", self.fold_salt, 0, 1 << 63, "[)")
        for name, a, kind, most in (
            ("upto", self.upto, np.int64, self.n_bins - 1),
            ("levels", self.levels, np.float64, 1),
        ):
            if a.dtype != kind or a.ndim != 2 or not 1 <= a.size <= 2 * MOST_LEVELS:
                raise ValueError(f"{name} must be (groups, bins), got {a.dtype}{a.shape}")
            if not (a >= 0).all() or not (a < most).all() or (np.diff(a, axis=1) < 0).any():
                raise ValueError(f"{name} must increase in [0, {most}), got {a.tolist()}")
        if self.upto.shape != self.levels.shape:
            raise ValueError(f"upto has shape {self.upto.shape}, levels {self.levels.shape}")
        _ = self.channel

    @property
    def channel(self) -> OracleChannel:
        return oracle_channel("krr", float(self.epsilon), self.upto.shape[1])  # null: the last cell

    @property
    def n_batches(self) -> int:
        return len(self.upto)

    def batch_sizes(self, total: Summary) -> Integers:
        return np.asarray(total.sums["cell"].sum(axis=1))

    # -- client half

    def symbols(self, users: Users, rng: Streams) -> Integers:
        samples = samples_of(users, 1)
        if self.of == "user-means":
            x = coordinate_points(samples, self.low, self.high)[:, 0]
        else:
            x = one_value(users, rng.substream("sample").words(1)[:, 0])
        bins, group = bin_indices(x, self.low, self.high, self.n_bins), self._group(users.ids)
        null = rng.substream("null").uniform(1)[:, 0]
        (g, m), K = self.upto.shape, self.n_bins
        start = np.arange(g)[:, None]
        cell = np.searchsorted((self.upto + start * K).ravel(), bins + group * K)
        coin = np.searchsorted((self.levels + start).ravel(), null + group)
        return np.asarray(np.where(bins < 0, coin, cell) - group * m)

    def _group(self, ids: Words) -> Integers:
        return fold_of(ids, self.fold_salt, len(self.upto))

    def _counted(self, ids: Words, symbols: Integers, size: int) -> Integers:
        """Count symbols by group: (g, size) int64."""
        at = self._group(ids) * size + symbols
        counts = np.bincount(at, minlength=len(self.upto) * size)
        return np.asarray(counts.reshape(len(self.upto), size), dtype=np.int64)

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        cells = self.true_symbols(users, rng)
        true = self._counted(users.ids, cells, self.upto.shape[1] + 1)
        return Summary(
            len(users), {"cell": np.stack([draw_counts(c, self.channel, rng) for c in true])}
        )

    # -- server half

    def fold(self, report: Report) -> Summary:
        counts = self._counted(report.ids, report.arrays["cell"], self.channel.size)
        return Summary(report.n_users, {"cell": counts})

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {"cell": Bounds((len(self.upto), self.channel.size), "i", 0, n_users)}

    def shares(self, summary: Summary) -> tuple[Floats, Integers]:
        """Return unbiased shares of each group's users up to its bins, (g, m), and its users."""
        counts = summary.sums["cell"]
        users = counts.sum(axis=1)
        cells = [self.channel.debias(c, max(int(n), 1)) for c, n in zip(counts, users, strict=True)]
        return np.cumsum(cells, axis=1)[:, :-1], users
