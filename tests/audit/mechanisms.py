"""Small client halves for the auditor's tests: honest ones of known epsilon, and broken ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Array, Bounds
from fedhist.model.finite import FiniteChannel
from fedhist.model.prediction import Prediction
from fedhist.model.protocol import Estimate, Protocol, Script
from fedhist.model.query import Query, Report, Summary
from fedhist.privacy.guarantee import Adjacency, Guarantee, Release, Trust, pure
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams


@dataclass(frozen=True)
class Answering(Query):
    """A local query that costs ``epsilon``; subclasses say how it is answered."""

    wire_name: ClassVar[str] = "answering"
    trust: ClassVar[Trust] = Trust.LOCAL
    epsilon: float = 1.0
    cohort: Cohort | None = None

    @property
    def release(self) -> Release:
        return pure(self.epsilon)

    def answer(self, users: Users, rng: Streams) -> Report:
        raise NotImplementedError

    def fold(self, report: Report) -> Summary:
        return Summary(report.n_users, {"n": np.array([report.n_users])})

    def check(self, report: Report) -> None:
        pass

    def bounds(self, n_users: int) -> dict[str, Bounds]:
        return {"n": Bounds((1,), "i", 0, n_users)}


def positive(users: Users) -> Array:
    """Whether the first sample of a user is positive; no for a user without samples."""
    samples = users.reals
    first = np.append(samples.values[:, 0], 0.0)[samples.indptr[:-1]]
    return (users.n_items() > 0) & (first > 0)


def clipped(users: Users) -> Array:
    """The first sample, clipped to [0, 1]; 0 for a user without a usable one."""
    samples = users.reals
    first = np.append(samples.values[:, 0], 0.0)[samples.indptr[:-1]]
    return np.clip(np.where(users.n_items() > 0, np.nan_to_num(first), 0.0), 0.0, 1.0)


@dataclass(frozen=True)
class Warner(Answering):
    """Tells the truth with probability ``keep``: epsilon = log(keep / (1 - keep))."""

    keep: float = 0.75

    def answer(self, users: Users, rng: Streams) -> Report:
        lie = rng.substream("lie").bernoulli(np.full(len(users), 1 - self.keep))
        return Report(users.ids, {"yes": positive(users) ^ lie})

    def finite_channel(self) -> FiniteChannel:
        keep = round(self.keep * 2**64)
        lie = 2**64 - keep
        return FiniteChannel.of(np.array([[keep, lie], [lie, keep]], dtype=object), ("yes", "no"))


@dataclass(frozen=True)
class FloatLaplace(Answering):
    """A value of [0, 1] plus Laplace noise, in doubles; ``digits`` rounds it to a lattice."""

    scale: float = 1.0
    digits: int = -1

    def answer(self, users: Users, rng: Streams) -> Report:
        u = rng.substream("noise").uniform(1)[:, 0] - 0.5
        z = clipped(users) - self.scale * np.sign(u) * np.log1p(-2 * np.abs(u))
        return Report(users.ids, {"z": z if self.digits < 0 else np.round(z, self.digits)})


@dataclass(frozen=True)
class LongerForMore(Answering):
    """Random bits only, but as many as the user has samples."""

    def answer(self, users: Users, rng: Streams) -> Report:
        indptr = np.concatenate(([0], np.cumsum(users.n_items())))
        words = rng.substream("bits").ragged_words(indptr) & np.uint64(1)
        return Report(users.ids, ragged={"bits": words}, indptr=indptr)


@dataclass(frozen=True)
class FailsOnEmpty(Warner):
    """Raises for a user without samples."""

    def answer(self, users: Users, rng: Streams) -> Report:
        if (users.n_items() == 0).any():
            raise ZeroDivisionError("a mean of nothing")
        return super().answer(users, rng)


@dataclass(frozen=True)
class Doubles(Warner):
    """Sends floats to users with positive samples and bools to the others."""

    def answer(self, users: Users, rng: Streams) -> Report:
        report = super().answer(users, rng)
        if positive(users).any():
            return Report(report.ids, {"yes": report.arrays["yes"].astype(np.float64)})
        return report


@dataclass(frozen=True)
class Rounds(Protocol):
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
    def query(self) -> Query:
        return Warner(math.log(3))

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.promised, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)

    def rounds(self, server: object) -> Script:
        for _ in range(self.n_rounds):
            yield self.query
        return Estimate.ok(np.zeros(1))

    def error(self, users: Users) -> Prediction:
        return Prediction("none", 0.0, "bound", "none")

    def truth(self, users: Users) -> Array:
        return np.zeros(1)

    def loss(self, value: Array, truth: Array) -> float:
        return 0.0

    @classmethod
    def example(cls) -> Rounds:
        return cls(math.log(3))

    @classmethod
    def example_users(cls) -> Users:
        return people()


def people() -> Users:
    """Sixty users of one to four samples in [-1, 1]."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, 60)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    ids = np.arange(100, 160, dtype=np.uint64)
    return Users.from_samples(ids, indptr, rng.uniform(-1, 1, indptr[-1]))


def nearest(epsilon: float, total: int, more: int = 0) -> FiniteChannel:
    """Randomized response in ``total`` parts, rounded towards 1/2, then ``more`` parts too few."""
    with localcontext() as context:
        context.prec = 60
        q = int((total / (1 + Decimal(epsilon).exp())).to_integral_value(ROUND_CEILING)) - more
    return FiniteChannel.of([[total - q, q], [q, total - q]], "ab")
