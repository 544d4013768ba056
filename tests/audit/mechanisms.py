"""Small client halves for the auditor's tests: honest ones of known epsilon, and broken ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from typing import ClassVar

import numpy as np

import fedhist as fh
from tests.bank.bank_frame import BankProtocol, LocalReport


def positive(users: fh.Users) -> fh.Array:
    samples = users.reals
    first = np.append(samples.values[:, 0], 0.0)[samples.indptr[:-1]]
    return (users.n_items() > 0) & (first > 0)


@dataclass(frozen=True)
class Warner(LocalReport):
    """Tells the truth with probability ``keep``: epsilon = log(keep / (1 - keep))."""

    wire_name: ClassVar[str] = "warner"
    keep: float = 0.75

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        lie = rng.substream("lie").bernoulli(np.full(len(users), 1 - self.keep))
        return positive(users) ^ lie

    def finite_channel(self) -> fh.FiniteChannel:
        keep = round(self.keep * 2**64)
        lie = 2**64 - keep
        return fh.FiniteChannel.of(
            np.array([[keep, lie], [lie, keep]], dtype=object), ("yes", "no")
        )


@dataclass(frozen=True)
class LongerForMore(Warner):
    """Random bits only, but as many as the user has samples."""

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        indptr = np.concatenate(([0], np.cumsum(users.n_items())))
        words = rng.substream("bits").ragged_words(indptr) & np.uint64(1)
        return fh.Report(users.ids, ragged={"bits": words}, indptr=indptr)


@dataclass(frozen=True)
class FailsOnEmpty(Warner):
    """Raises for a user without samples."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        if (users.n_items() == 0).any():
            raise ZeroDivisionError("a mean of nothing")
        return super().reports(users, rng)


@dataclass(frozen=True)
class Doubles(Warner):
    """Sends floats to users with positive samples and bools to the others."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        out = super().reports(users, rng)
        return out.astype(np.float64) if positive(users).any() else out


@dataclass(frozen=True)
class Rounds(BankProtocol):
    """Asks everybody once and promises ``promised``."""

    name: ClassVar[str] = "rounds-of-the-audit"
    promised: float

    @property
    def query(self) -> fh.Query:
        return Warner(math.log(3))

    @property
    def guarantee(self) -> fh.Guarantee:
        return fh.Guarantee(self.promised, 0.0, fh.Trust.LOCAL, fh.Adjacency.REPLACE_USER)

    def rounds(self, server: object) -> fh.Script:
        yield self.query
        return fh.Estimate.ok(np.zeros(1))

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
