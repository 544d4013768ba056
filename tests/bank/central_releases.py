"""Central releases with too little noise, and the correct one beside them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from bank_frame import CentralBank, CentralRows, Neighbours, dense, item_users, protocol, query

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
