"""Quantiles of the users' samples with a trusted server: the exponential mechanism over bins [1]_.

Every user sends how its record lies over public bins; the server draws a bin for each quantile.

.. [1] Smith, "Privacy-preserving statistical estimation with optimal convergence rates", STOC 2011.
.. [2] Cesar & Rogers, "Bounding, concentrating, and truncating", ALT 2021: epsilon^2 / 8-zCDP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from clients.randomizers.scalars import bin_indices
from clients.records.functionals import samples_of
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Array, Bounds, Floats, Integers
from fedhist.base.checks import check_choice, check_integer
from fedhist.base.errors import PopulationError, WireError
from fedhist.model.display import Display
from fedhist.model.protocol import ErrorBound, Estimate, Protocol, Script
from fedhist.model.query import Query, Report, Summary, only_array
from fedhist.model.registry import register_protocol, register_query
from fedhist.model.results import Goal, ResultsRow, within
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, check_budget, zcdp_rho
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

MOST_BINS, STEPS = 1 << 11, 1 << 24
"""A user's record is sent in so many whole steps, so that sums are exact in any order."""

OF = ("samples", "user-means")
ADJACENCIES = tuple(a.value for a in Adjacency if a is not Adjacency.REPLACE_ITEM)


@register_query
@dataclass(frozen=True)
class BinShares(Query):
    """Each user sends which share of its record lies in every bin, in whole steps.

    Parameters
    ----------
    low, high : float
        Public range; what lies outside counts in the bin at that end.
    n_bins : int
        K, of equal width.
    of : {"samples", "user-means"}
        A user's record: all its samples alike, or their mean alone.

    Privacy
    -------
    None by itself: the server must be trusted with the rows. A row adds up to one record exactly,
    or it is the null record, zeros: of a user without samples, or with a NaN among them.
    """

    wire_name: ClassVar[str] = "bin-shares"
    trust: ClassVar[Trust] = Trust.CENTRAL
    low: float
    high: float
    n_bins: int
    of: str
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise ValueError(f"need finite low < high, got [{self.low}, {self.high}]")
        check_integer("n_bins", self.n_bins, MOST_BINS, least=2)
        check_choice("of", self.of, OF)

    @property
    def midpoints(self) -> Floats:
        """What each bin stands for: (K,) float64."""
        at = (np.arange(self.n_bins) + 0.5) / self.n_bins
        return np.asarray(self.low * (1 - at) + self.high * at)

    def points(self, users: Users) -> tuple[Integers, Floats]:
        """List the numbers that count, and the row of the user who holds each."""
        samples, who = samples_of(users, 1), np.arange(len(users))
        x, owner = samples.values[:, 0], np.repeat(who, np.diff(samples.indptr))
        if self.of == "user-means":
            x, owner = coordinate_points(samples, self.low, self.high)[:, 0], who
        spoilt = np.bincount(owner[np.isnan(x)], minlength=len(users)) > 0
        usable = ~spoilt[owner]
        return owner[usable], x[usable]

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the row; uses no randomness."""
        owner, x = self.points(users)
        cell = owner * self.n_bins + bin_indices(x, self.low, self.high, self.n_bins)
        counts = np.bincount(cell, minlength=len(users) * self.n_bins)
        below = counts.reshape(len(users), self.n_bins).cumsum(axis=1)
        # whole steps of the cumulative shares, so that a row adds up to a record without rounding
        upto = below * STEPS // np.maximum(below[:, -1:], 1)
        return Report(users.ids, {"shares": np.diff(upto, axis=1, prepend=0).astype(np.int32)})

    def fold(self, report: Report) -> Summary:
        """Add up the rows: (K,) int64."""
        rows = report.arrays["shares"]
        return Summary(report.n_users, {"shares": rows.sum(axis=0, dtype=np.int64)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a whole record, or none."""
        rows = only_array(report, "shares")
        Bounds((report.n_users, self.n_bins), "i", 0, STEPS).check("shares", rows)
        sizes = rows.sum(axis=1, dtype=np.int64)
        if not np.isin(sizes, (0, STEPS)).all():
            raise WireError(f"a row adds up to {STEPS} steps or to none, got {sizes.max()}")
        if self.of == "user-means" and not np.isin(rows, (0, STEPS)).all():
            raise WireError("a user's mean lies in one bin, got shares of several")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound each bin by everybody's record."""
        return {"shares": Bounds((self.n_bins,), "i", 0, n_users * STEPS)}

    def check_summary(self, summary: Summary) -> None:
        """See that all bins together hold whole records, at most one of each user."""
        super().check_summary(summary)
        records, rest = divmod(sum(summary.sums["shares"].tolist()), STEPS)
        if rest or records > summary.n_users:
            raise WireError(f"{records} records and {rest} steps of {summary.n_users} users")


@register_protocol
@dataclass(frozen=True)
class Quantiles(Protocol):
    """Quantiles of real samples, or of the users' own means, with a trusted server.

    The value has an entry for each level: the middle of a public bin.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    levels : tuple of float
        The levels asked, J of them, increasing in (0, 1): (0.25, 0.5, 0.75) for the quartiles.
    low, high : float
        Public range of the bins; what lies outside counts in the bin at that end.
    n_users : int
        Public planning value, of which the script decides whether to ask at all.
    n_bins : int
        K.
    of : {"samples", "user-means"}
        Quantiles of F(x) = (1/n) sum_u (share of user u's samples that are at most x), in which
        every user weighs the same; or of the users' own means.
    delta : float
        0: the levels share epsilon. Positive: they compose by zCDP where that is better.
    adjacency : {"replace-user", "zero-out-user", "add-remove-user"}
        What is hidden; the number of users too in the last.
    kind : {"em"}
        The exponential mechanism.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. A bin's score is minus the distance, in users, of
    the rank q n from the ranks F(j - 1) to F(j) that the bin holds; n counts the records that are
    not null and is not published. A record more moves F(j) by some h in [0, 1] and q n by q:
    sensitivity max(q, 1 - q) for add-remove-user and zero-out-user. Another record moves F(j) by up
    to 1 either way, at equal n: sensitivity 1. Each level gets max(epsilon / J, sqrt(8 rho / J)),
    rho being the zCDP of (epsilon, delta), since the exponential mechanism has bounded range [2].

    Error
    -----
    The largest rank error of the J quantiles: how far q lies from the ranks that the value holds
    among the users, as a share of them. Without noise at most the share of the users in one bin.
    """

    name: ClassVar[str] = "quantiles"
    paper: ClassVar[str] = "Smith, STOC 2011: the exponential mechanism on ranks, over public bins"
    target: ClassVar[str] = "quantiles"
    display: ClassVar[Display | None] = Display(label="quantile", entry="level")
    starter: ClassVar[str] = """\
# Quartiles with a trusted server: 20,000 users of 20 to 500 samples each, all with the same weight.
[run]
nodes = 2000
seed = 1

[protocol]
name = "quantiles"
epsilon = 1.0
delta = 1e-6
levels = [0.25, 0.5, 0.75]
low = -1.0
high = 1.0

[population]
kind = "gaussian"
n_users = 20000
samples_per_user = [20, 500]
mean = 0.237
seed = 7
"""
    goals: ClassVar[tuple[Goal, ...]] = (Goal(0.01, words="K = 256, quartiles"),)
    max_rounds: ClassVar[int] = 1

    epsilon: float
    levels: tuple[float, ...]
    low: float
    high: float
    n_users: int
    n_bins: int = 256
    of: str = "samples"
    delta: float = 0.0
    adjacency: str = Adjacency.REPLACE_USER.value
    kind: str = "em"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        edges = (0.0, *self.levels, 1.0)
        if not self.levels or not all(a < b for a, b in pairwise(edges)):
            raise ValueError(f"levels must increase inside (0, 1), got {self.levels}")
        check_integer("n_users", self.n_users, 1 << 32)
        check_choice("adjacency", self.adjacency, ADJACENCIES)
        if self.kind != "em":
            raise ValueError(f'kind must be "em", got {self.kind!r}')
        _ = self.query

    @property
    def query(self) -> BinShares:
        """The one question."""
        return BinShares(self.low, self.high, self.n_bins, self.of)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) under the declared adjacency."""
        return Guarantee(self.epsilon, self.delta, Trust.CENTRAL, Adjacency(self.adjacency))

    @property
    def positions(self) -> Array:
        """The levels."""
        return np.array(self.levels)

    @property
    def epsilon_each(self) -> float:
        """Budget of one level: J of them compose to (epsilon, delta), either way."""
        J = len(self.levels)
        rho = zcdp_rho(self.epsilon, self.delta) if self.delta else 0.0
        return max(self.epsilon / J, math.sqrt(8 * rho / J))

    @property
    def sensitivities(self) -> Floats:
        """How much one user can change a score of each level, in users: (J,)."""
        q, replaced = self.positions, self.adjacency == Adjacency.REPLACE_USER.value
        return np.ones(len(q)) if replaced else np.maximum(q, 1 - q)

    @property
    def least_users(self) -> int:
        """Fewest users that are asked, by the rule of thumb (8 / epsilon_each) ln(100 K)."""
        return math.ceil(8 / max(self.epsilon_each, 1e-300) * math.log(100 * self.n_bins))

    def scores(self, shares: Integers) -> Floats:
        """Minus the distance of every level's rank from each bin's ranks, in users: (J, K)."""
        upto = np.cumsum(shares) / STEPS
        rank = self.positions[:, None] * upto[-1]
        below = np.append(0.0, upto[:-1])
        return np.asarray(-np.maximum(np.maximum(below - rank, rank - upto), 0.0))

    def rounds(self, server: Curator) -> Script:
        """Ask once, draw a bin for each level, put them in order."""
        if self.n_users < self.least_users:
            what = f"{len(self.levels)} levels over {self.n_bins} bins"
            return Estimate.refused(
                f"{self.n_users} users are too few for {what}: {self.least_users} at least"
            )
        summary = yield self.query
        bins = server.exponential_rows(
            self.scores(summary.sums["shares"]) / self.sensitivities[:, None],
            sensitivity=1.0,
            epsilon_each=self.epsilon_each,
            changed=len(self.levels),
            label="quantiles",
        )
        # in order no rank error is larger, and quantiles must not decrease
        return Estimate.ok(self.query.midpoints[np.sort(bins)])

    def ranked(self, users: Users) -> tuple[Floats, Floats]:
        """Sort the users' numbers: with the share of the users at or below each. NOT PRIVATE."""
        owner, x = self.query.points(users)
        if not len(x):
            raise PopulationError("no user has usable samples; there are no quantiles")
        order = np.argsort(x, kind="stable")
        upto = np.cumsum(1.0 / np.bincount(owner)[owner[order]])
        return x[order], upto / upto[-1]

    @property
    def estimates(self) -> Truth:
        """Of samples, each user weighing the same; or of the users' own means."""
        return Truth.AVERAGE_OF_USERS if self.of == OF[0] else Truth.OWN_MEANS

    def truth(self, users: Users) -> Array:
        """Return the quantiles themselves, (J,), unclipped and unbinned. NOT PRIVATE."""
        x, upto = self.ranked(users)
        at = np.searchsorted(upto, self.positions - 1e-12)
        return np.asarray(x[np.minimum(at, len(x) - 1)])

    def rank_errors(self, value: Array, users: Users) -> Floats:
        """Measure each level's distance from the ranks of each value, (J, values). NOT PRIVATE."""
        x, upto = self.ranked(users)
        cdf, q = np.append(0.0, upto), self.positions[:, None]
        first, last = (cdf[np.searchsorted(x, value, side)] for side in ("left", "right"))
        return np.asarray(np.maximum(np.maximum(first - q, q - last), 0.0))

    def loss(self, value: Array, truth: Array) -> float:
        """Return the largest distance as a share of the range; ranks take :meth:`loss_of`."""
        return float(np.abs(value - truth).max() / (self.high - self.low))

    def loss_of(self, estimate: Estimate, users: Users, truth: Array | None = None) -> float:
        """Return the largest rank error of the levels. NOT PRIVATE."""
        if estimate.value is None:
            raise ValueError(f"{self.name}: {estimate.status}: {estimate.reason}")
        return float(self.rank_errors(estimate.value, users).diagonal().max())

    def resolution(self, users: Users) -> float:
        """Return the largest share of the users in one bin, and a step. NOT PRIVATE."""
        total = self.query.draw_summary(users, np.random.default_rng(0)).sums["shares"]
        return float(total.max() / total.sum()) + 1 / STEPS

    def error(self, users: Users) -> ErrorBound:
        """Compute the expected largest rank error from the mechanism's law. NOT PRIVATE.

        Exact for one level; of several an upper bound, since the quantiles are put in order.
        """
        x, upto = self.ranked(users)
        edges = np.linspace(self.low, self.high, self.n_bins + 1)
        ends = np.append(np.append(0.0, upto)[np.searchsorted(x, edges[1:-1])], 1.0)
        q, starts = self.positions[:, None], np.append(0.0, ends[:-1])
        away = np.maximum(np.maximum(starts - q, q - ends), 0.0)
        if self.guarantee.private:
            n = len(users) - self.diagnostics(users)["unusable records"]
            weight = np.exp(-away * (n * self.epsilon_each / 2 / self.sensitivities[:, None]))
        else:
            weight = np.equal.outer(away.argmin(axis=1), np.arange(self.n_bins)).astype(float)
        errors = self.rank_errors(self.query.midpoints, users)
        levels = np.unique(errors)
        within_all = np.ones(len(levels))
        for row, law in zip(errors, weight / weight.sum(axis=1, keepdims=True), strict=True):
            order = np.argsort(row, kind="stable")
            upto = np.append(0.0, np.cumsum(law[order]))
            within_all *= upto[np.searchsorted(row[order], levels, "right")]
        expected = float(levels[0] + np.sum(np.diff(levels) * (1 - within_all[:-1])))
        return ErrorBound("rank error", expected, len(self.levels) == 1, "the mechanism's law")

    def diagnostics(self, users: Users) -> Mapping[str, float]:
        """Count the users whose record the null record replaces. NOT PRIVATE."""
        return {"unusable records": float(len(users) - len(np.unique(self.query.points(users)[0])))}

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Users, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Take n_users from the population, where the configuration does not name it."""
        hidden = parameters.get("adjacency") == Adjacency.ADD_REMOVE_USER.value
        seen = ["n_users is the number of the users"] * (hidden and "n_users" not in parameters)
        return {"n_users": len(users), **parameters}, seen

    @classmethod
    def results(cls) -> Sequence[ResultsRow]:
        """Hold the prediction against runs."""
        some = {"kind": "gaussian", "n_users": 2000, "samples_per_user": 20, "mean": 0.237}
        base = {"epsilon": 1.0, "low": -1.0, "high": 1.0, "levels": (0.25, 0.5, 0.75)}
        one, few = {**base, "levels": (0.5,)}, {**some, "n_users": 245}
        means = {**base, "delta": 1e-6, "of": "user-means", "adjacency": "zero-out-user"}
        return (
            ResultsRow("n=2000 eps=1 median", one, some, 400, within(0.1)),
            ResultsRow("n=2000 eps=1 quartiles of means", means, some, 400, (0.85, 1.1)),
            ResultsRow("EDGE n=245 eps=1 quartiles", base, few, 400, (0.85, 1.1)),
        )

    @classmethod
    def example(cls) -> Self:
        """Build a small instance: the quartiles over 16 bins."""
        return cls(2.0, (0.25, 0.5, 0.75), 0.0, 1.0, n_users=120, n_bins=16)

    @classmethod
    def example_users(cls) -> Users:
        """Make users with up to four samples; one has none, one a NaN, one an infinite sample."""
        rng = np.random.default_rng(7)
        some = {f"u{i}": rng.beta(2, 3, i % 4 + 1) for i in range(117)}
        return Users.from_records(some | {"a": [], "b": [0.5, np.nan], "c": [np.inf]})

    @classmethod
    def neighbours(cls) -> tuple[Users, Users]:
        """Two populations at which one user, who goes from end to end, shows most."""

        def users(first: int) -> Users:
            at = np.repeat([0, 1, 5, 6, 10, 11, 15], [30, 1, 29, 1, 29, 1, 29])
            at[0] = first
            return Users.from_samples(np.arange(120), np.arange(121), (at + 0.5) / 16)

        return users(0), users(15)
