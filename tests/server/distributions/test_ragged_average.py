"""The average of users: exact sensitivities, budgets of every branch, the public choice."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from clients.distributions.queries import SHARE_STEPS, OwnShares
from fedhist.base.arrays import Integers
from fedhist.base.errors import WireError
from fedhist.model.query import Report, Summary
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.distributions.ragged_distribution import RaggedDistribution
from tests.running import result as run
from tests.running import streams, table_users

REPLACE, ADD = Adjacency.REPLACE_USER, Adjacency.ADD_REMOVE_USER


def alike(k: int, sizes: Integers) -> Users:
    """Users of one Zipf(1) distribution."""
    p = 1 / np.arange(1, k + 1)
    return table_users(np.random.default_rng(1).multinomial(sizes, p / p.sum()))


def tables(most: int) -> list[tuple[int, ...]]:
    return [row for row in product(range(most + 1), repeat=3) if sum(row) <= most]


# -- own shares ------------------------------------------------------------------------------------


def test_own_shares_are_exact_up_to_a_step() -> None:
    users = table_users([[3, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1 << 30]])
    query = OwnShares(users.vocabulary)
    report = query.answer(users, streams(users))
    query.check(report)
    summary = query.fold(report)
    query.check_summary(summary)
    folded = query.answer_folded(users, streams)
    assert np.array_equal(folded.sums["steps"], summary.sums["steps"])
    exact = np.array([3 / 4 + 1 / 3, 1 / 4 + 1 / 3, 1 / 3 + 1]) * SHARE_STEPS
    off = exact - summary.sums["steps"]
    assert (off >= 0).all()
    assert (off < 3).all()


@pytest.mark.parametrize("adjacency", [REPLACE, ADD])
def test_own_shares_move_as_far_as_is_said(adjacency: Adjacency) -> None:
    """All records of up to 4 items of 3 symbols: the bound holds, and is attained."""
    records = tables(4)
    rows = []
    for row in records:
        query = OwnShares(Keys.range(3))
        rows.append(query.answer_folded(table_users([row]), streams).sums["steps"])
    if adjacency is ADD:
        worst = max(int(np.abs(a).sum()) for a in rows)
    else:
        worst = max(int(np.abs(a - b).sum()) for a, b in product(rows, repeat=2))
    assert worst == OwnShares(Keys.range(3)).l1_sensitivity(adjacency)
    assert OwnShares(Keys.of(["a"])).l1_sensitivity(REPLACE) == SHARE_STEPS


def test_rows_and_sums_that_no_user_sends() -> None:
    users = table_users([[2, 0, 0], [1, 3, 0]])
    query = OwnShares(users.vocabulary)
    good = query.answer(users, streams(users))
    more = dict(good.ragged) | {"steps": np.full(3, SHARE_STEPS // 2 + 1)}
    with pytest.raises(WireError):
        query.check(Report(good.ids, good.arrays, more, good.indptr))
    with pytest.raises(WireError):
        query.check(Report(good.ids, {"held": np.zeros(2, np.uint8)}, good.ragged, good.indptr))
    with pytest.raises(WireError, match="2 users"):
        query.check_summary(Summary(2, {"steps": np.zeros(3, np.int64) + SHARE_STEPS}))


def settings(users: Users, **more: Any) -> RaggedDistribution:
    given = {"epsilon": 1.0, "delta": 1e-6, "m_max": 2048, "n_users": len(users)} | more
    return RaggedDistribution(users.vocabulary, **given)


def branch(users: Users, seed: int = 2, **more: Any) -> tuple[list[str], Any]:
    protocol = settings(users, **more)
    estimate = run(protocol, users, seed)
    assert estimate.status == "ok", estimate.reason
    spent = estimate.ledger.spent(protocol.delta).epsilon
    assert 0.9 * protocol.epsilon < spent <= protocol.epsilon * (1 + 1e-9)
    return [entry.label for entry in estimate.ledger.entries], estimate


def test_every_branch_spends_what_it_may() -> None:
    rng = np.random.default_rng(2)
    few = alike(30, rng.integers(1, 12, 2000))
    assert branch(few, m_max=16)[0] == ["frequencies"]
    assert branch(few, m_max=16, delta=0.0)[0] == ["frequencies"]
    many = alike(12, rng.integers(100, 400, 20_000))
    labels, estimate = branch(many)
    assert labels == ["centre", "radius", "far users", "offsets"]
    assert not estimate.warnings
    own = table_users([rng.multinomial(200, rng.dirichlet(np.ones(12) / 8)) for _ in range(9000)])
    assert branch(own)[0] == ["centre", "radius", "shares"]


def test_the_average_is_chosen_by_public_numbers() -> None:
    """Offsets where users may have many samples; shares where few, or where delta is 0."""
    one = RaggedDistribution(Keys.range(50), 1.0, 1e-6, m_max=4096, n_users=20_000)
    assert one.averaging == "centred"
    assert replace(one, m_max=256).averaging == "frequencies"
    assert replace(one, delta=0.0).averaging == "frequencies"
    assert replace(one, n_users=300).averaging == "frequencies"
    assert replace(one, mechanism="frequencies").averaging == "frequencies"


def test_users_without_items_are_left_out_and_said() -> None:
    """Half of 4000 users are empty: what is missing is 40 times the noise of the sum."""
    users = table_users(np.repeat([[3, 1], [0, 0]], 2000, axis=0))
    estimate = run(settings(users, mechanism="frequencies", project=False), users)
    assert estimate.value == pytest.approx([0.75, 0.25], abs=0.02)
    assert estimate.warnings
