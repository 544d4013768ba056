"""Private choice of a contribution bound: its exact law, its privacy, the query behind it."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from clients.bounding.size_curves import SHARE
from fedhist.base.errors import WireError
from fedhist.model.query import Keyed, Report, Summary
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from fedhist.privacy.ledger import Ledger
from fedhist.protocols.clip_choice.unbounded import (
    PAPER_GRID,
    BoundTask,
    SizeCurves,
    choose_bound,
)
from fedhist.protocols.shared.item_rows import pack_records
from fedhist.session.codec import decode_query, encode_fields
from fedhist.session.curator import Curator
from fedhist.session.journal import Journal
from fedhist.users.batch import Users
from server.noise import SimulatedNoise
from simulations.experiments.unbounded_domain import choice_of, scores_of
from simulations.populations.paper_non_iid import PaperNonIid
from simulations.runtimes.inline import InlinePopulation
from tests.protocols.running import streams, table_users, zipf_table

ZERO, REPLACE, ADD = Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER, Adjacency.ADD_REMOVE_USER
INF = math.inf


TASK = BoundTask(20, "ramp", "exact", True, 0.6, 3.0, 0.05, ZERO, per_octave=2)
PRINTED = replace(TASK, score="union", range="paper", adaptive=False)
TASKS = [
    replace(TASK, score=score, adaptive=adaptive, adjacency=adjacency)
    for score, adaptive, adjacency in itertools.product(
        ("ramp", "union"), (False, True), (ZERO, REPLACE)
    )
] + [PRINTED, replace(PRINTED, adjacency=REPLACE)]


def of(rows):
    return Users.from_records({f"u{i}": row for i, row in enumerate(rows)})


def zipf(n, d=40, mean=8.0, seed=0):
    return table_users(zipf_table(n, d, mean, seed))


def run(task, users, noise, nodes=1):
    """Run the part of a script; returns its choice and what it spent."""
    guarantee = Guarantee(task.epsilon, 0.0, Trust.CENTRAL, task.adjacency)
    server = Curator(Ledger(guarantee), noise, Journal())
    script = choose_bound(task, server)
    population = InlinePopulation(users.split(nodes), 1)
    summary, asked = None, 0
    while True:
        try:
            query = next(script) if summary is None else script.send(summary)
        except StopIteration as stop:
            assert asked == task.rounds
            return stop.value, server.ledger.spent()
        summary = population.ask(query, asked)
        query.check_summary(summary)
        asked += 1


def law(task, users):
    """The exact law of the implementation: run it with every outcome of its first draw."""
    out = np.zeros(len(task.thresholds))

    def one(first):
        weights = []

        def exponential(logits):
            w = np.exp(logits - logits.max())
            weights.append(w / w.sum())
            return first if task.adaptive and len(weights) == 1 else 0

        noise = SimpleNamespace(exponential=exponential, grade="simulated")
        choice, spent = run(task, users, lambda i: noise)
        assert spent.basic_epsilon == task.epsilon
        assert choice.clip == 1.0
        return weights

    for k in range(len(out)) if task.adaptive else [len(out) - 1]:
        weights = one(k)
        weight = weights[0][k] if task.adaptive else 1.0
        assert len(weights[-1]) == k + 1
        out[: k + 1] += weight * weights[-1]
    return out


# -- law and privacy -----------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_the_law_is_the_predicted_one(task):
    for users in (zipf(60), of([{"a": 300, "お茶": 2}, {"b": 1}, {}]), of([{}, {}])):
        grid, p = np.array(task.thresholds), choice_of(task, users)
        assert grid.tolist() == list(task.thresholds)
        assert p.sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(law(task, users), p, rtol=1e-5)


RECORDS = [
    {},
    {"x": 1},
    {"new": 20},
    {"x": 25, "y": 25},
    {f"n{j}": 1 for j in range(20)},
    {"x": 7},
    {"x": 10**9},
]
OTHERS = [
    [],
    [{"x": 20}] * 3 + [{"y": 2}] * 6,
    [{"x": 9}] * 9 + [{"y": 1, "z": 4}] * 4,
    [{f"w{j}": 30} for j in range(12)],
    [{"x": 4}] * 40 + [{"y": 30}] * 3,
]


@pytest.mark.parametrize("task", TASKS)
def test_the_choice_is_as_private_as_it_says(task):
    """Exactly, over all outcomes and small neighbouring populations."""
    worst = 0.0
    for others in OTHERS:
        laws = [law(task, of([*others, row])) for row in RECORDS]
        if task.adjacency is REPLACE:
            pairs = itertools.permutations(laws, 2)
        else:
            pairs = ((a, b) for x in laws[1:] for a, b in ((laws[0], x), (x, laws[0])))
        worst = max(worst, *(float(np.log(a / b).max()) for a, b in pairs))
    assert worst <= task.epsilon + 1e-9
    # not for nothing either: the exact ranges use most of the budget, the printed one wastes it
    if task.range == "exact":
        assert worst > 0.25 * task.epsilon
    else:
        assert worst < 0.41 * task.epsilon


def test_the_empty_user_and_nobody_are_the_same():
    """Add-remove is calibrated as zeroing out: the empty record changes nothing."""
    for task in TASKS:
        rows = OTHERS[1]
        assert np.array_equal(law(task, of(rows)), law(task, of([*rows, {}])))
        added = replace(task, adjacency=ADD)
        if task.adjacency is ZERO:
            assert np.array_equal(law(added, of(rows)), law(task, of(rows)))


def test_the_printed_mechanism_is_two_and_a_half_times_as_flat():
    users = zipf(80)
    grid = (1, 2, 4, 8, 16, 20)
    printed = replace(PRINTED, grid=grid, adjacency=REPLACE)
    p = law(printed, users)
    # the exact range at 2 / 5 of epsilon has the same weights, if only the levels are the printed
    score = scores_of(printed, users)
    w = np.exp(-0.4 * printed.epsilon * (score - score.min()) / (2 * 20))
    np.testing.assert_allclose(p, w / w.sum(), rtol=1e-6)


# -- usefulness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["ramp", "union"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_without_noise_nothing_is_cut(score, adaptive):
    """The law that protocols without noise are exact: the bound reaches the largest user."""
    task = replace(
        TASK, score=score, adaptive=adaptive, epsilon=INF, release_epsilon=INF, clip_max=1500
    )
    for users in (
        zipf(300),
        of([{"a": 1}]),
        of([{}]),
        of([{"a": 1, "b": 1}] * 5),
        of([{"a": 999}]),
    ):
        largest = np.diff(np.concatenate(([0], np.cumsum(users.counts.count)))[users.counts.indptr])
        choice, _ = run(task, users, lambda i: SimulatedNoise(1, i))
        assert choice.clip >= largest.max(initial=0)
        assert choice.clip == next(c for c in task.thresholds if c >= largest.max(initial=0))
        grid, p = np.array(task.thresholds), choice_of(task, users)
        assert p[grid.tolist().index(choice.clip)] == 1.0


def test_argmin_where_only_the_choice_is_free():
    """Choice without noise, release with: the least score, not the largest user."""
    users = zipf(2000, mean=30.0)
    task = replace(TASK, epsilon=INF, adaptive=False, clip_max=1000, release_epsilon=0.1)
    choice, _ = run(task, users, lambda i: SimulatedNoise(1, i))
    assert 1 < choice.clip < 300
    assert choice_of(task, users).max() == 1.0


def test_the_adaptive_end_leaves_less_noise():
    """On users far below clip_max the private upper end pays: expected score over the least."""
    users = PaperNonIid(n_users=20_000, d=50, mean_items=20.0, seed=2).load().users
    fixed = BoundTask(1500, "ramp", "exact", False, 0.1, 0.1, 1 / 40_000, ZERO)
    score = scores_of(fixed, users)
    flat = replace(fixed, score="union", range="paper")
    excess = [
        float(choice_of(t, users) @ score - score.min()) / score.min()
        for t in (replace(fixed, adaptive=True), fixed, flat)
    ]
    assert excess[0] < 0.03  # found 0.021, 0.075 and 0.505
    assert 0.06 < excess[1] < 0.09
    assert excess[2] > 0.4


def test_folding_and_nodes_do_not_matter():
    users = zipf(500)
    for task in (TASK, PRINTED):
        choices = {
            (run(task, users, lambda i: SimulatedNoise(3, i), nodes)[0].clip) for nodes in (1, 2, 7)
        }
        assert len(choices) == 1


def test_what_is_said_in_public():
    users = of([{"a": 10**6}] * 300)
    task = replace(TASK, epsilon=INF)
    choice, _ = run(task, users, lambda i: SimulatedNoise(1, i))
    assert choice.clip == 20.0
    assert choice.public == {"clip_max": 20.0}
    assert "upper end of its grid, 20" in choice.warnings[0]
    quiet, _ = run(task, of([{"a": 3}]), lambda i: SimulatedNoise(1, i))
    assert quiet.warnings == ()
    assert quiet.public == {"clip_max": 3.0}
    assert run(PRINTED, users, lambda i: SimulatedNoise(1, i))[0].public == {}


# -- the task ------------------------------------------------------------------------------------


def test_grids():
    assert replace(TASK, clip_max=1).thresholds == (1,)
    assert replace(TASK, clip_max=2).thresholds == (1, 2)
    grid = replace(TASK, clip_max=1500, per_octave=8).thresholds
    assert grid[0] == 1
    assert grid[-1] == 1500
    assert list(grid) == sorted(set(grid))
    assert len(grid) == 68
    assert max(b / a for a, b in itertools.pairwise(grid) if a > 20) < 1.13
    assert len(PAPER_GRID) == 150
    assert replace(PRINTED, clip_max=1500, grid=PAPER_GRID).thresholds == PAPER_GRID
    assert len(replace(TASK, clip_max=2**31 - 1, per_octave=8).thresholds) < 31 * 8


@pytest.mark.parametrize(
    "bad",
    [
        {"clip_max": 0},
        {"clip_max": 2.5},
        {"clip_max": 2**31},
        {"score": "sum"},
        {"range": "tight"},
        {"range": "paper"},
        {"range": "paper", "score": "union"},
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"release_epsilon": -1.0},
        {"release_delta": 0.0},
        {"release_delta": 1.0},
        {"adjacency": "zero-out-user"},
        {"per_octave": 0},
        {"grid": (0, 1)},
        {"grid": (2, 2)},
        {"grid": (5, 4)},
        {"grid": (1, 21)},
        {"grid": (1.0, 2.0)},
    ],
)
def test_bad_tasks_are_refused(bad):
    with pytest.raises(ValueError, match=r"got|needs"):
        replace(TASK, **bad)


# -- the query -----------------------------------------------------------------------------------

QUERY = SizeCurves((1, 3, 10))
MIXED = of(
    [{}, {"お茶": 3, "": 1}, {"a\0b": 2**61, "🙂": 1}, {"tea": 1}, {"tea": 9, "お茶": 4}, {"z": 11}]
)


def same(a, b):
    assert a.n_users == b.n_users
    for name in ("users", "sizes"):
        assert a.sums[name].dtype == np.int64
        assert np.array_equal(a.sums[name], b.sums[name])
    x, y = a.keyed["shares"], b.keyed["shares"]
    assert list(x.keys) == list(y.keys)
    assert x.values.shape == y.values.shape
    assert np.array_equal(x.values, y.values)


@pytest.mark.parametrize("users", [MIXED, of([{}, {}]), MIXED.slice(0, 0), zipf(200)])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_folding_is_bit_identical(users, size):
    want = QUERY.answer_folded(users, streams)
    QUERY.check_summary(want)
    parts = []
    for batch in users.blocks(size):
        report = QUERY.answer(batch, streams(batch))
        QUERY.check(report)
        parts.append(QUERY.fold(report))
        QUERY.check_summary(parts[-1])
    if parts:
        merged = Summary.merge(parts)
        QUERY.check_summary(merged)
        same(merged, want)


def test_the_query_travels():
    text, arrays = encode_fields(QUERY)
    assert decode_query(QUERY.wire_name, text, arrays) == QUERY


def test_a_row_is_the_user_s_histogram():
    report = QUERY.answer(MIXED, streams(MIXED))
    v = MIXED.counts
    data, indptr = pack_records(v.vocabulary, v.indptr, v.item, v.count)
    assert np.array_equal(report.ragged["records"], data)
    assert np.array_equal(report.indptr, indptr)
    assert QUERY.trust is Trust.CENTRAL


def reports():
    good = QUERY.answer(MIXED, streams(MIXED))
    data, indptr = good.ragged["records"], good.indptr
    cut = indptr.copy()
    cut[1:-1] -= np.minimum(cut[1:-1], 3)
    huge = data.copy()
    huge[4:12] = 255
    yield replace(good, ragged={"records": data, "more": data})
    yield replace(good, ragged={"rows": data})
    yield Report(good.ids, {"records": np.zeros(len(good.ids))})
    yield Report(good.ids)
    yield replace(good, indptr=cut)
    yield replace(good, ragged={"records": data.astype(np.int64)})
    yield replace(good, ragged={"records": huge})


@pytest.mark.parametrize("bad", list(reports()))
def test_malformed_reports_are_refused(bad):
    with pytest.raises(WireError):
        QUERY.check(bad)


def summaries():
    good = QUERY.answer_folded(zipf(50), streams)
    shares = good.keyed["shares"]

    def with_shares(values, keys=shares.keys):
        return replace(good, keyed={"shares": Keyed(keys, values)})

    yield with_shares(shares.values - 50 * SHARE)
    yield with_shares(shares.values + 40 * SHARE)  # each may be, all together not
    yield with_shares(shares.values[:, :2])
    yield with_shares(shares.values.astype(np.float64))
    yield with_shares(np.zeros(0, dtype=np.int64))
    yield replace(good, keyed={})
    yield replace(good, n_users=0)
    yield replace(good, sums={**good.sums, "users": good.sums["users"] + 30})
    yield replace(good, sums={**good.sums, "users": good.sums["users"] * 0})
    yield replace(good, sums={**good.sums, "sizes": good.sums["sizes"] + 200})
    yield replace(good, sums={**good.sums, "sizes": good.sums["sizes"] * 0})
    yield replace(good, sums={"users": good.sums["users"]})


@pytest.mark.parametrize("bad", list(summaries()))
def test_impossible_summaries_are_refused(bad):
    with pytest.raises(WireError):
        QUERY.check_summary(bad)


@pytest.mark.parametrize(
    "grid", [(), (0,), (1, 1), (3, 2), (1.5,), (2**31,), tuple(range(1, 4098))]
)
def test_bad_grids_are_refused(grid):
    with pytest.raises(ValueError, match="threshold"):
        SizeCurves(grid)
