"""Protocols whose clients misbehave, for the tests of the runtimes. Loaded as a plugin."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

import fedhist as fh

MOST, ANSWERING = 1 << 20, "FEDHIST_TEST_ANSWERING"
_answered = 0


@fh.register_query
@dataclass(frozen=True)
class NoisyParity(fh.LocalQuery):
    """Each user sends one randomized bit and one private word; faults happen on the way.

    ``kill_after`` >= 0 kills the worker at its kill_after-th node of the round, once per marker
    file; ``raise_on`` raises, or exits, on nodes whose first user id is a multiple of it;
    ``pause``: seconds that each node takes, which then makes the file that ANSWERING names.
    """

    wire_name: ClassVar[str] = "test-noisy-parity"
    epsilon: float
    number: int
    kill_after: int = -1
    marker: str = ""
    raise_on: int = 0
    pause: float = 0.0

    @property
    def exact(self) -> bool:
        return True

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        keep = 1 / (1 + np.exp(-self.epsilon))
        flip = rng.substream("flip").bernoulli(np.full(len(users), 1 - keep))
        bit = (users.n_items() % 2).astype(np.int64) ^ flip
        word = (rng.substream("word").words(1)[:, 0] % np.uint64(MOST)).astype(np.int64)
        return fh.Report(users.ids, {"bit": bit, "word": word})

    def answer_folded(self, users: fh.Users, rng: Callable[[fh.Users], fh.Streams]) -> fh.Summary:
        global _answered
        _answered += 1
        if self.pause:
            Path(os.environ.get(ANSWERING, os.devnull)).touch()
            time.sleep(self.pause)
        if self.raise_on and int(users.ids[0]) % self.raise_on == 0:
            ends = SystemExit if int(users.ids[0]) % 2 else RuntimeError
            raise ends("this client is broken")
        if self.kill_after >= 0 and _answered % 40 == self.kill_after % 40:
            marker = Path(self.marker)
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().answer_folded(users, rng)

    def fold(self, report: fh.Report) -> fh.Summary:
        sums = {name: a.sum(axis=0, keepdims=True) for name, a in report.arrays.items()}
        return fh.Summary(report.n_users, sums)

    def check(self, report: fh.Report) -> None:
        for name, most in (("bit", 1), ("word", MOST)):
            fh.Bounds((None,), "i", 0, most).check(name, report.arrays[name])

    def bounds(self, n_users: int) -> Mapping[str, fh.Bounds]:
        limits = (("bit", 1), ("word", MOST))
        return {name: fh.Bounds((1,), "i", 0, n_users * most) for name, most in limits}


@fh.register_protocol
@dataclass(frozen=True)
class ManyRounds(fh.Protocol):
    """Asks as many rounds of noisy parities as it is told to, with faults in each."""

    name: ClassVar[str] = "test-many-rounds"
    paper: ClassVar[str] = "none: for tests"
    target: ClassVar[str] = "parity"
    epsilon: float = 1.0
    n_rounds: int = 1
    kill_after: tuple[int, ...] = ()
    markers: str = ""
    raise_on: int = 0
    pause: float = 0.0

    @property
    def max_rounds(self) -> int:
        return self.n_rounds

    @property
    def guarantee(self) -> fh.Guarantee:
        return fh.Guarantee(self.epsilon, 0.0, fh.Trust.LOCAL, fh.Adjacency.REPLACE_USER)

    def rounds(self, server: fh.Curator) -> fh.Script:
        totals = []
        for i in range(self.n_rounds):
            kill = self.kill_after[i] if i < len(self.kill_after) else -1
            each, marker = self.epsilon / self.n_rounds, f"{self.markers}-{i}"
            query = NoisyParity(each, i, kill, marker, self.raise_on, self.pause)
            summary = yield query
            totals.append([summary.sums["bit"][0], summary.sums["word"][0], summary.n_users])
        return fh.Estimate.ok(np.array(totals, dtype=np.int64).ravel())

    def error(self, users: fh.Users) -> fh.Prediction:
        return fh.Prediction("l1", float("inf"), "bound", "none: for tests")

    def truth(self, users: fh.Users) -> fh.Array:
        return np.zeros(3 * self.n_rounds)

    def loss(self, value: fh.Array, truth: fh.Array) -> float:
        return float(np.abs(value - truth).sum())

    @classmethod
    def example(cls) -> Self:
        return cls()

    @classmethod
    def example_users(cls) -> fh.Users:
        return fh.Users.from_counts(
            np.arange(10), np.arange(10), np.zeros(10), np.ones(10), fh.Keys.of(["a"])
        )
