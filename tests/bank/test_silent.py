"""Estimates that are private and silently bad: what holds them against an alternative finds them.

The auditor has nothing to say of these: they keep what they promise of privacy. What they get wrong
shows only where their runs are compared, status ok and without a warning, with what another
estimator of the same budget makes of the same users (``fedhist compare``), or with their own
prediction (``fedhist validate``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from clients.histograms.key_queries import WEIGHT, DistinctKeys
from fedhist.model.protocol import Estimate, Protocol, Script
from fedhist.protocols import PoissonCounts, UnboundedHistogram
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.session.curator import Curator
from tests.running import result, table_users, zipf_table

TEA = Keys.of(["tea"])
RUNS = 15


@dataclass(frozen=True)
class WeightsAsCounts(UnboundedHistogram):
    """The noisy weights of keys, scaled by users' average weight of an item: no counts.

    A user of fifty items has a seventh of a vote on each, and says nothing of how often it has it.
    Rerouting weight from frequent keys to rare ones would only add to that.
    """

    def rounds(self, server: Curator) -> Script:
        """Release weights, and take them for counts."""
        how = replace(self.first, epsilon=self.epsilon)
        weights = (yield DistinctKeys(how.limit)).keyed["weights"]
        noisy = server.gaussian(
            weights.values, l2_sensitivity=WEIGHT, epsilon=self.epsilon, delta=self.delta / 2
        )
        shown = np.flatnonzero(noisy >= how.threshold)
        keys = Keys.of([weights.keys[int(j)] for j in shown])
        return Estimate.ok(noisy[shown] / WEIGHT, keys=keys)


def constant(count: int, n: int) -> Users:
    """All users have so many."""
    return table_users(np.full((n, 1), count), TEA)


def mistakes() -> list[tuple[str, Protocol, Protocol, Users]]:
    """Name every mistake: the wrong protocol, the right one, and users that show it."""
    drinks = constant(10, 300)
    guarded = PoissonCounts(TEA, 1.0, n_users=300)
    long = table_users(zipf_table(3000, 80, 40.0, seed=2))
    items = UnboundedHistogram(1.0, 1e-4)
    weights = WeightsAsCounts(1.0, 1e-4)
    return [
        ("debiasing a constant", replace(guarded, guarded=False), guarded, drinks),
        ("weights taken as counts", weights, items, long),
    ]


MISTAKES = mistakes()
NAMES = [m[0] for m in MISTAKES]


def median_loss(protocol: Protocol, users: Users) -> float:
    """Median loss of some runs that say nothing of being bad."""
    runs = [result(protocol, users, seed) for seed in range(RUNS)]
    assert all(e.status == "ok" for e in runs)
    assert sum(bool(e.warnings) for e in runs) < RUNS / 2
    return float(np.median([protocol.loss_of(e, users) for e in runs]))


@pytest.mark.parametrize(("name", "wrong", "right", "users"), MISTAKES, ids=NAMES)
def test_a_silent_mistake_is_found(
    name: str, wrong: Protocol, right: Protocol, users: Users
) -> None:
    """Its runs have twice the error that the right protocol predicts for these users."""
    assert median_loss(wrong, users) > 2 * right.error(users).expected


@pytest.mark.parametrize(("name", "wrong", "right", "users"), MISTAKES, ids=NAMES)
def test_the_right_one_is_as_good_as_it_says(
    name: str, wrong: Protocol, right: Protocol, users: Users
) -> None:
    """Its mean loss is at most 1.5 times the prediction, 4.5 standard errors aside: 1e-5."""
    runs = [result(right, users, seed) for seed in range(10 * RUNS)]
    losses = [right.loss_of(e, users) for e in runs]
    told, spread = right.error(users), float(np.std(losses)) / math.sqrt(len(losses))
    assert float(np.mean(losses)) < 1.5 * told.expected + 4.5 * math.hypot(told.stderr, spread)
