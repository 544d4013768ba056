"""Shells around a point: which is whose, the law, and what the server reads."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clients.records.functionals import Coordinates
from fedhist.base.errors import WireError
from fedhist.model.query import Report
from fedhist.protocols.means.distance_bins import DistanceBins
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, SystemStreams

QUERY = DistanceBins(Coordinates(1), 0.1, np.array([0.25, 0.5, 1.0, 2.0]), 1.0)


def crowd(x: object) -> Users:
    values = np.asarray(x, dtype=np.float64)
    n = len(values)
    return Users.from_samples(np.arange(1, n + 1), np.arange(n + 1), values)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_declared_epsilon_suffices_and_a_smaller_one_does_not(epsilon: float) -> None:
    worst = replace(QUERY, epsilon=epsilon).finite_channel().worst()
    assert 0.99 * epsilon < worst.log_ratio <= epsilon


def test_shells_without_noise() -> None:
    x = [0.1, 0.35, 0.36, -0.39, -0.41, -0.95, np.nan, np.inf]
    users, query = crowd(x), replace(QUERY, epsilon=math.inf)
    report = query.answer(users, SystemStreams(len(x)))
    query.check(report)
    assert report.arrays["votes"].tolist() == [0, 0, 1, 1, 2, 3, 4, 2]  # 4 stands for none
    assert query.shares(query.fold(report)) == pytest.approx(np.array([2, 2, 2, 1]) / 8, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_shares_come_back(epsilon: float) -> None:
    n = 60_000
    x = np.random.default_rng(1).normal(0.1, 0.3, n)
    users, query = crowd(x), replace(QUERY, epsilon=epsilon)
    ends = np.array([math.erf(e / 0.3 / math.sqrt(2)) for e in QUERY.edges])
    true = np.diff(ends, prepend=0.0)
    folded = query.answer_folded(users, lambda c: SeededStreams(c.ids, 4, "test"))
    for summary in (folded, query.draw_summary(users, np.random.default_rng(2))):
        query.check_summary(summary)
        spread = math.sqrt(float(query.channel.variance(0.5)) / n)
        # five standard errors: below 1e-5 for all
        assert np.abs(query.shares(summary) - true).max() < 5 * spread


def test_nobody_has_no_shares() -> None:
    summary = QUERY.draw_summary(crowd([]), np.random.default_rng(0))
    assert QUERY.shares(summary).tolist() == [0.0, 0.0, 0.0, 0.0]


def test_hostile_reports_and_queries() -> None:
    users = crowd([0.0, 0.1])
    honest = QUERY.answer(users, SystemStreams(2)).arrays["votes"]
    for wrong in (np.full_like(honest, 200), honest.astype(np.int64), honest[None]):
        with pytest.raises(WireError):
            QUERY.check(Report(users.ids[: len(wrong)], {"votes": wrong}))
    for changes, said in (
        ({"edges": np.array([0.5])}, "2 to 64 float64"),
        ({"edges": np.array([0.5, 0.5])}, "increase"),
        ({"edges": np.array([0.5, np.inf])}, "finite"),
        ({"centre": math.nan}, "centre must be finite, got nan"),
        ({"functional": Coordinates(2)}, "one fold, got 2"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(QUERY, **changes)
