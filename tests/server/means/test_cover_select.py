"""CoverSelect: its channel by enumeration, its vote by hand, its error by simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from vote_laws import exact_failure, unary_inputs, unary_law

from clients.localize.queries import BinVotes
from clients.records.functionals import Cell
from fedhist.base.errors import PopulationError, WireError
from fedhist.channels.bits import UnaryChannel, count_bits
from fedhist.channels.covers import BallLattice, BoxGrid, Cover, SobolevLattice, SparseLattice
from fedhist.model.codec import decode_query, encode_fields, query_digest
from fedhist.model.query import Report, Summary
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, pure
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from server.means.cover_select import CoverSelect
from tests.running import run, streams


def votes_on(cover: Cover, epsilon: float = 1.0, cohort: Cohort | None = None) -> BinVotes:
    """Ask users for the cell of their mean."""
    return BinVotes(Cell(cover), cover.n_cells, epsilon, cohort)


def cells_of(cover: Cover, users: Users) -> np.ndarray:
    """Cell of every user, -1 for none."""
    return np.nan_to_num(Cell(cover).scalars(users, np.zeros(len(users), np.int64)) - 0.5, nan=-1)


SMALL = votes_on(BoxGrid(2, 1.0, 2))


def rows(points: list[list[list[float]]], dimension: int = 2) -> Users:
    """Users with the given samples; an empty list is a user without any."""
    indptr = np.cumsum([0, *map(len, points)])
    flat = [x for p in points for x in p]
    values = np.array(flat, dtype=np.float64).reshape(-1, dimension)
    return Users.from_samples(np.arange(1, len(points) + 1), indptr, values)


def at_point(theta: np.ndarray, n: int) -> Users:
    """Make n users who know theta exactly."""
    values = np.tile(theta, (n, 1))
    return Users.from_samples(np.arange(1, n + 1), np.arange(n + 1), values)


ABSURD: list[list[list[float]]] = [
    [[1e300, -1e300], [1e300, 0.0]],
    [[0.3, 0.2]],
    [[np.nan, 0.1]],
    [[np.inf, 0.0], [-np.inf, 0.0]],
    [],
    [[1.7e308, 0.0]] * 9,
]


# -- privacy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_the_law_of_a_vote_by_enumeration(epsilon: float) -> None:
    """Four cells: every record's law over all 16 messages, and every ratio of two of them."""
    records = [[[0.5, 0.5]], [[-0.5, 0.5]], [[0.5, -0.5]], [[-0.5, -0.5]], [], *ABSURD]
    users = rows(records)
    cells = cells_of(BoxGrid(2, 1.0, 2), users)
    held = np.array([np.arange(4) == c for c in cells], dtype=int)
    assert held.sum(axis=1).max() == 1
    inputs = unary_inputs(UnaryChannel(epsilon), 4).tolist()
    law = unary_law(UnaryChannel(epsilon), 4)[[inputs.index(h.tolist()) for h in held]]
    assert law.sum(axis=1) == pytest.approx(1)
    ratio = (law[:, None, :] / law[None, :, :]).max()
    assert ratio <= math.exp(epsilon) * (1 + 1e-12)
    assert ratio == pytest.approx(math.exp(epsilon))  # the whole budget is used


def test_votes_follow_that_law() -> None:
    """200,000 votes of one record, by message: every count within six standard deviations."""
    n = 200_000
    users = at_point(np.array([0.5, -0.5]), n)
    votes = SMALL.answer(users, streams(users, 3)).arrays["votes"][:, 0].astype(np.int64)
    seen = np.bincount(votes, minlength=16)
    channel = UnaryChannel(1.0)
    want = [0, 0, 1, 0]  # cell 2 of 4 in row-major order
    law = unary_law(channel, 4)[unary_inputs(channel, 4).tolist().index(want)]
    # false alarm below 16 * 2e-9
    assert (np.abs(seen - n * law) < 6 * np.sqrt(n * law * (1 - law))).all()


def test_no_record_sets_more_than_one_bit() -> None:
    users = rows(ABSURD)
    for cover in (
        BoxGrid(2, 1.0, 3),
        BallLattice(2, 1.0, 3),
        SparseLattice(2, 1.0, 3, 1),
        SobolevLattice(2, 1.0, 3, 1.0),
    ):
        query = votes_on(cover, math.inf)
        votes = query.answer(users, streams(users, 0)).arrays["votes"]
        per_user = [int(count_bits(v[None, :], cover.n_cells).sum()) for v in votes]
        assert per_user == [1, 1, 0, 0, 0, 0]  # the last sum is not finite


def test_release_and_guarantee() -> None:
    protocol = CoverSelect.example()
    assert protocol.guarantee == Guarantee(2.0, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)
    estimate, (query,), _ = run(protocol, CoverSelect.example_users(), 0)
    assert query.release == pure(2.0)
    assert query.exact
    assert query.cohort is None
    assert estimate.ledger is not None
    assert estimate.ledger.spent(0.0).epsilon == 2.0


# -- messages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cover",
    [
        BoxGrid(2, 1, 3),
        BallLattice(2, 1.5, 9),
        SparseLattice(2, 1.0, 9, 1),
        SobolevLattice(2, 1.0, 5, 0.5),
    ],
    ids=lambda c: c.wire_name,
)
def test_the_query_survives_the_wire(cover: Any) -> None:
    query = votes_on(cover, 1.0, Cohort(3, 0.0, 0.25))
    text, arrays = encode_fields(query)
    back = decode_query(query.wire_name, text, arrays)
    assert back == query
    assert query_digest(back, 0) == query_digest(query, 0)
    other = votes_on(replace(cover, per_axis=4), 1.0, query.cohort)
    assert query_digest(other, 0) != query_digest(query, 0)


def test_messages_are_checked() -> None:
    ids = np.arange(2, dtype=np.uint64)
    good = np.array([[5], [8]], dtype=np.uint64)
    SMALL.check(Report(ids, {"votes": good}))
    for bad, what in (
        (np.zeros((2, 2), dtype=np.uint64), "shape"),
        (good.astype(np.uint32), "dtype"),
        (good + np.uint64(16), "bits set from 4 on"),
    ):
        with pytest.raises(WireError, match=what):
            SMALL.check(Report(ids, {"votes": bad}))
    with pytest.raises(WireError, match="'votes' is expected"):
        SMALL.check(Report(ids, {"other": good}))
    for votes in ([3, 0, 0, 0], [0, 0, 0, -1]):
        with pytest.raises(WireError, match="outside"):
            SMALL.check_summary(Summary(2, {"votes": np.array([votes]), "users": np.array([2])}))


def test_samples_of_another_dimension_are_refused() -> None:
    with pytest.raises(PopulationError, match="dimension 2, got 1"):
        cells_of(BoxGrid(2, 1.0, 2), rows([[[0.1]]], dimension=1))


def test_the_aggregate_path_has_the_law_of_the_votes() -> None:
    """Mean and variance of the totals, 4,000 draws each way against the formula."""
    users = rows([[[0.5, 0.5]]] * 20 + [[[-0.5, 0.5]]] * 9 + [[]])
    query, runs, n = SMALL, 4000, 30
    rng = np.random.default_rng(4)
    drawn = np.array([query.draw_summary(users, rng).sums["votes"][0] for _ in range(runs)])
    made = np.array(
        [
            query.answer_folded(users, lambda u, s=s: streams(u, s)).sums["votes"][0]
            for s in range(400)
        ]
    )
    flip = query.channel.flip
    counts = np.array([0, 9, 0, 20])
    mean = counts * (1 - flip) + (n - counts) * flip
    variance = n * flip * (1 - flip)
    for found in (drawn, made):
        k = len(found)
        # five standard errors of a mean, and of a variance with normal totals: below 1e-5
        assert (np.abs(found.mean(axis=0) - mean) < 5 * math.sqrt(variance / k)).all()
        spread = 5 * variance * math.sqrt(2 / k)
        assert (np.abs(found.var(axis=0) - variance) < spread).all()
    query.check_summary(query.draw_summary(users, rng))
    nobody = query.draw_summary(users.slice(0, 0), rng)
    assert (nobody.n_users, int(nobody.sums["votes"].sum())) == (0, 0)


# -- the estimate ------------------------------------------------------------------------------


def test_the_centre_of_the_cell_with_most_votes() -> None:
    protocol = CoverSelect(3.0, 400, 2, geometry="l2-ball", per_axis=7)
    theta = np.array([0.3, -0.61])
    estimate, (query,), _ = run(protocol, at_point(theta, 400), 1)
    cover = protocol.plan.cover
    assert query.functional == Cell(cover)
    cell = cover.cells(theta[None, :])
    assert estimate.value == pytest.approx(cover.centres(cell)[0])
    assert protocol.loss_of(estimate, at_point(theta, 400)) <= cover.radius**2
    assert estimate.public["top_share"] == pytest.approx(1, abs=0.1)
    assert estimate.warnings == ()


def test_ties_go_to_the_lowest_cell() -> None:
    protocol = CoverSelect(1.0, 100, 2, per_axis=3)
    script = protocol.rounds(None)
    next(script)
    votes = np.array([[20, 90, 90, 30, 20, 20, 20, 20, 20]])
    with pytest.raises(StopIteration) as end:
        script.send(Summary(100, {"votes": votes, "users": np.array([100])}))
    assert end.value.value.value == pytest.approx(protocol.plan.cover.centres(np.array([1]))[0])
    assert end.value.value.public["gap"] == 0


def test_users_who_disagree_are_warned_about() -> None:
    users = rows([[[0.5, 0.5]]] * 200 + [[[-0.5, 0.5]]] * 190)
    estimate, _, _ = run(CoverSelect(2.0, 390, 2, per_axis=2), users, 0)
    assert any("do not agree" in w for w in estimate.warnings)


def test_nobody_voted() -> None:
    users = CoverSelect.example_users().slice(0, 0)
    assert run(CoverSelect.example(), users, 0)[0].status == "failed"


def test_refusal_names_the_least_number_of_users() -> None:
    protocol = CoverSelect(0.1, 100, 3)
    estimate, queries, _ = run(protocol, at_point(np.zeros(3), 5), 0)
    assert (estimate.status, queries) == ("refused", [])
    least = int(estimate.reason.split("at least ")[1].split()[0])
    assert not replace(protocol, n_users=least - 1).plan.feasible
    assert replace(protocol, n_users=least).plan.feasible
    wide = CoverSelect(1.0, 10**6, 40, geometry="l2-ball")
    assert "no number" in run(wide, at_point(np.zeros(40), 5), 0)[0].reason


def test_a_cover_of_one_cell_asks_nobody() -> None:
    protocol = CoverSelect(1.0, 100, 2, per_axis=1)
    estimate, queries, _ = run(protocol, at_point(np.zeros(2), 5), 0)
    assert (estimate.status, queries) == ("ok", [])
    assert estimate.value is not None
    assert estimate.value.tolist() == [0, 0]
    assert estimate.ledger is not None
    assert not estimate.ledger.entries
    assert "one cell" in estimate.warnings[0]


def test_truth_error_and_diagnostics() -> None:
    users = rows([[[0.5, 0.1], [0.3, 0.1]], [[0.4, 0.3]], [], [[np.nan, 0.0]]])
    protocol = CoverSelect(2.0, 4, 2, per_axis=5)
    assert protocol.truth(users) == pytest.approx([0.4, 0.2])
    assert protocol.diagnostics(users) == {"unusable records": 2}
    assert protocol.loss(np.array([1.0, 2.0]), np.array([0.0, 0.0])) == 5.0
    with pytest.raises(PopulationError, match="no user has usable samples"):
        protocol.truth(rows([[], []]))
    given, _ = CoverSelect.resolve({"epsilon": 1.0}, users, None)
    assert given == {"epsilon": 1.0, "n_users": 4, "dimension": 2}


def test_failures_decay_exponentially_in_n_epsilon_squared() -> None:
    """The exponent per user is that of theory, tau^2, and it is of order epsilon^2.

    Measured over 1,000 votes at each n, for a hundred cells; the rates of Proposition 3 follow
    because log N is of order d.
    """
    rng = np.random.default_rng(7)
    cover = BoxGrid(2, 1.0, 10)
    for epsilon in (0.5, 1.0):
        query = votes_on(cover, epsilon)
        unit = round(1 / query.channel.tau**2)
        measured, theory = [], []
        for n in (2 * unit, 4 * unit, 6 * unit):
            users = at_point(np.array([0.31, 0.77]), n)
            cell = int(cells_of(cover, users)[0])
            totals = np.array(
                [query.draw_summary(users, rng).sums["votes"][0] for _ in range(1000)]
            )
            failed = (totals.argmax(axis=1) != cell).mean()
            exact = exact_failure(n, cover.n_cells, query.channel.flip, cell)
            # six standard errors: false alarm 1e-8
            assert abs(failed - exact) < 6 * math.sqrt(exact * (1 - exact) / 1000)
            measured.append(failed)
            theory.append(exact)
        # from 4 to 6 units Hoeffding gives a factor e^{-2}; the measured one is near or below
        assert measured[2] < 0.25 * measured[1]
        assert theory[2] < 0.2 * theory[1]
    # the same n epsilon^2 gives the same failure, at a quarter of the budget squared
    pairs = [
        exact_failure(n, 100, UnaryChannel(epsilon).flip, 0)
        for n, epsilon in ((16_000, 0.05), (4000, 0.1), (1000, 0.2))
    ]
    assert pairs == pytest.approx([pairs[0]] * 3, rel=0.03)


def test_planned_error_falls_exponentially_and_slower_in_more_dimensions() -> None:
    """ln risk against n, before the message length stops the decay.

    With N = delta^{-d} the best delta^2 has the exponent of a failure times 2 / (d + 2): the slope
    at d = 1 is twice that at d = 4, up to the steps of the covers.
    """
    slopes = []
    for d in (1, 2, 4):
        n = np.array([120, 160, 200])
        risk = [CoverSelect(1.0, int(k), d, geometry="l2-ball").plan.risk for k in n]
        slopes.append(float(np.polyfit(n, np.log(risk), 1)[0]))
    assert slopes[0] < slopes[1] < slopes[2] < 0
    assert slopes[0] / slopes[2] == pytest.approx(2, rel=0.2)


def test_bad_parameters() -> None:
    good = CoverSelect.example()
    for change, what in (
        ({"n_users": 0}, "n_users .* got 0"),
        ({"geometry": "cube"}, "got 'cube'"),
        ({"sparsity": 2}, 'sparsity belongs to geometry "sparse", got 2'),
        ({"smoothness": 1.0}, r"smoothness belongs .* got 1\.0"),
        ({"geometry": "sparse"}, "sparsity must lie .* got 0"),
        ({"geometry": "sobolev"}, r"smoothness must lie .* got 0\.0"),
        ({"dimension": 0}, "dimension .* got 0"),
        ({"bound": -1.0}, r"bound .* got -1\.0"),
        ({"per_axis": 0}, "per_axis .* got 0"),
        ({"per_axis": 3000}, "cells are more than"),
    ):
        with pytest.raises(ValueError, match=what):
            replace(good, **change)
