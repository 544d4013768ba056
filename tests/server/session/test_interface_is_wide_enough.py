"""A throw-away protocol that uses the interface hard; see tests/throwaway.py."""

from __future__ import annotations

import dataclasses
from types import ModuleType

import numpy as np

import fedhist
from fedhist.model.protocol import EXIT_CODES
from fedhist.users.batch import Users
from simulations.runs.options import Options
from simulations.runs.run import execute


def test_too_few_users_are_refused_before_anything_is_asked(throwaway: ModuleType) -> None:
    protocol = throwaway.PrivateMedian(epsilon=0.1, n_users=159)
    asked = []
    session_users = throwaway.PrivateMedian.example_users()
    outcome = execute(protocol, session_users, Options(seed=1, progress=lambda *a: asked.append(a)))
    estimate = outcome.estimate
    assert estimate.status == "refused"
    assert estimate.value is None
    assert "at least 160 are needed" in estimate.reason
    assert asked == []
    assert estimate.ledger.entries == ()
    assert estimate.ledger.spent().epsilon == 0.0
    assert EXIT_CODES[estimate.status] == 3


def test_may_fail_after_spending(throwaway: ModuleType) -> None:
    """All users are at the two ends: 0 are near the middle; P(noise >= 40 at b = 1) < 1e-17."""
    n = 201
    values = np.where(np.arange(n) % 2, -0.99, 0.99)
    users = Users.from_samples(
        np.arange(n, dtype=np.uint64), np.arange(n + 1), values, unusable=True
    )
    # the median lies at an end, so ask that nearly everybody is near it
    protocol = dataclasses.replace(throwaway.PrivateMedian.example(), least_share=0.8)
    estimate = fedhist.run(protocol, users, seed=2)
    assert estimate.status == "failed"
    assert estimate.value is None
    assert estimate.reason
    assert estimate.ledger.spent().epsilon == 2.0
    assert EXIT_CODES[estimate.status] == 4
