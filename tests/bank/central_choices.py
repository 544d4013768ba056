"""Central choices, samplers and thresholds that are broken, and the correct ones beside them."""

from __future__ import annotations

import math
from dataclasses import replace
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

from clients.records.user_rows import coordinate_points
from fedhist import Adjacency, Estimate, Keys, Users
from fedhist.base.arrays import Array
from fedhist.model.query import Keyed
from fedhist.privacy.guarantee import approximate
from server.few_users.draws import BallSampler
from server.few_users.plan import Buckets, bucket_params
from server.session.curator import Curator
from server.session.unknown_keys import key_threshold

# -- the exponential mechanism


@query("bank-held")
class Held(CentralRows):
    """Which items of the domain a user holds."""

    d: int

    def rows(self, users: Users) -> Array:
        """Bits."""
        return (dense(users, self.d) > 0).astype(np.int64)


@protocol("bank-ok-choice")
class OkChoice(CentralBank):
    """Correct: the most popular of four items, by weights exp(epsilon S / 2)."""

    query: ClassVar[CentralRows] = Held(4)
    epsilon: float = 0.5

    @property
    def sensitivity(self) -> float:
        """One user changes a score by 1."""
        return 1.0

    def release(self, server: Curator, rows: Array) -> Estimate:
        """Choose."""
        chosen = server.exponential(
            rows.sum(axis=0), sensitivity=self.sensitivity, epsilon=self.epsilon
        )
        return Estimate.ok([float(chosen)])

    @classmethod
    def neighbours(cls) -> Neighbours:
        """A user with one item has another one."""
        rest, names = [{"0": 1}, {"1": 1}], Keys.range(4)
        return item_users([*rest, {"0": 1}], names), item_users([*rest, {"1": 1}], names)


@protocol("bank-printed-exponent")
class PrintedExponent(OkChoice):
    """exp(S / (2 epsilon)), as printed in Algorithm 1 and Lemma 11: (1 / epsilon)-DP."""

    @property
    def sensitivity(self) -> float:
        """What makes the weight of a score 1 / (2 epsilon)."""
        return self.epsilon**2


@protocol("bank-unbounded-score")
class UnboundedScore(OkChoice):
    """The score counts items, not users, and its sensitivity is still said to be 1."""

    query: ClassVar[CentralRows] = Held(20)

    def release(self, server: Curator, rows: Array) -> Estimate:
        """Score by a sum in which a user counts as often as it has items."""
        score = rows.sum(axis=1) @ rows
        return Estimate.ok([float(server.exponential(score, sensitivity=1, epsilon=self.epsilon))])

    @classmethod
    def neighbours(cls) -> Neighbours:
        """A user with the first ten items has the last ten."""
        first, last = ({str(j): 1 for j in r} for r in (range(10), range(10, 20)))
        return item_users([{}, first], Keys.range(20)), item_users([{}, last], Keys.range(20))


@protocol("bank-ok-rows")
class OkRows(OkChoice):
    """Correct: for each of eight items, whether few or many hold it; a user changes them all."""

    query: ClassVar[CentralRows] = Held(8)
    changed: ClassVar[int] = 8

    def release(self, server: Curator, rows: Array) -> Estimate:
        """Choose for each item; epsilon is shared by the choices one user changes."""
        total = rows.sum(axis=0)
        scores = np.stack((-total, total), axis=1)
        return Estimate.ok(
            server.exponential_rows(
                scores,
                sensitivity=1,
                epsilon_each=self.epsilon / self.changed,
                changed=self.changed,
            ).astype(np.float64)
        )

    @classmethod
    def neighbours(cls) -> Neighbours:
        """A user has everything, or nothing."""
        names = Keys.range(8)
        return item_users([{str(j): 1 for j in range(8)}], names), item_users([{}], names)


@protocol("bank-rows-charged-once")
class RowsChargedOnce(OkRows):
    """Every choice has the whole epsilon: said to be changed by one user one at a time."""

    changed: ClassVar[int] = 1
    epsilon: float = 1.0


# -- unknown keys

N_OWN = 60


@query("bank-some-items")
class SomeItems(CentralRows):
    """Counts of a user's first items, C in all; -1 marks items it holds but does not send."""

    d: int
    C: int

    def rows(self, users: Users) -> Array:
        """Clip in the order of the domain."""
        x = dense(users, self.d)
        before = np.cumsum(x, axis=1) - x
        kept = np.clip(self.C - before, 0, x)
        return np.where((x > 0) & (kept == 0), -1, kept)


@protocol("bank-ok-keys")
class OkKeys(CentralBank):
    """Correct: noise on the clipped support, and a threshold that knows C."""

    query: ClassVar[CentralRows] = SomeItems(N_OWN, 4)
    adjacency: ClassVar[Adjacency] = Adjacency.ZERO_OUT_USER
    delta: ClassVar[float] = 0.01
    epsilon: float = 2.0

    @property
    def at(self) -> int:
        """The threshold."""
        return key_threshold(4, 4, self.epsilon, self.delta)

    def support(self, users: Users) -> Keys:
        """The estimate has keys of its own."""
        return Keys.range(N_OWN)

    def released(self, rows: Array) -> Array:
        """Keys that get noise."""
        return np.flatnonzero((rows > 0).any(axis=0))

    def release(self, server: Curator, rows: Array) -> Estimate:
        """Noise, then the threshold: the same law as the Curator's own."""
        keys = self.released(rows)
        counts = np.maximum(rows, 0).sum(axis=0)[keys]
        noisy = server.discrete_laplace(counts, l1_sensitivity=4, epsilon=self.epsilon)
        server.ledger.charge("threshold", approximate(0.0, self.delta))
        shown = noisy >= self.at
        names = Keys.of(str(j) for j in keys[shown].tolist())
        return Estimate.ok(noisy[shown].astype(np.float64), keys=names)

    @classmethod
    def neighbours(cls) -> Neighbours:
        """A user with sixty items of its own, four of the first, is emptied."""
        mine, names = {"0": 4} | {str(j): 1 for j in range(1, N_OWN)}, Keys.range(N_OWN)
        return item_users([mine, {}], names), item_users([{}, {}], names)


@protocol("bank-ok-curator-keys")
class CuratorKeys(OkKeys):
    """Correct: the Curator's own threshold mechanism."""

    def release(self, server: Curator, rows: Array) -> Estimate:
        """Hand over the keys."""
        keys = self.released(rows)
        counts = np.maximum(rows, 0).sum(axis=0)[keys]
        part = Keyed(Keys.of(str(j) for j in keys.tolist()), counts)
        got = server.threshold(
            part, contribution=4, l1_sensitivity=4, epsilon=self.epsilon, delta=self.delta
        )
        return Estimate.ok(got.values.astype(np.float64), keys=got.keys)


@protocol("bank-raw-support")
class RawSupport(OkKeys):
    """Algorithm 3 as printed: noise on every key that somebody holds, sent or not."""

    def released(self, rows: Array) -> Array:
        """Raw keys."""
        return np.flatnonzero((rows != 0).any(axis=0))


@protocol("bank-threshold-forgets-c")
class ForgetsC(OkKeys):
    """The threshold (C / epsilon) log(1 / (2 delta)) of Corollary B.4: it forgets to add C."""

    epsilon: float = 3.0

    @property
    def at(self) -> int:
        """Without C."""
        return math.ceil(4 / self.epsilon * math.log(1 / (2 * self.delta)))


@protocol("bank-support-as-it-is")
class AllKeys(OkKeys):
    """No threshold: all keys that were sent are shown, with noisy counts."""

    @property
    def at(self) -> int:
        """None."""
        return -(1 << 40)


# -- what is done by exact counts


@protocol("bank-guard-by-exact-counts")
class ExactGuard(CentralBank):
    """Does not debias where all users are alike: by their exact counts, and says so."""

    query: ClassVar[CentralRows] = Held(2)
    adjacency: ClassVar[Adjacency] = Adjacency.ZERO_OUT_USER

    def release(self, server: Curator, rows: Array) -> Estimate:
        """Look at the exact spread."""
        alike = bool((rows == rows[0]).all())
        total = rows.sum(axis=0).astype(np.float64)
        noisy = server.laplace(total, l1_sensitivity=2, epsilon=self.epsilon)
        return Estimate.ok(noisy, public={"debiased": float(not alike)})

    @classmethod
    def neighbours(cls) -> Neighbours:
        """All alike, or all but one."""
        one, names = [{"0": 1}] * 9, Keys.range(2)
        return item_users([*one, {"0": 1}], names), item_users([*one, {}], names)


# -- the few-users sampler


@query("bank-points")
class Points(CentralRows):
    """Every user's mean."""

    def rows(self, users: Users) -> Array:
        """Average."""
        return np.nan_to_num(coordinate_points(users.reals, -1e6, 1e6))


def split(left: int, right: int) -> Users:
    """So many users at 0, and so many far from them."""
    return sample_users(np.repeat([0.0, 100.0], (left, right))[:, None])


@protocol("bank-ok-point")
class OkPoint(CentralBank):
    """Correct: a point near most of the users; a garbage bucket is a failure."""

    query: ClassVar[CentralRows] = Points()
    delta: ClassVar[float] = 0.01
    kappa: ClassVar[float] = 0.6

    def buckets(self, n: int) -> Buckets:
        """The constants."""
        return bucket_params(n, self.epsilon, self.delta, self.kappa)

    def release(self, server: Curator, rows: Array) -> Estimate:
        """Draw."""
        sampler = BallSampler(rows, 1.0, self.buckets(len(rows)), 64)
        kind, point = server.sample(sampler, label="ball").tolist()
        if kind:
            return Estimate.failed("the draw fell into a garbage bucket")
        return Estimate.ok([point])

    @classmethod
    def neighbours(cls) -> Neighbours:
        """One user of two equal camps goes over to the other."""
        return split(5, 5), split(6, 4)


@protocol("bank-forgets-normalizer")
class ForgetsNormalizer(OkPoint):
    """Proposition 15 as printed: epsilon0 = epsilon, though the normalizer moves as well."""

    epsilon: float = 2.0

    def buckets(self, n: int) -> Buckets:
        """Twice the exponent under the same claim."""
        twice = bucket_params(n, 2 * self.epsilon, self.delta, self.kappa)
        return replace(twice, release=super().buckets(n).release)


@protocol("bank-origin-for-garbage")
class OriginForGarbage(OkPoint):
    """No garbage bucket in the law: where nothing is accepted, the answer is the origin."""

    def buckets(self, n: int) -> Buckets:
        """G of almost no weight: a point that one user alone explains is no longer rare."""
        return replace(super().buckets(n), log_garbage=-600.0)

    def release(self, server: Curator, rows: Array) -> Estimate:
        """Draw; failure is not an option."""
        estimate = super().release(server, rows)
        return estimate if estimate.status == "ok" else Estimate.ok([0.0])

    @classmethod
    def neighbours(cls) -> Neighbours:
        """Six users far from each other; one of them goes elsewhere."""
        apart = 100.0 * np.arange(1, 7)
        moved = np.where(np.arange(6) == 0, 1000.0, apart)
        return sample_users(apart[:, None]), sample_users(moved[:, None])
