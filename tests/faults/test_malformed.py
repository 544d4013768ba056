"""Malformed messages: refused one by one, and counted."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedhist as fh
from clients.answers import streams
from clients.few_users.queries import UserMeans
from fedhist.model.registry import protocol_class
from server.intake import take_rows, well_formed
from simulations.runs.options import Options
from simulations.runs.run import open_session
from simulations.runtimes.inline import InlinePopulation
from tests.faults.attacks import CASES, SEED, Adversary, assert_same, honest, hostile, left
from tests.faults.malformed import FORMS, malform_report, malform_summary


@pytest.mark.parametrize("case", CASES)
def test_malformed_messages_are_dropped_and_counted(case: str) -> None:
    protocol, users = CASES[case]
    table = Adversary("malformed", 0.2)
    result = hostile((protocol, users), table)
    assert_same(result.estimate, honest(protocol, left(users, table)))
    assert result.adversaries["injected"] == {"malformed": len(users) // 5}
    assert sum(result.adversaries["dropped"].values()) == len(users) // 5


def test_stop_ends_the_run() -> None:
    with pytest.raises(fh.MissingReplies, match="1 of 1 replies"):
        hostile(CASES["histogram"], Adversary("malformed", 0.1), on_bad_reply="stop")


def test_every_query_sees_every_form(protocol_name: str) -> None:
    """Whatever honest users send: all eight forms are refused, by WireError and nothing else."""
    cls = protocol_class(protocol_name)
    protocol, users = cls.example(), cls.example_users()
    session, _ = open_session(protocol, Options(seed=SEED))
    population = InlinePopulation([users], SEED)
    recorded = 0
    while session.query is not None and recorded < 3:
        query, number = session.query, session.round_index
        asked = users.select(query.cohort).slice(0, 5)
        report = query.answer(asked, streams(asked, SEED, "x"))
        assert well_formed(query, report)[0].all()
        query.check(take_rows(report, np.arange(0)))  # which well_formed relies on
        summary = population.ask(query, number)
        for form in FORMS:
            good, reasons = well_formed(query, malform_report(report, form))
            assert not good.any(), (query.wire_name, form)
            assert sum(reasons.values()) == len(asked)
            with np.errstate(over="ignore"), pytest.raises(fh.WireError):
                query.check_summary(malform_summary(summary, form))
        session.advance(summary)
        recorded += 1
    assert recorded or session.estimate is not None


def test_sifting_equals_checking_one_by_one() -> None:
    rng = np.random.default_rng(1)
    query = UserMeans(2, 1.0)
    for share in (0.0, 0.1, 0.5, 1.0):
        rows = rng.uniform(-0.7, 0.7, (97, 2))
        rows[rng.random(97) < share] = [3.0, math.nan]
        report = fh.Report(np.arange(97, dtype=np.uint64), {"mean": rows})
        good, reasons = well_formed(query, report)
        slow = []
        for i in range(97):
            try:
                query.check(take_rows(report, np.array([i])))
                slow.append(True)
            except fh.WireError:
                slow.append(False)
        assert good.tolist() == slow
        assert sum(reasons.values()) == 97 - sum(slow)
