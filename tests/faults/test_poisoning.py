"""Poisoning: what a message of the alphabet can gain, and what a robust estimator stands."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedhist as fh
from clients.localize.queries import BinVotes
from server.intake import take_rows
from simulations.adversaries import Adversary
from simulations.adversaries.assigned import poisoned
from simulations.adversaries.gain import best_messages
from tests.faults.attacks import (
    CASES,
    COUNTS,
    HISTOGRAM,
    assert_same,
    chosen,
    coins,
    honest,
    hostile,
    left,
    people,
    shoppers,
)
from tests.running import count_table


def test_input_poisoning_is_another_population() -> None:
    for (protocol, users), target in ((CASES["mean"], 0.9), (CASES["histogram"], "c")):
        table = Adversary("input-poisoning", 0.2, target=target)
        bad = chosen(users, table)
        other = poisoned(users, bad, target)
        result = hostile((protocol, users), table)
        assert_same(result.estimate, honest(protocol, other))
        assert result.adversaries == {
            "injected": {"input-poisoning": len(users) // 5},
            "dropped": {},
        }
        if users.samples is not None:
            mine = np.repeat(bad, users.n_items())[:, None]
            assert np.array_equal(other.reals.values, np.where(mine, target, users.reals.values))
        else:
            before, after = count_table(users, COUNTS), count_table(other, COUNTS)
            assert np.array_equal(after, np.where(bad[:, None], [0, 0, 2**31], before))
    with pytest.raises(ValueError, match="'d'"):
        hostile(CASES["histogram"], Adversary("input-poisoning", 0.2, target="d"))
    with pytest.raises(ValueError, match="target"):
        hostile(CASES["mean"], Adversary("input-poisoning", 0.2, target="d"))


def test_a_poisoner_gains_its_clip_and_no_more() -> None:
    """Central: m users of the item move its total by m C, less what they would have sent."""
    users = shoppers()
    table = Adversary("output-poisoning", 0.2, target="c")
    result = hostile((HISTOGRAM, users), table).estimate.value
    expected = honest(HISTOGRAM, left(users, table)).value + np.array([0.0, 0.0, 40 * 4.0])
    assert np.array_equal(result, expected)


def test_maximal_gain_of_a_vote() -> None:
    """Of all 2^5 messages none favours the target more; the gain is 1 / (n tau) a bit."""
    n, query = 50, BinVotes(fh.Coordinates(1, 0.0, 1.0), 5, 1.0)
    users = people(n, np.linspace(0, 1, n))
    report = query.answer(users, coins(users))
    wish = poisoned(users, np.arange(n) == 0, 0.7)  # the fourth of five bins
    best = best_messages(query, wish.slice(0, 1), coins(wish.slice(0, 1)))
    query.check(best)
    rest = take_rows(report, np.arange(1, n))

    def signs(word: int) -> np.ndarray:
        votes = np.concatenate((rest.arrays["votes"], np.array([[word]], np.uint64)))
        return query.frequencies(query.fold(fh.Report(users.ids, {"votes": votes})))[0]

    def lead(f: np.ndarray) -> float:
        return float(f[3] - np.delete(f, 3).sum())

    leads = [lead(signs(w)) for w in range(32)]
    assert int(np.argmax(leads)) == int(best.arrays["votes"][0, 0]) == 8
    tau = fh.UnaryChannel(1.0).tau
    assert math.isclose(signs(8)[3] - signs(0)[3], 1 / (n * tau), rel_tol=1e-9)


def test_half_is_too_many() -> None:
    with pytest.raises(ValueError, match=r"0\.5"):
        Adversary("corrupted", 0.5)
