"""Aggregate runs as the server sees them."""

from __future__ import annotations

from dataclasses import replace

from fedhist.privacy.aggregation import Aggregation
from fedhist.protocols import BoundedHistogram, ItemHistogram
from simulations.audit.asked import asked_of
from simulations.audit.finding import Settings, exit_status
from tests.audit.changes import Changes
from tests.audit.trust.aggregate import audit_aggregate, claim_of, kinds, moves_of, worst_of

PROTOCOL = replace(ItemHistogram.example(), trust=Aggregation(10))
QUERY = kinds(asked_of(PROTOCOL, PROTOCOL.example_users(), 0).queries)[0]


def test_every_admissible_total_keeps_the_claim_and_a_smaller_one_does_not() -> None:
    """8 to 10 shares; the sensitivity is attained, so that the claim is tight for the 8."""
    changes = Changes.of(PROTOCOL, [QUERY.query])
    moves = moves_of(QUERY, changes)
    epsilon, _ = claim_of(QUERY)
    worst = [worst_of(QUERY, moves, m)[0] for m in (7, 8, 9, 10)]
    assert worst[0] > epsilon
    assert all(epsilon * (1 - 1e-5) < w <= epsilon for w in worst[1:])


def test_findings_of_a_correct_total() -> None:
    found = list(audit_aggregate(PROTOCOL, Settings(effort=1 / 4)))
    assert [f.kind for f in found] == ["exact", "structural"]
    assert exit_status(found) == 0


def test_gaussian_totals() -> None:
    """On a grid: within the margin of a wide Gaussian of the claim."""
    central = BoundedHistogram.example()
    grid = central.clip / 1024
    protocol = replace(central, trust=Aggregation(10), grid=grid, delta=1e-6)
    found = list(audit_aggregate(protocol, Settings(effort=1 / 64)))
    assert exit_status(found) == 0
    assert 0.99 * central.epsilon < found[0].certified <= central.epsilon


def test_other_trust_has_no_such_findings() -> None:
    """A central protocol has no totals of shares."""
    assert not list(audit_aggregate(replace(PROTOCOL, trust=None), Settings()))
