"""Central protocols: too little noise, or decisions by exact numbers; and the correct ones."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from bank_frame import (
    BankProtocol,
    CentralBank,
    CentralRows,
    Neighbours,
    dense,
    item_users,
    protocol,
    query,
    sample_users,
)

import fedhist as fh


@query("bank-clipped-counts")
class ClippedCounts(CentralRows):
    """Counts by item, scaled to an l1 norm of at most 3."""

    def rows(self, users: fh.Users) -> fh.Array:
        x = dense(users, 2).astype(np.float64)
        return x * (3.0 / np.maximum(3.0, x.sum(axis=1)))[:, None]


@protocol("bank-ok-histogram")
class OkHistogram(CentralBank):
    """Correct: clipped counts with Laplace noise for 2 C under replacement."""

    query: ClassVar[ClippedCounts] = ClippedCounts()
    sensitivity: ClassVar[float] = 6.0

    def release(self, server: fh.Curator, rows: fh.Array) -> fh.Estimate:
        total = rows.sum(axis=0)
        return fh.Estimate.ok(
            server.laplace(total, l1_sensitivity=self.sensitivity, epsilon=self.epsilon)
        )

    @classmethod
    def neighbours(cls) -> Neighbours:
        rest = [{"0": 1}] * 4
        first, second = (item_users([*rest, r], fh.Keys.range(2)) for r in ({"0": 9}, {"1": 9}))
        return first, second


@protocol("bank-no-replacement-factor")
class NoReplacementFactor(OkHistogram):
    """C where replacement needs 2 C: the printed Algorithm 1 under its own Definition 3.1."""

    sensitivity: ClassVar[float] = 3.0
    epsilon: float = 2.0


@protocol("bank-one-draw-for-all")
class OneDraw(OkHistogram):
    """One draw for all entries: their differences are exact."""

    def release(self, server: fh.Curator, rows: fh.Array) -> fh.Estimate:
        z = server.laplace(0.0, l1_sensitivity=self.sensitivity, epsilon=self.epsilon)
        return fh.Estimate.ok(rows.sum(axis=0) + float(z))


LARGEST = 1024.0


@query("bank-means-to")
class MeansTo(CentralRows):
    """Every user's mean, clipped to [-limit, limit]."""

    limit: float = 1.0

    def rows(self, users: fh.Users) -> fh.Array:
        s, n = users.reals, len(users)
        owner = np.repeat(np.arange(n), np.diff(s.indptr))
        finite = np.clip(np.nan_to_num(s.values[:, 0]), -1e6, 1e6)
        means = np.bincount(owner, finite, n) / np.maximum(np.diff(s.indptr), 1)
        return np.clip(means, -self.limit, self.limit)[:, None]


@protocol("bank-ok-doubling")
class OkDoubling(BankProtocol):
    """Correct: doubles the clip until few users are clipped, and pays for every count."""

    trust: ClassVar[fh.Trust] = fh.Trust.CENTRAL
    epsilon: float = 1.0

    @property
    def max_rounds(self) -> int:
        return 11

    def clipped(self, server: fh.Curator, rows: fh.Array, limit: float) -> float:
        count = int((np.abs(rows) >= limit).sum())
        each = self.epsilon / 2 / self.max_rounds
        return float(server.discrete_laplace(np.array([count]), l1_sensitivity=1, epsilon=each)[0])

    def rounds(self, server: fh.Curator) -> fh.Script:
        query = MeansTo()
        while True:
            rows = (yield query).rows["row"]
            few = self.clipped(server, rows, query.limit) <= 0.1 * len(rows)
            if few or query.limit >= LARGEST:
                break
            query = replace(query, limit=2 * query.limit)
        # 2 limit / n is what one user changes of the mean
        at_most = 2 * query.limit / len(rows)
        mean = server.laplace(rows.mean(axis=0), l1_sensitivity=at_most, epsilon=self.epsilon / 2)
        return fh.Estimate.ok(mean)

    @classmethod
    def neighbours(cls) -> Neighbours:
        """Of sixty users a tenth is clipped, or one more."""
        rows = np.zeros((60, 1))
        rows[:6] = 3.0
        more = rows.copy()
        more[6] = 3.0
        return sample_users(rows), sample_users(more)

    @classmethod
    def example_users(cls) -> fh.Users:
        return cls.neighbours()[0]


@protocol("bank-doubling-by-count")
class DoublingByCount(OkDoubling):
    """Stops by the exact number of clipped users: "only a statistic"."""

    def clipped(self, server: fh.Curator, rows: fh.Array, limit: float) -> float:
        return float((np.abs(rows) >= limit).sum())


N_LISTED = 6


@query("bank-favourite")
class Favourite(CentralRows):
    """A user's most frequent item: at most a single one."""

    def rows(self, users: fh.Users) -> fh.Array:
        x = dense(users, N_LISTED + 1)[:, :N_LISTED]
        best = np.eye(N_LISTED, dtype=np.int64)[x.argmax(axis=1)]
        return best * (x.max(axis=1) > 0)[:, None]


@protocol("bank-ok-listed")
class OkListed(BankProtocol):
    """Correct: noisy counts of a public domain, in its own order."""

    trust: ClassVar[fh.Trust] = fh.Trust.CENTRAL
    adjacency: ClassVar[fh.Adjacency] = fh.Adjacency.ZERO_OUT_USER
    epsilon: float = 1.0

    def order(self, exact: fh.Array) -> fh.Array:
        return np.arange(len(exact))

    def rounds(self, server: fh.Curator) -> fh.Script:
        exact = (yield Favourite()).rows["row"].sum(axis=0)
        noisy = server.discrete_laplace(exact, l1_sensitivity=1, epsilon=self.epsilon)
        order = self.order(exact)
        return fh.Estimate.ok(
            noisy[order].astype(np.float64), keys=fh.Keys.of(str(j) for j in order.tolist())
        )

    @classmethod
    def example_users(cls) -> fh.Users:
        records = [{str(i % N_LISTED): 1} for i in range(60)]
        return item_users(records, fh.Keys.range(N_LISTED))


@protocol("bank-keys-by-exact-count")
class KeysByExactCount(OkListed):
    """The values are noisy, but the keys leave with the most popular first.

    A session puts the keys of an unbounded domain in order; it cannot know that these, of a public
    domain, have been moved.
    """

    def order(self, exact: fh.Array) -> fh.Array:
        return np.argsort(-exact, kind="stable")
