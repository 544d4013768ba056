"""What the mechanisms of the bank share, so that each entry shows its flaw and nothing else.

The files beside this one are plugins, as a user's own would be:
``PYTHONPATH=tests/bank fedhist audit NAME --plugin tests/bank/FILE``. A class named
``bank-ok-...`` is correct: the twin of the broken ones that derive from it or stand by it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

import fedhist as fh

Q = TypeVar("Q", bound=fh.Query)
P = TypeVar("P", bound=fh.Protocol)


@dataclass_transform(frozen_default=True)
def query(wire_name: str) -> Callable[[type[Q]], type[Q]]:
    def made(cls: type[Q]) -> type[Q]:
        cls.wire_name = wire_name
        return fh.register_query(dataclass(frozen=True)(cls))

    return made


@dataclass_transform(frozen_default=True)
def protocol(name: str) -> Callable[[type[P]], type[P]]:
    def made(cls: type[P]) -> type[P]:
        cls.name = name
        return fh.register_protocol(dataclass(frozen=True)(cls))

    return made


class BankProtocol(fh.Protocol):
    """What a protocol has to say that is the same for all of the bank."""

    paper: ClassVar[str] = "the bank of broken mechanisms"
    target: ClassVar[str] = "nothing"
    delta: ClassVar[float] = 0.0
    trust: ClassVar[fh.Trust]
    adjacency: ClassVar[fh.Adjacency] = fh.Adjacency.REPLACE_USER
    epsilon: float

    @property
    def max_rounds(self) -> int:
        return 2

    @property
    def guarantee(self) -> fh.Guarantee:
        return fh.Guarantee(self.epsilon, self.delta, self.trust, self.adjacency)

    def error(self, users: fh.Users) -> fh.Prediction:
        return fh.Prediction("absolute", 1.0, "bound", "none")

    def truth(self, users: fh.Users) -> fh.Array:
        return np.zeros(1)

    def loss(self, value: fh.Array, truth: fh.Array) -> float:
        return float(np.abs(value - truth).sum())

    @classmethod
    def example(cls) -> Self:
        return cls()

    @classmethod
    def example_users(cls) -> fh.Users:
        return sample_users(np.tile(np.linspace(-0.95, 0.95, 8), (40, 1)))


@dataclass(frozen=True)
class LocalReport(fh.Query):
    """One report of every user; a subclass says how it is drawn."""

    trust: ClassVar[fh.Trust] = fh.Trust.LOCAL
    epsilon: float = 1.0
    cohort: fh.Cohort | None = None

    @property
    def release(self) -> fh.Release:
        return fh.pure(self.epsilon)

    @property
    def exact(self) -> bool:
        return True

    @abstractmethod
    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        """Draw the reports: (n, ...)."""

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        return fh.Report(users.ids, {"reports": self.reports(users, rng)})

    def fold(self, report: fh.Report) -> fh.Summary:
        total = sum(float(np.nan_to_num(a.astype(np.float64)).sum()) for a in _all(report))
        return fh.Summary(report.n_users, {"total": np.array([total])})

    def check(self, report: fh.Report) -> None:
        if not report.arrays and not report.ragged:
            raise fh.WireError("a report is expected, got nothing")

    def bounds(self, n_users: int) -> Mapping[str, fh.Bounds]:
        return {"total": fh.Bounds((1,), "f")}


def _all(report: fh.Report) -> list[fh.Array]:
    return [*report.arrays.values(), *report.ragged.values()]


@dataclass(frozen=True)
class LocalBank(BankProtocol):
    """Ask one query of everybody and return the total."""

    trust: ClassVar[fh.Trust] = fh.Trust.LOCAL
    query: ClassVar[type[LocalReport]]
    epsilon: float = 1.0

    def rounds(self, server: fh.Curator) -> fh.Script:
        summary = yield self.query(self.epsilon)
        return fh.Estimate.ok(summary.sums["total"])

    @classmethod
    def of(cls, query: type[LocalReport], name: str) -> type[LocalBank]:
        body = {"query": query, "name": name, "__doc__": query.__doc__}
        made = type(query.__name__ + "Protocol", (cls,), body)
        made.__module__ = query.__module__
        return fh.register_protocol(made)


def means(users: fh.Users) -> fh.Floats:
    return fh.Coordinates(1).scalars(users, np.zeros(len(users), dtype=np.int64))


def noisy(u: fh.Array, epsilon: float, rng: fh.Streams) -> fh.Array:
    return fh.randomize(u, fh.scalar_channel("laplace", epsilon), rng)


def sample_users(rows: fh.Array) -> fh.Users:
    n, t = rows.shape
    return fh.Users.from_samples(np.arange(n), np.arange(n + 1) * t, rows.reshape(-1))


Neighbours = tuple[fh.Users, fh.Users]


@dataclass(frozen=True)
class CentralRows(fh.Query):
    """One exact row of every user, for a trusted server; a subclass says which."""

    trust: ClassVar[fh.Trust] = fh.Trust.CENTRAL

    @abstractmethod
    def rows(self, users: fh.Users) -> fh.Array:
        """Make the rows: (n, w)."""

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        return fh.Report(users.ids, {"row": self.rows(users)})

    def fold(self, report: fh.Report) -> fh.Summary:
        return fh.Summary(report.n_users, rows={"row": report.arrays["row"]}, ids=report.ids)

    def check(self, report: fh.Report) -> None:
        if report.arrays.keys() != {"row"}:
            raise fh.WireError(f"'row' is expected, got {sorted(report.arrays)}")

    def bounds(self, n_users: int) -> Mapping[str, fh.Bounds]:
        return {"row": fh.Bounds((n_users, None), "if", part="rows")}


@dataclass(frozen=True)
class CentralBank(BankProtocol):
    """Ask for rows and release something of them."""

    trust: ClassVar[fh.Trust] = fh.Trust.CENTRAL
    query: ClassVar[CentralRows]
    epsilon: float = 1.0

    def rounds(self, server: fh.Curator) -> fh.Script:
        summary = yield self.query
        return self.release(server, summary.rows["row"])

    @abstractmethod
    def release(self, server: fh.Curator, rows: fh.Array) -> fh.Estimate:
        """Make the estimate from the exact rows."""

    @classmethod
    @abstractmethod
    def neighbours(cls) -> Neighbours:
        """Two populations that the flaw tells apart; adjacent as the protocol declares."""

    @classmethod
    def example_users(cls) -> fh.Users:
        return cls.neighbours()[0]


def item_users(records: list[dict[str, int]], vocabulary: fh.Keys) -> fh.Users:
    at = {name: j for j, name in enumerate(vocabulary)}
    user = [u for u, r in enumerate(records) for _ in r]
    item = [at[name] for r in records for name in r]
    count = [c for r in records for c in r.values()]
    return fh.Users.from_counts(range(len(records)), user, item, count, vocabulary)


def dense(users: fh.Users, d: int) -> NDArray[np.int64]:
    c, out = users.counts, np.zeros((len(users), d), dtype=np.int64)
    owner = np.repeat(np.arange(len(users)), np.diff(c.indptr))
    np.add.at(out, (owner, c.item), c.count.astype(np.int64))
    return out
