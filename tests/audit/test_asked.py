"""The example run that every audit begins with."""

from __future__ import annotations

import math

from fedhist.base.errors import BudgetExceeded
from fedhist.model.registry import register_query
from simulations.audit.asked import asked_of
from simulations.audit.finding import Settings
from simulations.audit.structural import audit_structure
from tests.audit.mechanisms import Rounds, Warner, people

LOG3 = math.log(3)


def test_the_run_s_ledger_stops_a_protocol_that_overspends() -> None:
    register_query(Warner)
    protocol = Rounds(LOG3, 2)
    asked = asked_of(protocol, people(), 1)
    assert len(asked.queries) == 1
    assert isinstance(asked.end, BudgetExceeded)
    (structural,) = audit_structure(protocol, Settings())
    assert structural.witness is not None
    assert "ledger stops it" in structural.witness.event
