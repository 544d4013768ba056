"""The average of users: exact sensitivities, budgets of every branch, and what the tests see."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from fedhist.base.arrays import Integers
from fedhist.base.errors import WireError
from fedhist.model.query import Report, Summary
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, zcdp_rho
from fedhist.protocols.distributions.ragged.choice import (
    fit_of,
    selection_plan,
    selection_scores,
)
from fedhist.protocols.distributions.ragged.encodings import RaggedCounts
from fedhist.protocols.distributions.ragged.own_shares import (
    STEPS,
    OwnShares,
    gap_sensitivity,
    gap_steps,
)
from fedhist.protocols.distributions.ragged.ragged_distribution import RaggedDistribution
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from fedhist.users.streams import SeededStreams, Streams
from server.distributions.fit_statistic import STEPS as FIT_STEPS
from tests.protocols.running import result as run

REPLACE, ADD = Adjacency.REPLACE_USER, Adjacency.ADD_REMOVE_USER
K3 = Keys.of(["a", "b", "お茶"])


def users_of(table: Any) -> Users:
    """Users with these counts, a row each, over Keys.range."""
    counts = np.asarray(table)
    user, item = np.nonzero(counts)
    ids, names = user_ids(Keys.range(len(counts))), Keys.range(counts.shape[1])
    return Users.from_counts(ids, user, item, counts[user, item], names)


def streams(some: Users) -> Streams:
    return SeededStreams(some.ids, 0, "x")


def alike(k: int, sizes: Integers, seed: int = 1, turned: float = 0.0) -> Users:
    """Users of one Zipf(1) distribution; ``turned``: the smallest ones draw from its reverse."""
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, k + 1)
    p /= p.sum()
    limit = np.quantile(sizes, turned) if turned else 0
    return users_of([rng.multinomial(m, p[::-1] if m < limit else p) for m in sizes])


def tables(most: int) -> list[tuple[int, ...]]:
    return [row for row in product(range(most + 1), repeat=3) if sum(row) <= most]


# -- own shares ------------------------------------------------------------------------------------


def test_own_shares_are_exact_up_to_a_step() -> None:
    users = users_of([[3, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1 << 30]])
    query = OwnShares(users.vocabulary)
    report = query.answer(users, streams(users))
    query.check(report)
    summary = query.fold(report)
    query.check_summary(summary)
    folded = query.answer_folded(users, streams)
    assert np.array_equal(folded.sums["steps"], summary.sums["steps"])
    exact = np.array([3 / 4 + 1 / 3, 1 / 4 + 1 / 3, 1 / 3 + 1]) * STEPS
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
        rows.append(query.answer_folded(users_of([row]), streams).sums["steps"])
    if adjacency is ADD:
        worst = max(int(np.abs(a).sum()) for a in rows)
    else:
        worst = max(int(np.abs(a - b).sum()) for a, b in product(rows, repeat=2))
    assert worst == OwnShares(Keys.range(3)).l1_sensitivity(adjacency)
    assert OwnShares(Keys.of(["a"])).l1_sensitivity(REPLACE) == STEPS


def test_large_users_are_summed_apart() -> None:
    users = users_of([[2, 0, 0], [1, 3, 0], [0, 0, 5], [0, 0, 0]])
    query = OwnShares(users.vocabulary, 4)
    summary = query.fold(query.answer(users, streams(users)))
    query.check_summary(summary)
    folded = query.answer_folded(users, streams)
    for part in ("steps", "large", "users"):
        assert np.array_equal(folded.sums[part], summary.sums[part])
    assert summary.sums["large"].tolist() == [STEPS // 4, STEPS * 3 // 4, STEPS]
    assert summary.sums["users"].tolist() == [3, 2]
    # 2 of 3 users are large: || 2 (1 + 1/4, 3/4, 1) / 3 - (1/4, 3/4, 1) ||_1
    assert gap_steps(summary) == round(STEPS * (7 / 12 + 1 / 4 + 1 / 3))


def test_rows_and_sums_that_no_user_sends() -> None:
    users = users_of([[2, 0, 0], [1, 3, 0]])
    query = OwnShares(users.vocabulary, 2)
    good = query.answer(users, streams(users))
    more = dict(good.ragged) | {"steps": np.full(3, STEPS // 2 + 1)}
    with pytest.raises(WireError, match="adds up to"):
        query.check(Report(good.ids, good.arrays, more, good.indptr))
    with pytest.raises(WireError, match="held"):
        query.check(Report(good.ids, {"held": np.full(2, 3, np.uint8)}, good.ragged, good.indptr))
    with pytest.raises(WireError, match="without items"):
        query.check(Report(good.ids, {"held": np.zeros(2, np.uint8)}, good.ragged, good.indptr))
    zeros, both = np.zeros(3, np.int64), np.array([2, 2])
    with pytest.raises(WireError, match="rows' worth"):
        query.check_summary(Summary(2, {"steps": zeros + STEPS, "large": zeros, "users": both}))
    with pytest.raises(WireError, match="larger sum"):
        query.check_summary(Summary(2, {"steps": zeros, "large": zeros + 1, "users": both}))
    with pytest.raises(WireError, match="more users"):
        query.check_summary(Summary(2, {"steps": zeros, "large": zeros, "users": both - [1, 0]}))
    with pytest.raises(ValueError, match="least"):
        OwnShares(K3, -1)


# -- the two tests ---------------------------------------------------------------------------------


def test_sums_belong_to_users_who_have_items() -> None:
    """The gap's sensitivity rests on it: rows of users who say that they hold nothing are none."""
    query = OwnShares(Keys.of(["a", "b", "c"]), least=3)
    whole = np.array([STEPS, STEPS, 0])
    for steps, large, users in (
        (whole, whole * 0, [0, 0]),
        (whole, whole * 0, [1, 0]),
        (whole, whole, [2, 1]),
    ):
        with pytest.raises(WireError, match="rows' worth"):
            query.check_summary(
                Summary(2, {"steps": steps, "large": large, "users": np.array(users)})
            )


def test_gap_fit_and_scores_move_as_far_as_is_said() -> None:
    """Every replacement of one of four users, among all records of up to 3 items of 3 symbols."""
    rng = np.random.default_rng(5)
    records, size = tables(3), 2
    choice = RaggedDistribution(Keys.range(3), 1.0, 1e-6, 4, 4).choice
    plan = selection_plan(choice, size, 4.0)
    query = RaggedCounts(Keys.range(3), size, plan.thresholds, count_kept=True)

    def found(table: Any) -> tuple[int, int, Any]:
        users = users_of(table)
        sums = OwnShares(users.vocabulary, size).answer_folded(users, streams)
        counts = query.fold(query.answer(users, streams(users)))
        scores = selection_scores(query, counts, plan, 4.0, exact=True)
        return gap_steps(sums), fit_of(query, counts)[0], scores

    gaps, fits, scores = 0, 0, 0.0
    for _ in range(12):
        table = [records[i] for i in rng.integers(0, len(records), 4)]
        base = found(table)
        for row in records:
            if sum(row) > size and sum(table[0]) > size:
                continue  # draws differ with the record: the same coins are compared
            other = found([row, *table[1:]])
            gaps = max(gaps, abs(base[0] - other[0]))
            fits = max(fits, abs(base[1] - other[1]))
            scores = max(scores, float(np.abs(base[2] - other[2]).max()))
    assert STEPS < gaps <= gap_sensitivity(4, 3)
    assert 0.5 * FIT_STEPS < fits <= FIT_STEPS + 2
    assert 0.5 < scores <= 1 + 1e-6


def settings(users: Users, **more: Any) -> RaggedDistribution:
    given = {"epsilon": 1.0, "delta": 1e-6, "m_max": 2048, "n_users": len(users)} | more
    return RaggedDistribution(users.vocabulary, **given)


def branch(users: Users, seed: int = 2, **more: Any) -> tuple[list[str], Any]:
    protocol = settings(users, **more)
    estimate = run(protocol, users, seed)
    assert estimate.status == "ok", estimate.reason
    assert estimate.truth is Truth.AVERAGE_OF_USERS
    assert estimate.ledger is not None
    # half of delta for either composition: what was released may decide by which the run holds
    spent = estimate.ledger.spent(protocol.delta / 2).epsilon
    assert 0.9 * protocol.epsilon < spent <= protocol.epsilon * (1 + 1e-9)
    return [entry.label for entry in estimate.ledger.entries], estimate


def test_every_branch_spends_what_it_may() -> None:
    """Sizes and samples enough for each; seven scales of noise between statistics and limits."""
    rng = np.random.default_rng(2)
    few = alike(30, rng.integers(1, 12, 2000))
    labels, _ = branch(few, m_max=16)
    assert labels == ["frequencies"]

    size = ["median size", "users of that size"]
    labels, estimate = branch(alike(40, np.full(3000, 1100)))
    assert labels == [*size, "fit", "gap", "selection"]
    assert not estimate.warnings

    own = np.stack([rng.multinomial(1100, rng.dirichlet(np.ones(40) / 8)) for _ in range(3000)])
    labels, estimate = branch(users_of(own))
    assert labels[:4] == [*size, "fit", "centre"]
    assert "fit is off" in estimate.warnings[0]

    apart = np.where(np.arange(1000) % 10 < 1, 3, 1100)  # 3 samples of the reversed distribution
    labels, estimate = branch(alike(20, apart, turned=0.1001))
    assert labels[:4] == [*size, "fit", "gap"]
    assert "selection" not in labels
    assert "differ from the others" in estimate.warnings[0]

    labels, estimate = branch(alike(12, rng.integers(100, 400, 20_000)))
    assert labels[:4] == [*size, "centre", "radius"]
    assert labels[-1] == "offsets"
    assert not estimate.warnings


def test_a_composition_that_a_released_number_decides_has_half_of_delta() -> None:
    """Of centred shares where n is hidden; where it is public the composition is, too."""
    users = alike(4, np.full(9, 5))
    hidden = {"adjacency": "add-remove-user", "n_users": None}
    for more, part in ((hidden, 0.5), ({}, 1.0)):
        task = settings(users, mechanism="centred", **more).average_task
        assert task.delta == part * 1e-6
        assert task.rho == pytest.approx(zcdp_rho(1.0, task.delta), rel=1e-8)


def test_users_without_items_are_left_out_and_said() -> None:
    """Half of 4000 users are empty: what is missing is 40 times the noise of the sum."""
    users = users_of(np.repeat([[3, 1], [0, 0]], 2000, axis=0))
    estimate = run(settings(users, mechanism="frequencies", project=False), users)
    assert estimate.value == pytest.approx([0.75, 0.25], abs=0.02)
    assert "% of the users have no items" in estimate.warnings[0]


@pytest.mark.parametrize("mechanism", ["frequencies", "centred", "auto"])
def test_measured_errors_of_averages_are_as_predicted(mechanism: str) -> None:
    """Mean of 20 runs within 10 % and 4.5 standard errors: false alarm 7e-6 a case."""
    rng = np.random.default_rng(4)
    users = alike(12, np.rint(rng.lognormal(4.5, 0.8, 5000)).astype(np.int64) + 1)
    protocol = settings(users, mechanism=mechanism)
    losses = [protocol.loss_of(run(protocol, users, seed), users) for seed in range(20)]
    off = abs(np.mean(losses) - protocol.error(users).expected)
    assert off < 0.1 * np.mean(losses) + 4.5 * np.std(losses) / 20**0.5
