"""CoverSelect: its channel by enumeration, its vote by hand, its error by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clients.localize.queries import BinVotes
from clients.records.functionals import Cell
from fedhist.channels.bits import count_bits
from fedhist.channels.covers import BallLattice, BoxGrid, Cover, SobolevLattice, SparseLattice
from fedhist.model.query import Summary
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from server.means.cover_select import CoverSelect
from tests.running import one_sample, run, streams


def votes_on(cover: Cover, epsilon: float = 1.0, cohort: Cohort | None = None) -> BinVotes:
    """Ask users for the cell of their mean."""
    return BinVotes(Cell(cover), cover.n_cells, epsilon, cohort)


def rows(points: list[list[list[float]]], dimension: int = 2) -> Users:
    """Users with the given samples; an empty list is a user without any."""
    indptr = np.cumsum([0, *map(len, points)])
    flat = [x for p in points for x in p]
    values = np.array(flat, dtype=np.float64).reshape(-1, dimension)
    return Users.from_samples(np.arange(1, len(points) + 1), indptr, values, unusable=True)


def at_point(theta: np.ndarray, n: int) -> Users:
    """Make n users who know theta exactly."""
    return one_sample(np.tile(theta, (n, 1)))


ABSURD: list[list[list[float]]] = [
    [[1e300, -1e300], [1e300, 0.0]],
    [[0.3, 0.2]],
    [[np.nan, 0.1]],
    [[np.inf, 0.0], [-np.inf, 0.0]],
    [],
    [[1.7e308, 0.0]] * 9,
]


# -- privacy -----------------------------------------------------------------------------------


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


def test_refusal_names_the_least_number_of_users() -> None:
    protocol = CoverSelect(0.1, 100, 3)
    estimate, queries, _ = run(protocol, at_point(np.zeros(3), 5), 0)
    assert (estimate.status, queries) == ("refused", [])
    least = int(estimate.reason.split("at least ")[1].split()[0])
    assert not replace(protocol, n_users=least - 1).plan.feasible
    assert replace(protocol, n_users=least).plan.feasible
    wide = CoverSelect(1.0, 10**6, 40, geometry="l2-ball")
    assert run(wide, at_point(np.zeros(40), 5), 0)[0].status == "refused"


def test_a_cover_of_one_cell_asks_nobody() -> None:
    protocol = CoverSelect(1.0, 100, 2, per_axis=1)
    estimate, queries, _ = run(protocol, at_point(np.zeros(2), 5), 0)
    assert (estimate.status, queries) == ("ok", [])
    assert estimate.value.tolist() == [0, 0]
    assert not estimate.ledger.entries
    assert estimate.warnings
