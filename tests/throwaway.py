"""A small protocol that uses the interface hard; loaded as a plugin, as a user's own would be.

It is no estimator to be used: the tests need a script that needs every user's row, draws twice in
a round, and may refuse or fail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np

import fedhist as fh


@fh.register_query
@dataclass(frozen=True)
class OwnMeans(fh.Query):
    """Every user's own mean, row by row."""

    wire_name: ClassVar[str] = "throwaway-own-means"
    trust: ClassVar[fh.Trust] = fh.Trust.CENTRAL
    low: float
    high: float
    cohort: fh.Cohort | None = None

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        s = users.reals
        x = np.clip(s.values[:, 0], self.low, self.high)
        means = [x[a:b].mean() if b > a else np.nan for a, b in pairwise(s.indptr)]
        own = np.where(np.isnan(means), (self.low + self.high) / 2, means)
        return fh.Report(users.ids, {"mean": own})

    def fold(self, report: fh.Report) -> fh.Summary:
        return fh.Summary(report.n_users, rows={"mean": report.arrays["mean"]}, ids=report.ids)

    def check(self, report: fh.Report) -> None:
        if report.arrays.keys() != {"mean"} or report.ragged:
            raise fh.WireError(f"'mean' is expected, got {sorted(report.arrays)}")
        fh.Bounds((report.n_users,), "f", self.low, self.high).check("mean", report.arrays["mean"])

    def bounds(self, n_users: int) -> Mapping[str, fh.Bounds]:
        return {"mean": fh.Bounds((n_users,), "f", self.low, self.high, part="rows")}


@fh.register_protocol
@dataclass(frozen=True)
class PrivateMedian(fh.Protocol):
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
        fh.check_budget(self.epsilon)

    @property
    def max_rounds(self) -> int:
        return 1

    @property
    def guarantee(self) -> fh.Guarantee:
        return fh.Guarantee(self.epsilon, 0.0, fh.Trust.CENTRAL, fh.Adjacency.REPLACE_USER)

    @property
    def least_users(self) -> int:
        return math.ceil(16 / self.epsilon)

    @property
    def edges(self) -> fh.Array:
        return np.linspace(self.low, self.high, self.cells + 1)

    def rounds(self, server: fh.Curator) -> fh.Script:
        if self.n_users < self.least_users:
            return fh.Estimate.refused(
                f"{self.n_users} users; at least {self.least_users} are needed"
            )
        got = yield OwnMeans(self.low, self.high)
        x, half = got.rows["mean"], self.epsilon / 2
        below = np.array([np.sum(x < e) for e in self.edges])
        score = -np.maximum(below[:-1] - got.n_users / 2, got.n_users / 2 - below[1:]).clip(min=0)
        cell = server.exponential(score, sensitivity=1, epsilon=half)
        middle = float(self.edges[cell] + self.edges[cell + 1]) / 2
        near = np.abs(x - middle) <= 2 * (self.high - self.low) / self.cells
        near_it = server.discrete_laplace(near.sum(), l1_sensitivity=1, epsilon=half)
        if near_it < self.least_share * got.n_users:
            return fh.Estimate.failed(
                "too few users lie near the median", public={"near": int(near_it)}
            )
        return fh.Estimate.ok([middle], public={"near": float(near_it)})

    def error(self, users: fh.Users) -> fh.Prediction:
        return fh.Prediction("absolute", (self.high - self.low) / self.cells, "bound", "a guess")

    def truth(self, users: fh.Users) -> fh.Array:
        s = users.reals
        x = [s.values[a:b].mean() for a, b in pairwise(s.indptr)]
        cell = int(np.searchsorted(self.edges, np.median(x), side="right")) - 1
        return np.array([(self.edges[cell] + self.edges[cell + 1]) / 2])

    def loss(self, value: fh.Array, truth: fh.Array) -> float:
        return float(np.abs(value - truth)[0])

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, n_users=201)

    @classmethod
    def example_users(cls) -> fh.Users:
        values = np.random.default_rng(3).normal(0.33, 0.2, (201 * 5, 1))
        ids = np.arange(1, 202, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return fh.Users.from_samples(ids, np.arange(202) * 5, values)
