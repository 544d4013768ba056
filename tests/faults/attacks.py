"""Populations under attack, and what an honest run on them gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedhist.flower.wire import Question
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Report, Summary
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from fedhist.users.streams import SeededStreams
from server.few_users.few_users_mean import FewUsersMean
from server.histograms.bounded_histogram import BoundedHistogram
from server.intake import take_rows
from server.means.mean import Mean
from simulations.adversaries import hostile_grid, table
from simulations.adversaries.table import assign
from simulations.config.reading import one_of
from simulations.runs.options import Options, Outcome
from simulations.runs.run import execute
from tests.faults.malformed import FORMS, malform_report

SEED = 6


@dataclass(frozen=True)
class Adversary(table.Adversary):
    """As a configuration's; "malformed" is a user's message in all of ``FORMS`` in turn."""

    kind: Annotated[str, one_of(*table.KINDS, "malformed")]


class HostileGrid(hostile_grid.HostileGrid):
    """The grid that malforms messages, too."""

    apart = (*hostile_grid.HostileGrid.apart, "malformed")

    def _by_users(
        self, question: Question, node: int, body: Summary | Report
    ) -> Iterator[hostile_grid.Sent]:
        yield from super()._by_users(question, node, body)
        if isinstance(body, Report):
            rows = np.flatnonzero(
                self._assigned.of_kind(self._assigned.table(body.ids), "malformed")
            )
            for i, form in enumerate(FORMS[: len(rows)]):
                bad = take_rows(body, rows[i :: len(FORMS)])
                yield question.digest, malform_report(bad, form)


COUNTS = Keys.of(["a", "b", "c"])
HISTOGRAM = BoundedHistogram(COUNTS, epsilon=math.inf, clip=4.0, grid=0.5)


def shoppers(n: int = 200) -> Users:
    rng = np.random.default_rng(2)
    counts = rng.poisson([3.0, 1.0, 0.2], (n, 3))
    names = Keys.range(n)
    return Users.from_counts(
        user_ids(names), np.repeat(np.arange(n), 3), np.tile([0, 1, 2], n), counts.ravel(), COUNTS
    )


CASES: dict[str, tuple[Protocol, Users]] = {
    "mean": (Mean.example(), Mean.example_users()),
    "histogram": (HISTOGRAM, shoppers()),
    "few-users": (FewUsersMean.example(), FewUsersMean.example_users()),
}


def hostile(
    case: tuple[Protocol, Users], *tables: Adversary, nodes: int = 1, **options: Any
) -> Outcome:
    return execute(*case, Options(seed=SEED, nodes=nodes, adversaries=tables, **options))


def honest(protocol: Protocol, users: Users) -> Estimate:
    return execute(protocol, users, Options(seed=SEED, fold=False)).estimate


def chosen(users: Users, *tables: Adversary) -> np.ndarray:
    return assign(tables, "user", users.ids, users.n_items()) >= 0


def left(users: Users, *tables: Adversary) -> Users:
    return users.take(np.flatnonzero(~chosen(users, *tables)))


def assert_same(a: Estimate, b: Estimate) -> None:
    assert (a.status, a.public) == (b.status, b.public)
    assert a.value is not None
    assert np.array_equal(a.value, b.value)


def people(n: int, values: np.ndarray) -> Users:
    return Users.from_samples(user_ids(Keys.range(n)), np.arange(n + 1), values, unusable=True)


def coins(users: Users) -> SeededStreams:
    return SeededStreams(users.ids, 1, "gain")
