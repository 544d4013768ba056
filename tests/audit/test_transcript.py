"""Composition: what one user sends in all rounds. Honest audits: false alarm 1e-9 each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedhist.base.errors import BudgetExceeded
from fedhist.model.query import Query, Report
from fedhist.model.registry import register_query
from fedhist.protocols import Mean
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams
from simulations.audit.finding import Settings
from simulations.audit.structural import audit_structure
from simulations.audit.transcript import Asked, asked_of, audit_transcripts, rounds_of
from tests.audit.mechanisms import Rounds, Warner, people

LITTLE = Settings(effort=1 / 16)  # of transcripts: 2^13 of each record in each half
LOG3 = math.log(3)
ONE = Warner(LOG3)


def test_a_user_answers_the_rounds_of_its_cohorts_once() -> None:
    low, high = Cohort(1, 0.0, 0.5), Cohort(1, 0.5, 1.0)
    queries = (Warner(LOG3, low), Warner(LOG3, high), Warner(LOG3, low))
    for i in range(20):
        inside = bool(low.contains(np.array([i], dtype=np.uint64))[0])
        # the third question is refused: the budget is spent by the first
        assert rounds_of(queries, i, LOG3) == ((0,) if inside else (1,))
        assert rounds_of(queries, i, LOG3, guarded=False) == ((0, 2) if inside else (1,))


def test_protocols_that_ask_everybody_once_are_consistent() -> None:
    protocol = Mean.example()
    users = protocol.example_users()
    asked = asked_of(protocol, users, 1)
    assert [q.wire_name for q in asked.queries] == ["bin-votes", "clipped-mean"]
    found = audit_transcripts(protocol, users, asked, LITTLE)
    assert {f.kind for f in found} == {"composition"}
    assert [f.verdict for f in found] == ["consistent"] * 2
    assert all(1.4 < f.certified <= 2 and "add up to 2" in f.note for f in found)


def test_without_a_guard_two_rounds_cost_twice() -> None:
    protocol = Rounds(LOG3, 2)
    asked = Asked((ONE, ONE))
    (found,) = audit_transcripts(protocol, people(), asked, LITTLE, guarded=False)
    assert found.violated
    assert 1.6 < found.certified <= 2 * LOG3
    (guarded,) = audit_transcripts(protocol, people(), asked, LITTLE)
    assert not guarded.violated


def test_the_run_s_ledger_stops_a_protocol_that_overspends() -> None:
    register_query(Warner)
    protocol = Rounds(LOG3, 2)
    asked = asked_of(protocol, people(), 1)
    assert len(asked.queries) == 1
    assert isinstance(asked.end, BudgetExceeded)
    (structural,) = audit_structure(protocol, LITTLE)
    assert structural.witness is not None
    assert "ledger stops it" in structural.witness.event
    found = audit_transcripts(protocol, people(), asked, LITTLE)
    assert [(f.kind, f.violated) for f in found] == [("composition", False)]


def test_a_client_that_answers_twice_with_fresh_noise_is_caught() -> None:
    def twice(query: Query, users: Users, rng: Streams) -> Report:
        a, b = (query.answer(users, rng.substream(p)).arrays["yes"] for p in "ab")
        return Report(users.ids, {"yes": np.stack((a, b), axis=1)})

    protocol = Rounds(LOG3)
    (found,) = audit_transcripts(protocol, people(), Asked((ONE,)), LITTLE, client_half=twice)
    assert found.violated
    assert found.certified > 1.6


@pytest.mark.parametrize("promised", [2 * LOG3 + 1e-9, LOG3 * 1.5])
def test_overlapping_cohorts_cost_their_sum(promised: float) -> None:
    """Two rounds, two salts: users of both cohorts answer twice; unguarded against the sum."""
    queries = (Warner(LOG3, Cohort(1, 0.0, 0.7)), Warner(LOG3, Cohort(2, 0.0, 0.7)))
    protocol = Rounds(promised, 2)
    found = audit_transcripts(protocol, people(), Asked(queries), LITTLE, guarded=False)
    assert any(f.violated for f in found) == (promised < 2 * LOG3)
