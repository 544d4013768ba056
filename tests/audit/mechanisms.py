"""Small client halves for the auditor's tests: honest ones of known epsilon, and broken ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import ClassVar

import numpy as np

import fedhist as fh


@dataclass(frozen=True)
class Answering(fh.Query):
    """A local query that costs ``epsilon``; subclasses say how it is answered."""

    wire_name: ClassVar[str] = "answering"
    trust: ClassVar[fh.Trust] = fh.Trust.LOCAL
    epsilon: float = 1.0
    cohort: fh.Cohort | None = None

    @property
    def release(self) -> fh.Release:
        return fh.pure(self.epsilon)

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        raise NotImplementedError

    def fold(self, report: fh.Report) -> fh.Summary:
        return fh.Summary(report.n_users, {"n": np.array([report.n_users])})

    def check(self, report: fh.Report) -> None:
        pass

    def bounds(self, n_users: int) -> dict[str, fh.Bounds]:
        return {"n": fh.Bounds((1,), "i", 0, n_users)}


def positive(users: fh.Users) -> fh.Array:
    samples = users.reals
    first = np.append(samples.values[:, 0], 0.0)[samples.indptr[:-1]]
    return (users.n_items() > 0) & (first > 0)


@dataclass(frozen=True)
class Warner(Answering):
    """Tells the truth with probability ``keep``: epsilon = log(keep / (1 - keep))."""

    keep: float = 0.75

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        lie = rng.substream("lie").bernoulli(np.full(len(users), 1 - self.keep))
        return fh.Report(users.ids, {"yes": positive(users) ^ lie})

    def finite_channel(self) -> fh.FiniteChannel:
        keep = round(self.keep * 2**64)
        lie = 2**64 - keep
        return fh.FiniteChannel.of(
            np.array([[keep, lie], [lie, keep]], dtype=object), ("yes", "no")
        )


@dataclass(frozen=True)
class LongerForMore(Answering):
    """Random bits only, but as many as the user has samples."""

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        indptr = np.concatenate(([0], np.cumsum(users.n_items())))
        words = rng.substream("bits").ragged_words(indptr) & np.uint64(1)
        return fh.Report(users.ids, ragged={"bits": words}, indptr=indptr)


@dataclass(frozen=True)
class FailsOnEmpty(Warner):
    """Raises for a user without samples."""

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        if (users.n_items() == 0).any():
            raise ZeroDivisionError("a mean of nothing")
        return super().answer(users, rng)


@dataclass(frozen=True)
class Doubles(Warner):
    """Sends floats to users with positive samples and bools to the others."""

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        report = super().answer(users, rng)
        if positive(users).any():
            return fh.Report(report.ids, {"yes": report.arrays["yes"].astype(np.float64)})
        return report


@dataclass(frozen=True)
class Rounds(fh.Protocol):
    """Asks everybody the same in some rounds and promises ``promised``."""

    name: ClassVar[str] = "rounds-of-the-audit"
    paper: ClassVar[str] = "none"
    target: ClassVar[str] = "nothing"
    promised: float
    n_rounds: int = 1

    @property
    def max_rounds(self) -> int:
        return self.n_rounds

    @property
    def query(self) -> fh.Query:
        return Warner(math.log(3))

    @property
    def guarantee(self) -> fh.Guarantee:
        return fh.Guarantee(self.promised, 0.0, fh.Trust.LOCAL, fh.Adjacency.REPLACE_USER)

    def rounds(self, server: object) -> fh.Script:
        for _ in range(self.n_rounds):
            yield self.query
        return fh.Estimate.ok(np.zeros(1))

    def error(self, users: fh.Users) -> fh.Prediction:
        return fh.Prediction("none", 0.0, "bound", "none")

    def truth(self, users: fh.Users) -> fh.Array:
        return np.zeros(1)

    def loss(self, value: fh.Array, truth: fh.Array) -> float:
        return 0.0

    @classmethod
    def example(cls) -> Rounds:
        return cls(math.log(3))

    @classmethod
    def example_users(cls) -> fh.Users:
        return people()


def people() -> fh.Users:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, 60)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    ids = np.arange(100, 160, dtype=np.uint64)
    return fh.Users.from_samples(ids, indptr, rng.uniform(-1, 1, indptr[-1]))


def nearest(epsilon: float, total: int, more: int = 0) -> fh.FiniteChannel:
    with localcontext() as context:
        context.prec = 60
        q = int((total / (1 + Decimal(epsilon).exp())).to_integral_value(ROUND_CEILING)) - more
    return fh.FiniteChannel.of([[total - q, q], [q, total - q]], "ab")
