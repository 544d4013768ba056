"""Three small protocols that use the interface hard; loaded as a plugin, as a user's own would be.

They are not estimators to be used: the tests need a private choice followed by a release over
string keys, a script that needs every user's row, and a script of ten rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from fedhist import (
    Adjacency,
    Array,
    Bounds,
    Cohort,
    Curator,
    Estimate,
    Guarantee,
    Keyed,
    Keys,
    Prediction,
    Protocol,
    Query,
    Report,
    Script,
    Streams,
    Summary,
    Trust,
    Users,
    WireError,
    check_budget,
    register_protocol,
    register_query,
    zcdp_rho,
)

# -- (a) a private choice, then a release over string keys -----------------------------------------


@register_query
@dataclass(frozen=True)
class UsersWithin(Query):
    """How many users hold at most so many items, for each bound of a public grid."""

    wire_name: ClassVar[str] = "throwaway-users-within"
    trust: ClassVar[Trust] = Trust.CENTRAL
    grid: tuple[int, ...]

    def answer(self, users: Users, rng: Streams) -> Report:
        """Say for each bound whether the user's total stays within it."""
        c = users.counts
        total = np.concatenate(([0], np.cumsum(c.count.astype(np.int64))))
        mine = total[c.indptr[1:]] - total[c.indptr[:-1]]
        return Report(users.ids, {"within": mine[:, None] <= np.array(self.grid)})

    def fold(self, report: Report) -> Summary:
        """Count."""
        within = report.arrays["within"].sum(axis=0, dtype=np.int64)
        return Summary(report.n_users, {"within": within})

    def check(self, report: Report) -> None:
        """One bit per bound."""
        if report.arrays.keys() != {"within"} or report.ragged:
            raise WireError(f"'within' is expected, got {sorted(report.arrays)}")
        Bounds((report.n_users, len(self.grid)), "b").check("within", report.arrays["within"])

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Nobody to everybody."""
        return {"within": Bounds((len(self.grid),), "i", 0, n_users)}


@register_query
@dataclass(frozen=True)
class FirstItems(Query):
    """Counts over an unbounded domain of strings; each user sends its first ``most`` items.

    Strings travel in unfolded reports as bytes: every item is a marker that holds its count,
    followed by its UTF-8 bytes (whose count is zero).
    """

    wire_name: ClassVar[str] = "throwaway-first-items"
    trust: ClassVar[Trust] = Trust.CENTRAL
    most: int

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send items in byte order until ``most`` are sent."""
        c = users.counts
        count = c.count.astype(np.int64)
        before = np.concatenate(([0], np.cumsum(count)))
        start = np.repeat(before[c.indptr[:-1]], np.diff(c.indptr))
        kept = np.clip(self.most - (before[:-1] - start), 0, count)
        indptr, byte, amount = [0], [], []
        for u in range(len(users)):
            for k in range(c.indptr[u], c.indptr[u + 1]):
                if kept[k]:
                    raw = c.vocabulary[int(c.item[k])].encode()
                    byte += [0, *raw]
                    amount += [int(kept[k]), *([0] * len(raw))]
            indptr.append(len(byte))
        ragged = {"byte": np.array(byte, np.uint8), "count": np.array(amount, np.int64)}
        return Report(users.ids, ragged=ragged, indptr=np.array(indptr))

    def fold(self, report: Report) -> Summary:
        """Add up by string."""
        byte, count = report.ragged["byte"], report.ragged["count"]
        marks = np.flatnonzero(count)
        total: dict[str, int] = {}
        for a, b in pairwise([*marks, len(byte)]):
            key = byte[a + 1 : b].tobytes().decode()
            total[key] = total.get(key, 0) + int(count[a])
        keys = Keys.of(sorted(total, key=str.encode))
        values = np.array([total[k] for k in keys], dtype=np.int64)
        return Summary(report.n_users, keyed={"counts": Keyed(keys, values)})

    def check(self, report: Report) -> None:
        """Every row: markers with counts that sum to at most ``most``, and UTF-8 between them."""
        if report.ragged.keys() != {"byte", "count"} or report.indptr is None or report.arrays:
            raise WireError(f"'byte' and 'count' are expected, got {sorted(report.ragged)}")
        byte, count = report.ragged["byte"], report.ragged["count"]
        Bounds((None,), "u").check("byte", byte)
        Bounds((None,), "i", 0, self.most).check("count", count)
        if byte.dtype != np.uint8 or count.dtype != np.int64:
            raise WireError(f"wrong types: {byte.dtype}, {count.dtype}")
        starts = report.indptr[:-1][np.diff(report.indptr) > 0]
        if not count[starts].all():
            raise WireError("a row does not begin with a marker")
        for u in range(report.n_users):
            row = slice(report.indptr[u], report.indptr[u + 1])
            if count[row].sum() > self.most:
                raise WireError(f"a user sends {count[row].sum()} items, more than {self.most}")
        marks = np.flatnonzero(count)
        for a, b in pairwise([*marks, len(byte)]):
            try:
                byte[a + 1 : b].tobytes().decode()
            except UnicodeDecodeError as e:
                raise WireError(f"a key is not UTF-8: {e}") from None

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Each key at least once, at most ``most`` times per user."""
        return {"counts": Bounds((None,), "i", 1, n_users * self.most, part="keyed")}


@register_protocol
@dataclass(frozen=True)
class ChosenKeys(Protocol):
    """Item counts over all strings, with a contribution bound chosen in private."""

    name: ClassVar[str] = "throwaway-chosen-keys"
    paper: ClassVar[str] = "a test of the interface"
    target: ClassVar[str] = "histogram"
    epsilon: float
    delta: float
    grid: tuple[int, ...] = (1, 2, 4, 8, 16)
    share: float = 0.25

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if not 0 < self.share < 1:
            raise ValueError(f"share must lie in (0, 1), got {self.share}")

    @property
    def max_rounds(self) -> int:
        """Choose, then release."""
        return 2

    @property
    def guarantee(self) -> Guarantee:
        """Basic composition of the choice and the release."""
        return Guarantee(self.epsilon, self.delta, Trust.CENTRAL, Adjacency.ZERO_OUT_USER)

    def rounds(self, server: Curator) -> Script:
        """Choose the smallest bound that keeps everybody whole; release keys."""
        within = yield UsersWithin(self.grid)
        score = -np.abs(within.sums["within"] - within.n_users)
        chosen = server.exponential(score, sensitivity=1, epsilon=self.epsilon * self.share)
        most = self.grid[chosen]
        counts = yield FirstItems(most)
        released = server.threshold(
            counts.keyed["counts"],
            contribution=most,
            l1_sensitivity=most,
            epsilon=self.epsilon * (1 - self.share) if math.isfinite(self.epsilon) else math.inf,
            delta=self.delta,
        )
        return Estimate.ok(released.values, keys=released.keys, public={"most": float(most)})

    def error(self, users: Users) -> Prediction:
        """Rough: noise on every key."""
        return Prediction("total", 2 * self.grid[-1] / self.epsilon, "bound", "a guess")

    def truth(self, users: Users) -> Array:
        """Totals in byte order of the items that occur."""
        c = users.counts
        totals = np.bincount(c.item, c.count, minlength=len(c.vocabulary))[c.vocabulary.byte_order]
        return np.asarray(totals[totals > 0])

    def loss(self, value: Array, truth: Array) -> float:
        """Difference of the totals over all keys."""
        return float(abs(value.sum() - truth.sum()))

    @classmethod
    def example(cls) -> Self:
        """Enough budget to see every frequent key."""
        return cls(epsilon=4.0, delta=1e-6)

    @classmethod
    def example_users(cls) -> Users:
        """Three hundred users, strings in several scripts, the empty string, one rare key."""
        common = ["", "مرحبا", "héllo", "日本語", "🙂", "plain"]
        rows = {
            f"u{u}": {common[(u + k) % 6]: 1 + (u + k) % 2 for k in range(1 + u % 3)}
            for u in range(300)
        }
        rows["u7"] = {"only mine": 1}
        rows["u8"] = {}
        return Users.from_records(rows)


# -- (b) every user's row; may refuse, may fail ----------------------------------------------------


@register_query
@dataclass(frozen=True)
class OwnMeans(Query):
    """Every user's own mean, row by row."""

    wire_name: ClassVar[str] = "throwaway-own-means"
    trust: ClassVar[Trust] = Trust.CENTRAL
    low: float
    high: float
    cohort: Cohort | None = None

    def answer(self, users: Users, rng: Streams) -> Report:
        """Mean of the clipped samples; the midpoint for a user without usable ones."""
        s = users.reals
        x = np.clip(s.values[:, 0], self.low, self.high)
        means = [x[a:b].mean() if b > a else np.nan for a, b in pairwise(s.indptr)]
        own = np.where(np.isnan(means), (self.low + self.high) / 2, means)
        return Report(users.ids, {"mean": own})

    def fold(self, report: Report) -> Summary:
        """Keep the rows."""
        return Summary(report.n_users, rows={"mean": report.arrays["mean"]}, ids=report.ids)

    def check(self, report: Report) -> None:
        """One number in the range per user."""
        if report.arrays.keys() != {"mean"} or report.ragged:
            raise WireError(f"'mean' is expected, got {sorted(report.arrays)}")
        Bounds((report.n_users,), "f", self.low, self.high).check("mean", report.arrays["mean"])

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """All in the range."""
        return {"mean": Bounds((n_users,), "f", self.low, self.high, part="rows")}


@register_protocol
@dataclass(frozen=True)
class PrivateMedian(Protocol):
    """Median of the users' own means on a grid; fails where few users lie near it."""

    name: ClassVar[str] = "throwaway-median"
    paper: ClassVar[str] = "a test of the interface"
    target: ClassVar[str] = "median"
    epsilon: float
    n_users: int
    cells: int = 20
    low: float = -1.0
    high: float = 1.0
    least_share: float = 0.2

    def __post_init__(self) -> None:
        check_budget(self.epsilon)

    @property
    def max_rounds(self) -> int:
        """One."""
        return 1

    @property
    def guarantee(self) -> Guarantee:
        """Half for the choice, half for the test."""
        return Guarantee(self.epsilon, 0.0, Trust.CENTRAL, Adjacency.REPLACE_USER)

    @property
    def least_users(self) -> int:
        """Public: below this the choice is a guess."""
        return math.ceil(16 / self.epsilon)

    @property
    def edges(self) -> Array:
        """The grid."""
        return np.linspace(self.low, self.high, self.cells + 1)

    def rounds(self, server: Curator) -> Script:
        """Choose a cell by the exponential mechanism, then test how many users are near."""
        if self.n_users < self.least_users:
            return Estimate.refused(f"{self.n_users} users; at least {self.least_users} are needed")
        got = yield OwnMeans(self.low, self.high)
        x, half = got.rows["mean"], self.epsilon / 2
        below = np.array([np.sum(x < e) for e in self.edges])
        score = -np.maximum(below[:-1] - got.n_users / 2, got.n_users / 2 - below[1:]).clip(min=0)
        cell = server.exponential(score, sensitivity=1, epsilon=half)
        middle = float(self.edges[cell] + self.edges[cell + 1]) / 2
        near = np.abs(x - middle) <= 2 * (self.high - self.low) / self.cells
        found = server.discrete_laplace(near.sum(), l1_sensitivity=1, epsilon=half)
        if found < self.least_share * got.n_users:
            return Estimate.failed("too few users lie near the median", public={"near": int(found)})
        return Estimate.ok([middle], public={"near": float(found)})

    def error(self, users: Users) -> Prediction:
        """Half a cell."""
        return Prediction("absolute", (self.high - self.low) / self.cells, "bound", "a guess")

    def truth(self, users: Users) -> Array:
        """Midpoint of the cell that holds the median of the users' means."""
        s = users.reals
        x = [s.values[a:b].mean() for a, b in pairwise(s.indptr)]
        cell = int(np.searchsorted(self.edges, np.median(x), side="right")) - 1
        return np.array([(self.edges[cell] + self.edges[cell + 1]) / 2])

    def loss(self, value: Array, truth: Array) -> float:
        """Distance."""
        return float(np.abs(value - truth)[0])

    @classmethod
    def example(cls) -> Self:
        """Two hundred and one users."""
        return cls(epsilon=2.0, n_users=201)

    @classmethod
    def example_users(cls) -> Users:
        """Means around 0.33, five samples each."""
        return samples_of(201, 5, 0.33, 0.2, seed=3)


# -- (c) ten rounds of gradient descent ------------------------------------------------------------


@register_query
@dataclass(frozen=True)
class ClippedGradient(Query):
    """Each user's gradient of the squared distance to its own mean, clipped."""

    wire_name: ClassVar[str] = "throwaway-clipped-gradient"
    trust: ClassVar[Trust] = Trust.CENTRAL
    position: np.ndarray
    radius: float

    def answer(self, users: Users, rng: Streams) -> Report:
        """position - own mean, scaled into a ball; zero for a user without samples."""
        s = users.reals
        g = np.zeros((len(users), len(self.position)))
        for u, (a, b) in enumerate(pairwise(s.indptr)):
            if b > a:
                g[u] = self.position - s.values[a:b].mean(axis=0)
        g[~np.isfinite(g).all(axis=1)] = 0.0
        norm = np.linalg.norm(g, axis=1)
        g *= np.minimum(1.0, self.radius / np.maximum(norm, 1e-300))[:, None]
        return Report(users.ids, {"gradient": g})

    def fold(self, report: Report) -> Summary:
        """Add up."""
        return Summary(report.n_users, {"gradient": report.arrays["gradient"].sum(axis=0)})

    def check(self, report: Report) -> None:
        """Rows in the ball."""
        if report.arrays.keys() != {"gradient"} or report.ragged:
            raise WireError(f"'gradient' is expected, got {sorted(report.arrays)}")
        g = report.arrays["gradient"]
        Bounds((report.n_users, len(self.position)), "f").check("gradient", g)
        if g.size and np.linalg.norm(g, axis=1).max() > self.radius * (1 + 1e-9):
            raise WireError("a gradient is longer than the radius")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """As far as n_users gradients can go."""
        most = n_users * self.radius * (1 + 1e-9)
        return {"gradient": Bounds((len(self.position),), "f", -most, most)}


@register_protocol
@dataclass(frozen=True)
class Descent(Protocol):
    """Mean of the users' means by gradient descent with a Gaussian oracle."""

    name: ClassVar[str] = "throwaway-descent"
    paper: ClassVar[str] = "a test of the interface"
    target: ClassVar[str] = "mean"
    epsilon: float
    delta: float
    steps: int = 10
    dimension: int = 2
    radius: float = 4.0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if self.steps < 1:
            raise ValueError(f"steps must be positive, got {self.steps}")

    @property
    def max_rounds(self) -> int:
        """One per step."""
        return self.steps

    @property
    def guarantee(self) -> Guarantee:
        """The whole zCDP budget, as (epsilon, delta)."""
        return Guarantee(self.epsilon, self.delta, Trust.CENTRAL, Adjacency.REPLACE_USER)

    def rounds(self, server: Curator) -> Script:
        """Step, ten times; return the average of the later half."""
        rho = zcdp_rho(self.epsilon, self.delta) / self.steps
        position, path = np.zeros(self.dimension), []
        for step in range(self.steps):
            got = yield ClippedGradient(position, self.radius)
            noisy = server.gaussian_zcdp(
                got.sums["gradient"],
                l2_sensitivity=2 * self.radius,
                rho=rho,
                label=f"gradient {step}",
            )
            position = position - noisy / got.n_users
            path.append(position)
        return Estimate.ok(np.mean(path[len(path) // 2 :], axis=0))

    def error(self, users: Users) -> Prediction:
        """Each iterate is the truth plus one fresh noise: the average of five has a fifth."""
        rho = zcdp_rho(self.epsilon, self.delta) / self.steps
        std = 2 * self.radius / math.sqrt(2 * rho) / len(users)
        kept = self.steps - self.steps // 2
        return Prediction("mse", self.dimension * std**2 / kept, "exact", "independent noise")

    def truth(self, users: Users) -> Array:
        """Mean of the users' means."""
        s = users.reals
        pairs = pairwise(s.indptr)
        return np.asarray(np.mean([s.values[a:b].mean(axis=0) for a, b in pairs], axis=0))

    def loss(self, value: Array, truth: Array) -> float:
        """Squared distance."""
        return float(np.sum((value - truth) ** 2))

    @classmethod
    def example(cls) -> Self:
        """Nobody is clipped."""
        return cls(epsilon=1.0, delta=1e-6)

    @classmethod
    def example_users(cls) -> Users:
        """Five hundred users with three samples in the plane each."""
        return samples_of(500, 3, 0.5, 0.3, seed=4, dimension=2)


def samples_of(
    n: int, per_user: int, centre: float, spread: float, *, seed: int, **kwargs: Any
) -> Users:
    """Gaussian samples, the same number for every user."""
    rng = np.random.default_rng(seed)
    values = rng.normal(centre, spread, (n * per_user, kwargs.get("dimension", 1)))
    return Users.from_samples(
        np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        np.arange(n + 1) * per_user,
        values,
    )
