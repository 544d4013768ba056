"""What histograms over unknown keys add up of users: against obvious formulas, in any slices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from walked_users import Walked

from fedhist.model.measures import Measured, measured
from fedhist.model.protocol import Estimate
from fedhist.model.query import Summary
from fedhist.protocols import UnboundedHistogram
from fedhist.protocols.clip_choice.bound_scores import item_cost, lost_weight
from fedhist.protocols.clip_choice.unbounded import choice_law
from fedhist.protocols.histograms.unbounded_theory import expected_loss
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids

NAMES = ["tea", "é", "", "never", "rye", "b", "a\0b"]


def random_users(seed: int, n: int = 200) -> tuple[Users, np.ndarray]:
    """Users of a heavy tail, some without items, and their counts by name in byte order."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(rng.exponential(2.0, (n, 1)) * [3.0, 0.1, 1.0, 0.0, 2.0, 5.0, 0.4])
    table[rng.random(n) < 0.2] = 0
    user, item = np.nonzero(table)
    users = Users.from_counts(
        user_ids(Keys.range(n)), user, item, table[user, item], Keys.of(NAMES)
    )
    order = sorted((j for j in range(7) if table[:, j].any()), key=lambda j: NAMES[j].encode())
    return users, table[:, order].astype(float)


def moments(table: np.ndarray, clip: float) -> tuple[np.ndarray, np.ndarray]:
    m = table.sum(axis=1, keepdims=True)
    p = np.minimum(1.0, clip / np.maximum(m, 1.0))
    variance = p * (1 - p) * table * (m - table) / np.maximum(m - 1, 1)
    return (p * table).sum(axis=0), variance.sum(axis=0)


def slow(protocol: UnboundedHistogram, table: np.ndarray) -> float:
    """Mix the errors over the law of the choice, one threshold at a time."""
    truth = table.sum(axis=0)
    if protocol.clip is not None:
        clips, law = [protocol.clip], np.ones(1)
    else:
        task = protocol.task
        clips, m = list(task.thresholds), table.sum(axis=1)
        lost = np.array([np.maximum(np.minimum(m, clips[-1]) - c, 0).sum() for c in clips])
        cost = [
            item_cost(task.score, moments(table, c)[0], t, b).sum()
            for c, t, b in zip(clips, *task.levels(tuple(clips)), strict=True)
        ]
        above = np.array([(m > c).sum() for c in clips])
        law = choice_law(task, above, lost_weight(task.score) * lost + cost)
    return sum(
        q * expected_loss(truth, *moments(table, c), protocol.release_at(c))
        for c, q in zip(clips, law, strict=True)
        if q > 1e-9
    )


def ways(protocol: UnboundedHistogram, users: Users) -> Iterator[Measured]:
    yield measured(protocol, users)
    measure = protocol.measure()
    parts = [measure.of(users.slice(a, b)) for a, b in pairwise([0, 3, 3, 50, 151, 152, 190, 200])]
    yield measured(protocol, users, Summary.merge(parts))
    yield measured(protocol, Walked(users, 13))


CASES = [
    UnboundedHistogram(1.0, 1e-3, clip=4),
    UnboundedHistogram(1.0, 1e-3, clip=2000),
    UnboundedHistogram(2.0, 1e-3, clip=5, discrete=False, adjacency="replace-user"),
    UnboundedHistogram(3.0, 1e-3, method="sample", clip_max=40),
    UnboundedHistogram(3.0, 1e-3, threshold="exact-range", clip_max=40),
    UnboundedHistogram(math.inf, 1e-3, method="sample", clip_max=40),
]


@pytest.mark.parametrize("protocol", CASES)
def test_against_all_records_at_once(protocol: UnboundedHistogram) -> None:
    for seed in (1, 2):
        users, table = random_users(seed)
        want, names = slow(protocol, table), sorted(set(NAMES) - {"never"}, key=str.encode)
        for known in ways(protocol, users):
            assert known.support is not None
            assert list(known.support) == names
            assert known.truth.tolist() == table.sum(axis=0).tolist()
            assert known.error.expected == pytest.approx(want, rel=1e-12)
            assert known.error.exact is (protocol.clip == 2000)


def test_keys_first_are_the_same_in_any_slices() -> None:
    protocol = UnboundedHistogram(4.0, 1e-3)
    users, table = random_users(1)
    found = list(ways(protocol, users))
    assert all(f.truth.tolist() == table.sum(axis=0).tolist() for f in found)
    errors = [f.error.expected for f in found]
    assert errors == pytest.approx([errors[0]] * 3, rel=1e-12)
    assert 0 < errors[0] < table.sum()
    one = Estimate.ok(np.array([3.0]), keys=Keys.of(["rye"]))
    at = list(found[0].support or ()).index("rye")
    want = table.sum() - table[:, at].sum() + abs(3.0 - table[:, at].sum())
    assert protocol.loss_of(one, Walked(users, 7), known=found[0]) == want


def test_nobody_has_anything() -> None:
    users = Users.from_records({"ann": {}, "bob": {}})
    for protocol in (UnboundedHistogram(1.0, 1e-3), *CASES):
        known = measured(protocol, users)
        assert (len(known.support or ()), known.truth.tolist(), known.error.expected) == (
            0,
            [],
            0.0,
        )
