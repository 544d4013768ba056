"""Central releases with too little noise, and the correct ones beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from bank_frame import (
    CentralBank,
    CentralRows,
    Neighbours,
    dense,
    item_users,
    protocol,
    query,
    sample_users,
)

from clients.records.functionals import Coordinates
from fedhist import Adjacency, Estimate, Keys, Users
from fedhist.base.arrays import Array
from server.session.curator import Curator

ZERO, REPLACE = Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER


def names(d: int) -> Keys:
    return Keys.range(d)


def one_changed(before: dict[str, int], after: dict[str, int], d: int) -> Neighbours:
    rest = [{"0": 1}] * 4
    return item_users([*rest, before], names(d)), item_users([*rest, after], names(d))


@query("bank-clipped-counts")
class ClippedCounts(CentralRows):
    """Counts by item, scaled to a norm of at most C: l1, or l2 where ``order`` is 2."""

    d: int
    C: float
    order: int = 1

    def rows(self, users: Users) -> Array:
        x = dense(users, self.d).astype(np.float64)
        norm = np.linalg.norm(x, self.order, axis=1)
        return x * (self.C / np.maximum(self.C, norm))[:, None]


@dataclass(frozen=True)
class Histogram(CentralBank):
    """Add up clipped counts and add Laplace noise of scale ``sensitivity`` / epsilon."""

    query: ClassVar[ClippedCounts] = ClippedCounts(2, 3.0)
    adjacency: ClassVar[Adjacency] = REPLACE
    sensitivity: ClassVar[float] = 6.0

    def release(self, server: Curator, rows: Array) -> Estimate:
        total = rows.sum(axis=0)
        return Estimate.ok(
            server.laplace(total, l1_sensitivity=self.sensitivity, epsilon=self.epsilon)
        )

    @classmethod
    def neighbours(cls) -> Neighbours:
        return one_changed({"0": 9}, {"1": 9}, 2)


@protocol("bank-ok-histogram")
class OkHistogram(Histogram):
    """Correct: 2 C under replacement."""


@protocol("bank-no-replacement-factor")
class NoReplacementFactor(Histogram):
    """C where replacement needs 2 C: the printed Algorithm 1 under its own Definition 3.1."""

    sensitivity: ClassVar[float] = 3.0
    epsilon: float = 2.0


@protocol("bank-ok-adding")
class OkAdding(Histogram):
    """Correct: C, and nothing about the number of users, who may come or stay away."""

    adjacency: ClassVar[Adjacency] = Adjacency.ADD_REMOVE_USER
    sensitivity: ClassVar[float] = 3.0

    @classmethod
    def neighbours(cls) -> Neighbours:
        rest = [{"0": 1}] * 4
        return item_users([*rest, {}], names(2)), item_users(rest, names(2))


@protocol("bank-n-published")
class NPublished(OkAdding):
    """The number of users beside the totals, "which is public anyway"."""

    def release(self, server: Curator, rows: Array) -> Estimate:
        return replace(super().release(server, rows), public={"n_users": float(len(rows))})


@protocol("bank-noise-forgets-c")
class NoiseForgetsC(Histogram):
    """Noise for counts of norm 1, as in Appendix A.1 of the paper: Z without the factor C."""

    sensitivity: ClassVar[float] = 2.0


@protocol("bank-one-draw-for-all")
class OneDraw(Histogram):
    """One draw for all entries: their differences are exact."""

    def release(self, server: Curator, rows: Array) -> Estimate:
        z = server.laplace(0.0, l1_sensitivity=self.sensitivity, epsilon=self.epsilon)
        return Estimate.ok(rows.sum(axis=0) + float(z))


@protocol("bank-bound-from-the-data")
class OwnMaximum(Histogram):
    """C is the largest total of any user ("the maximum contribution"), and it is published."""

    query: ClassVar[ClippedCounts] = ClippedCounts(2, 1e6)

    def release(self, server: Curator, rows: Array) -> Estimate:
        most = float(rows.sum(axis=1).max())
        noisy = server.laplace(rows.sum(axis=0), l1_sensitivity=2 * most, epsilon=self.epsilon)
        return Estimate.ok(noisy, public={"bound": most})

    @classmethod
    def neighbours(cls) -> Neighbours:
        return one_changed({"0": 9}, {"0": 2}, 2)


@query("bank-raw-means")
class RawMeans(CentralRows):
    """Every user's mean, clipped to [-limit, limit] sample by sample."""

    limit: float

    def rows(self, users: Users) -> Array:
        first = np.zeros(len(users), dtype=np.int64)
        means = Coordinates(1, -self.limit, self.limit).scalars(users, first)
        return np.nan_to_num(means)[:, None]


@protocol("bank-ok-mean")
class OkMean(CentralBank):
    """Correct: every user is clipped before the average."""

    query: ClassVar[CentralRows] = RawMeans(1.0)

    def release(self, server: Curator, rows: Array) -> Estimate:
        mean = np.clip(rows.mean(axis=0), -1.0, 1.0)
        return Estimate.ok(server.laplace(mean, l1_sensitivity=2 / len(rows), epsilon=self.epsilon))

    @classmethod
    def neighbours(cls) -> Neighbours:
        low, high = np.zeros((10, 2)), np.zeros((10, 2))
        low[0], high[0] = -1e9, 1e9
        return sample_users(low), sample_users(high)


@protocol("bank-clipped-after-averaging")
class ClippedAfter(OkMean):
    """The average is clipped, the users are not: one user moves it from end to end."""

    query: ClassVar[CentralRows] = RawMeans(1e12)


@query("bank-presence")
class Presence(CentralRows):
    """Which items a user holds: at most m ones."""

    d: int

    def rows(self, users: Users) -> Array:
        return (dense(users, self.d) > 0).astype(np.int64)


@protocol("bank-ok-presence")
class OkPresence(CentralBank):
    """Correct: presence bits of m = 1 sample; two users differ in 2 m of them."""

    query: ClassVar[CentralRows] = Presence(4)
    changed: ClassVar[int] = 2

    def release(self, server: Curator, rows: Array) -> Estimate:
        return Estimate.ok(
            server.laplace(rows.sum(axis=0), l1_sensitivity=self.changed, epsilon=self.epsilon)
        )

    @classmethod
    def neighbours(cls) -> Neighbours:
        return one_changed({"0": 1}, {"1": 1}, 4)


@protocol("bank-presence-of-m")
class PresenceOfM(OkPresence):
    """min(k, m) changed symbols, as in Theorems 8 and 15 of Liu et al. 2020; they are 2 m."""

    changed: ClassVar[int] = 1
    epsilon: float = 2.0


@query("bank-zero-indicators")
class ZeroIndicators(CentralRows):
    """1[N(x) = 0] for users with at least m items; users with fewer send zeros."""

    d: int
    m: int

    def rows(self, users: Users) -> Array:
        counts = dense(users, self.d)
        return ((counts == 0) & (counts.sum(axis=1) >= self.m)[:, None]).astype(np.int64)


@protocol("bank-zero-indicator-sums")
class ZeroSums(OkPresence):
    """Appendix E as printed: a user who falls below m items changes k - m sums, not 2 m."""

    query: ClassVar[CentralRows] = ZeroIndicators(40, 1)

    @classmethod
    def neighbours(cls) -> Neighbours:
        return one_changed({"0": 1}, {}, 40)


@protocol("bank-exact-failure")
class ExactFailure(OkMean):
    """Fails where fewer than five users have a positive mean: by their exact number."""

    def release(self, server: Curator, rows: Array) -> Estimate:
        if int((rows > 0).sum()) < 5:
            return Estimate.failed("too few users above zero")
        return super().release(server, rows)

    @classmethod
    def neighbours(cls) -> Neighbours:
        five, four = -np.ones((10, 2)), -np.ones((10, 2))
        five[:5], four[:4] = 1.0, 1.0
        return sample_users(five), sample_users(four)
