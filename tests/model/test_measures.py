"""Measures: users walked once while they answer, or by themselves; passes; what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from walked_users import Walked

from fedhist.base.arrays import Array
from fedhist.base.errors import PopulationError
from fedhist.model import measures
from fedhist.model.measures import Measure, Measured, Watched, check_rows, measured, walked
from fedhist.model.prediction import Prediction
from fedhist.model.protocol import Estimate
from fedhist.model.query import Summary
from fedhist.protocols import BoundedHistogram
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.runs.options import Options
from simulations.runs.run import execute

USERS = BoundedHistogram.example_users()


def total(users: Users) -> Summary:
    items = users.counts
    count = np.bincount(items.item, items.count, len(items.vocabulary)).astype(np.int64)
    return Summary(len(users), {"count": count})


@dataclass(frozen=True)
class Found(Measured):
    value: Array

    @property
    def truth(self) -> Array:
        return self.value

    @property
    def error(self) -> Prediction:
        return Prediction("l1", 0.0, "exact", "")


@dataclass(frozen=True)
class Above(Measure):
    """Counts the events of users with more than the average: it takes two passes."""

    average: float | None = None

    def of(self, users: Users) -> Summary:
        items = users.counts
        owner = np.repeat(np.arange(len(users)), np.diff(items.indptr))
        size = np.bincount(owner, items.count, len(users))
        low = 0.0 if self.average is None else self.average
        return Summary(len(users), {"events": np.array([size[size > low].sum()])})

    def finish(self, total: Summary) -> Measured | Measure:
        if self.average is None:
            return replace(self, average=float(total.sums["events"][0] / total.n_users))
        return Found(total.sums["events"])


class Averse(BoundedHistogram):
    """Has a measure of two passes."""

    def measure(self) -> Measure:
        return Above()


def averse() -> Averse:
    p = BoundedHistogram.example()
    return Averse(p.domain, epsilon=1.0, clip=3.0)


def slow(users: Users) -> float:
    sizes = [float(u.counts.count.sum()) for u in users.blocks(1)]
    return sum(s for s in sizes if s > sum(sizes) / len(sizes))


def test_a_second_pass_where_the_first_asks_for_one() -> None:
    Walked.made = Walked.held = 0
    found = measured(averse(), Walked(USERS, 7))
    assert found.truth.tolist() == [slow(USERS)]
    assert (Walked.made, Walked.held) == (2 * -(-len(USERS) // 7), 0)
    first = walked(Above().of, USERS)
    assert measured(averse(), Walked(USERS, 7), first).truth.tolist() == [slow(USERS)]
    assert Walked.made == 3 * -(-len(USERS) // 7)


class FoundKeys(Found):
    @property
    def support(self) -> Keys:
        return Keys.of(["a"])


class Finding(Above):
    def finish(self, total: Summary) -> Measured:
        return FoundKeys(total.sums["events"])


def test_who_finds_keys_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session sorts them by that: in which order they were found is private."""
    monkeypatch.setattr(Averse, "measure", lambda self: Finding())
    with pytest.raises(TypeError, match=r"FoundKeys has a support: Finding.finds_keys"):
        measured(averse(), USERS)
    monkeypatch.setattr(Finding, "finds_keys", True)
    assert measured(averse(), USERS).support == Keys.of(["a"])


def test_users_are_measured_while_they_are_walked() -> None:
    Walked.made = 0
    users = Watched(Walked(USERS, 7), total)
    first = next(users.blocks())
    assert len(first) == 7
    assert users.total.n_users == len(USERS)  # nobody walked them to the end: they are walked
    users = Watched(Walked(USERS, 7), total)
    Walked.made = 0
    assert sum(len(b) for b in users.blocks()) == len(users) == len(USERS)
    assert np.array_equal(users.total.sums["count"], total(USERS).sums["count"])
    assert sum(len(b) for b in users.blocks()) == len(USERS)
    assert Walked.made == 2 * -(-len(USERS) // 7)
    assert Watched(USERS.none, total).total.n_users == 0


@pytest.mark.parametrize("more", [{}, {"nodes": 3}, {"fold": False}, {"clients": "aggregate"}])
def test_a_run_measures_its_users_as_they_answer(more: dict[str, object]) -> None:
    Walked.made = 0
    protocol, users = BoundedHistogram.example(), Walked(USERS, 7)
    outcome = execute(protocol, users, Options(seed=1, beside=total, **more))  # type: ignore[arg-type]
    assert outcome.measured is not None
    assert np.array_equal(outcome.measured.sums["count"], total(USERS).sums["count"])
    assert outcome.seconds.keys() == {"run", "measure"}
    plain = execute(protocol, users, Options(seed=1, **more))  # type: ignore[arg-type]
    assert (plain.measured, plain.seconds.keys()) == (None, {"run"})
    assert np.array_equal(np.asarray(plain.estimate.value), np.asarray(outcome.estimate.value))
    blocks = sum(-(-len(n) // 7) for n in users.split(int(str(more.get("nodes", 1)))))
    assert Walked.made == 2 * blocks, "measuring made users anew"


def test_users_are_measured_once_in_many_rounds() -> None:
    from fedhist.protocols import AdaptiveHistogram

    times = []

    def beside(users: Users) -> Summary:
        times.append(len(users))
        return total(users)

    protocol = AdaptiveHistogram(BoundedHistogram.example().domain, epsilon=1.0)
    outcome = execute(protocol, Walked(USERS, 7), Options(seed=1, beside=beside))
    assert len(outcome.rounds) == 2
    assert sum(times) == len(USERS)


def test_all_records_at_once_are_refused_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(BoundedHistogram):
        def measure(self) -> None:
            return None

    p, users = BoundedHistogram.example(), USERS
    protocol = Rows(p.domain, epsilon=1.0, clip=3.0)
    monkeypatch.setattr(measures, "MOST_ROWS", len(users))
    check_rows(protocol, len(users))
    monkeypatch.setattr(measures, "MOST_ROWS", len(users) - 1)
    for call in (lambda p, u: check_rows(p, len(u)), measured):
        with pytest.raises(PopulationError, match=f"bounded-histogram needs all.*got {len(users)}"):
            call(protocol, users)
    check_rows(averse(), len(USERS))


def test_a_loss_takes_what_was_measured() -> None:
    protocol = averse()
    estimate = Estimate.ok(np.array([1.0]))
    Walked.made = 0
    known = measured(protocol, USERS)
    users = Walked(USERS)
    assert protocol.loss_of(estimate, users, known=known) == abs(1.0 - slow(USERS))
    assert protocol.loss_of(estimate, users, np.array([3.0]), known) == 2.0
    assert Walked.made == 0
    assert protocol.loss_of(estimate, users) == abs(1.0 - slow(USERS))
    assert Walked.made == 2
