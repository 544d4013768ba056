"""What frequency oracles add up of users: against their records, in any slices and blocks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from walked_users import Walked

from fedhist.base.errors import PopulationError
from fedhist.model.evaluation import first_pass, measured
from fedhist.model.query import Summary
from fedhist.protocols import FrequencyOracle
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from server.targets.lower_bounds import share_bounds
from server.targets.sample_sizes import Held

DOMAIN = Keys.of(["f", "b", "a", "elsewhere", "d"])
VOCABULARY = Keys.of(["a", "b", "c", "d", "e", "f", "g"])


def random_users(seed: int, n: int = 300) -> tuple[Users, np.ndarray]:
    """Users, some without items, and their counts of the domain."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(rng.exponential(1.0, (n, 1)) * [3.0, 0.1, 1.0, 2.0, 0.0, 5.0, 0.4])
    table[rng.random(n) < 0.2] = 0
    user, item = np.nonzero(table)
    users = Users.from_counts(user_ids(Keys.range(n)), user, item, table[user, item], VOCABULARY)
    order = np.argsort(user_ids(Keys.range(n)), kind="stable")
    at = [VOCABULARY.position(k) if k in set(VOCABULARY) else 4 for k in DOMAIN]  # nobody has e
    return users, table[order][:, at]


def test_against_all_records_at_once() -> None:
    protocol = FrequencyOracle(epsilon=1.0, domain=DOMAIN)
    a, b = protocol.query.channel.noise
    for seed in (1, 2):
        users, table = random_users(seed)
        n, totals = table.sum(axis=1), table.sum(axis=1, keepdims=True)
        share = np.divide(table, totals, out=np.zeros(table.shape), where=totals > 0)
        variance = (a + b * share - share**2).sum() / len(users) ** 2
        measure = first_pass(protocol)
        edges = [0, 3, 3, 50, 211, 212, 290, 300]
        parts = [measure(users.slice(i, j)) for i, j in pairwise(edges)]
        ways = [
            measured(protocol, users),
            measured(protocol, users, Summary.merge(parts)),
            measured(protocol, users, Summary.merge([parts[-1], *parts[:-1]])),
            measured(protocol, Walked(users, 13)),
        ]
        for known in ways:
            assert known.truth == pytest.approx(share.mean(axis=0), rel=1e-12, abs=0)
            assert known.error.expected == pytest.approx(variance, rel=1e-12)
            assert known.error.exact
            assert known.diagnostics == {"users without items": float((n == 0).sum())}
            held = Held.of(users)
            bounds = share_bounds(protocol.guarantee, held, (0.0, 0.0), "squared l2", 2)
            assert known.lower_bounds == bounds != ()
            assert (known.support, known.resolution) == (None, 0.0)
    with pytest.raises(PopulationError, match="no users"):
        _ = measured(protocol, users.none).truth
