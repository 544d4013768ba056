"""Permanent reports: the law of a whole sequence, enumerated; and what the coins really do."""

from __future__ import annotations

import math
import re
from itertools import product

import numpy as np
import pytest
from oracle_laws import enumerated
from scipy.stats import chi2

import fedhist as fh
from clients.answers import streams
from fedhist.privacy.guarantee import zcdp_epsilon
from fedhist.protocols import BoundedHistogram, FrequencyOracle, Mean
from simulations.runs.options import Options, RepeatTable
from simulations.runs.repeat import Repeated, periods, repeat
from simulations.runs.run import execute

DOMAIN = fh.Keys.of(["a", "b", "c"])
ORACLE = FrequencyOracle(domain=DOMAIN, epsilon=1.0, kind="krr")


def holding(items: list[int]) -> fh.Users:
    n = len(items)
    return fh.Users.from_counts(range(n), range(n), items, [1] * n, DOMAIN)


def goodness(first: np.ndarray, second: np.ndarray, laws: list[np.ndarray]) -> float:
    """p-value of the table of two reports against the product of their laws."""
    counts = np.zeros((len(laws[0]), len(laws[1])))
    np.add.at(counts, (first, second), 1)
    expected = len(first) * np.outer(*laws)
    there = expected > 1
    assert not counts[~there].any()
    statistic = ((counts - expected)[there] ** 2 / expected[there]).sum()
    return float(chi2.sf(statistic, there.sum() - 1))


def test_one_report_for_one_value_and_independent_ones_for_two() -> None:
    n, query = 60_000, ORACLE.query
    sent = []
    for item in (0, 1, 0):
        users = holding([item] * n)
        sent.append(query.answer(users, streams(users, 7, "q", memoize=True)).arrays[query.sent])
    assert (sent[0] == sent[2]).all()
    rows, _ = enumerated(query.channel)
    one, other = (np.array([w / sum(row) for w in row]) for row in rows[1:3])
    assert goodness(sent[0], sent[1], [one, other]) > 1e-3
    assert goodness(sent[0][::2], sent[0][1::2], [one, one]) > 1e-3
    # coins of the user alone would tell of both values more than two draws do
    shared = [
        query.answer(u, streams(u, 7, "q")).arrays[query.sent]
        for u in (holding([i] * n) for i in (0, 1))
    ]
    assert goodness(shared[0], shared[1], [one, other]) < 1e-9


def test_words_of_records_are_equal_where_records_are() -> None:
    records = [{}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 1}, {"b": 2}, {"a": 1, "b": 2}]
    given = {f"{i}-{copy}": r for i, r in enumerate(records) for copy in range(2)}
    users = fh.Users.from_records({**given, "c": {"a": 2, "b": 1}})
    words = users.record_words()
    assert len(set(words.tolist())) == len(records) + 1
    parts = np.concatenate([users.slice(0, 5).record_words(), users.slice(5, 15).record_words()])
    assert (parts == words).all()
    samples = fh.Users.from_samples(
        range(6),
        [0, 1, 2, 4, 6, 6, 7],
        np.array([[1.0], [1.0], [1.0], [2.0], [2.0], [1.0], [-0.0]]),
    )
    one, same, _, _, _, zero = samples.record_words().tolist()
    assert one == same
    assert len(set(samples.record_words().tolist())) == 5
    assert zero == fh.Users.from_samples([0], [0, 1], np.zeros((1, 1))).record_words()[0]


@pytest.mark.parametrize(("change", "leave"), [(0.0, 0.0), (0.3, 0.0), (0.2, 0.1), (0.0, 1.0)])
def test_users_change_by_the_law_that_is_stated(change: float, leave: float) -> None:
    n = 4000
    given = holding(np.random.default_rng(1).integers(3, size=n).tolist())
    held: dict[int, set[int]] = {}
    before = given
    for t, period in enumerate(periods(given, RepeatTable(4, change, leave), 5)):
        here = period.users
        items = here.counts.item.tolist()
        for user, item in zip(here.ids.tolist(), items, strict=True):
            held.setdefault(user, set()).add(item)
        assert period.values.tolist() == [len(held[u]) for u in here.ids.tolist()]
        if t:
            gone = n - int(np.isin(before.ids, here.ids).sum())
            assert abs(gone - n * leave) <= 5 * math.sqrt(n * leave * (1 - leave))
            moved = leave + (1 - leave) * change
            assert abs(period.new - n * moved) <= 5 * math.sqrt(n * moved * (1 - moved))
        before = here


def repeated(protocol: fh.Protocol, users: fh.Users, **law: float) -> Repeated:
    return fh.run(protocol, users, seed=3, repeat=law)


def test_who_keeps_a_record_sends_one_report() -> None:
    users = holding([0] * 500 + [1] * 300 + [2] * 200)
    fresh, memoized = repeated(ORACLE, users, times=4).ways
    assert len(set(memoized.errors)) == 1
    assert len(set(fresh.errors)) == 4
    assert (memoized.most, memoized.mean) == ([1.0] * 4, [1.0] * 4)
    assert fresh.most == [1.0, 2.0, 3.0, 4.0]
    assert memoized.together == pytest.approx(memoized.errors[0])
    sent = ORACLE.query.sent
    for fold, memoize in product((True, False), repeat=2):
        options = Options(seed=3, fold=fold, memoize=memoize)
        same = execute(ORACLE, users, options).estimate.needed(sent) == memoized.estimates[0]
        assert same.all() == memoize
    _, memoized = repeated(ORACLE, users, times=4, leave=1.0).ways
    assert memoized.most == [1.0] * 4


def test_a_user_who_changes_changes_nobody_else() -> None:
    query, items = ORACLE.query, [0, 1, 2] * 40
    reports = []
    for changed in (items, [2, *items[1:]]):
        users = holding(changed)
        reports.append(query.answer(users, streams(users, 1, "q", memoize=True)).arrays[query.sent])
    assert (reports[0][1:] == reports[1][1:]).all()


def test_central_releases_are_composed_by_the_ledger() -> None:
    users = fh.population("zipf", n_users=300, d=5).load().users
    protocol = BoundedHistogram(domain=users.vocabulary, clip=5.0, epsilon=0.5, delta=1e-6)
    shown = repeated(protocol, users, times=20, change=0.1)
    (fresh,) = shown.ways
    rho = fh.run(protocol, users, seed=1).ledger.entries[0].release.rho
    assert shown.delta == pytest.approx(20e-6)
    assert fresh.most[0] <= 0.5
    assert fresh.most[-1] == pytest.approx(zcdp_epsilon(20 * rho, 20e-6))
    assert fresh.most[-1] < 5.0
    assert "trust" in shown.why


@pytest.mark.parametrize(
    ("law", "options", "why"),
    [
        ({"times": 0}, {}, "repeat.times must be a positive integer, got 0"),
        ({"change": 1.5}, {}, "repeat.change must be a number in [0, 1], got 1.5"),
        ({"changes": 0.5}, {}, "did you mean 'change'?"),
        ({}, {"runtime": "ray"}, 'set run.runtime = "inline"'),
        ({}, {"noise": "secure"}, 'set run.noise = "simulated"'),
        ({}, {"journal": "there"}, "leave run.journal out"),
    ],
)
def test_what_cannot_be_asked_is_said(law: dict, options: dict, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        fh.run(ORACLE, holding([0, 1]), repeat=law, **options)


def test_reports_are_permanent_only_where_that_is_valid() -> None:
    users = fh.population("zipf", n_users=200, d=3).load().users
    law = RepeatTable(2, 0.5)
    aggregate = repeat(execute, ORACLE, users, law, Options(clients="aggregate"))
    assert [w.name for w in aggregate.ways] == ["fresh"]
    assert "no memoized reports" in dict(aggregate.sections())["What is promised"][-1]
    with pytest.raises(ValueError, match="one by one"):
        Options(clients="aggregate", memoize=True)
    several = repeat(execute, Mean.example(), Mean.example_users(), law, Options())
    assert [w.name for w in several.ways] == ["fresh"]
