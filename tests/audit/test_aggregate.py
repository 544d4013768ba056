"""Aggregate runs as the server sees them. Honest audits: false alarm below 1e-8 in this file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import query_digest
from fedhist.privacy.aggregation import Aggregation
from fedhist.protocols import BoundedHistogram, ItemHistogram
from simulations.audit.asked import asked_of
from simulations.audit.bounds import ALPHA
from simulations.audit.finding import Settings, exit_status
from tests.audit.changes import Changes
from tests.audit.trust.aggregate import audit_aggregate, claim_of, kinds, moves_of, worst_of
from tests.audit.trust.server_view import exact_integers, see

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
    """One of each way, all consistent; by draws much of the claim is found."""
    found = list(audit_aggregate(PROTOCOL, Settings(effort=1 / 4)))
    assert [f.kind for f in found] == ["exact", "statistical", "structural", "structural"]
    assert exit_status(found) == 0
    assert found[1].confidence == 1 - ALPHA
    assert found[1].certified > 0.5 * found[1].epsilon


def test_gaussian_totals() -> None:
    """On a grid: within the margin of a wide Gaussian of the claim."""
    central = BoundedHistogram.example()
    grid = central.clip / 1024
    protocol = replace(central, trust=Aggregation(10), grid=grid, delta=1e-6)
    found = list(audit_aggregate(protocol, Settings(effort=1 / 64)))
    assert exit_status(found) == 0
    assert 0.99 * central.epsilon < found[0].certified <= central.epsilon


def test_the_server_is_left_with_m_shares() -> None:
    """The script gets the quorum's total; the colluder's share is known, and taken off."""
    assert isinstance(QUERY, Aggregated)
    users, digest = PROTOCOL.example_users(), query_digest(QUERY, 0)
    exact = exact_integers(QUERY, users)
    left, total = [], []
    for seed in range(400):
        seen = see(QUERY, exact, seed, digest)
        left.append(seen.left - exact)
        total.append(np.concatenate([a.ravel() for a in seen.summary.sums.values()]) - exact)
    spread = np.var(left), np.var(total)
    shares = QUERY.shares
    for found, m in zip(spread, (8, 9), strict=True):
        # 1,000 numbers and more: five standard errors, heavy tails included, are below 60 %
        assert abs(found / shares.std(m) ** 2 - 1) < 0.6
    assert np.var(np.subtract(total, left)) > 0


def test_other_trust_has_no_such_findings() -> None:
    """A central protocol has no totals of shares."""
    assert not list(audit_aggregate(replace(PROTOCOL, trust=None), Settings()))
