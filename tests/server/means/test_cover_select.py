"""CoverSelect: its channel by enumeration, its vote by hand, its error by simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr
from vote_laws import exact_failure

from fedhist.channels.bits import UnaryChannel
from fedhist.channels.covers import BallLattice, BoxGrid, SobolevLattice, SparseLattice
from fedhist.model.query import Summary
from fedhist.users.batch import Users
from server.means.cover_select import CoverSelect, failure_bound, least_users, plan_cover
from tests.running import concluded, one_sample, run


def at_point(theta: np.ndarray, n: int) -> Users:
    """Make n users who know theta exactly."""
    return one_sample(np.tile(theta, (n, 1)))


def test_ties_go_to_the_lowest_cell() -> None:
    protocol = CoverSelect(1.0, 100, 2, per_axis=3)
    votes = np.array([[20, 90, 90, 30, 20, 20, 20, 20, 20]])
    estimate = concluded(protocol, Summary(100, {"votes": votes, "users": np.array([100])}))
    assert estimate.value == pytest.approx(protocol.plan.cover.centres(np.array([1]))[0])
    assert estimate.public["gap"] == 0


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


def test_two_users_and_two_cells_by_hand() -> None:
    """All four bits enumerated: the true cell, the second one, must have strictly more."""
    flip = 0.2
    wrong = 0.0
    for a in np.ndindex(2, 2, 2, 2):  # bits of cell 0 (true value 0), bits of cell 1 (true value 1)
        p = math.prod(flip if bit != (i >= 2) else 1 - flip for i, bit in enumerate(a))
        wrong += p * (a[0] + a[1] >= a[2] + a[3])
    assert exact_failure(2, 2, flip, 1) == pytest.approx(wrong, rel=1e-12)
    assert failure_bound(2, 2, flip) == pytest.approx(wrong, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 12.0])
def test_the_bounds_are_in_order(epsilon: float) -> None:
    """Exact, union, Chernoff, Hoeffding; and the normal form at large n and small epsilon."""
    channel = UnaryChannel(epsilon)
    for n in (1, 7, 60, 1000):
        exact = exact_failure(n, 9, channel.flip, 8)
        union = failure_bound(n, 9, channel.flip)
        chernoff = min(1.0, 8 * (1 - channel.tau**2) ** n)
        assert exact <= union * (1 + 1e-9) + 1e-60
        assert union <= chernoff * (1 + 1e-9)
        assert chernoff <= min(1.0, 8 * math.exp(-n * channel.tau**2)) * (1 + 1e-9)
    z = channel.tau * math.sqrt(2 * 20000 / (1 - channel.tau**2))
    if z < 5:
        ratio = failure_bound(20000, 2, channel.flip) / float(ndtr(-z))
        assert ratio == pytest.approx(1, abs=0.05)


SETS = [
    BoxGrid(3, 2.0, 1),
    BallLattice(3, 1.0, 1),
    SparseLattice(12, 1.0, 1, sparsity=2),
    SobolevLattice(20, 1.5, 1, smoothness=1.0),
]


@pytest.mark.parametrize("one", SETS, ids=lambda c: c.wire_name)
@pytest.mark.parametrize("n_users", [60, 250])
def test_the_plan_is_the_best_of_its_covers(one: BoxGrid, n_users: int) -> None:
    """Against every number of cells per axis up to 12, with the risk written out."""
    plan = plan_cover(one, n_users, 1.0)
    risks = {}
    for m in range(1, 13):
        try:
            c = replace(one, per_axis=m)
        except ValueError:
            break
        risks[m] = c.radius**2 + c.diameter**2 * failure_bound(
            n_users, c.n_cells, UnaryChannel(1.0).flip
        )
    best = min(risks, key=risks.__getitem__)
    if best < 12:  # otherwise the best one may be finer than those tried here
        assert plan.cover.per_axis == best
    assert plan.risk <= risks[best] * (1 + 1e-12)
    assert plan.feasible == (plan.cover.n_cells > 1)
    given = plan_cover(one, n_users, 1.0, 3)
    assert given.risk == pytest.approx(risks[3])
    assert given.feasible == (risks[3] < risks[1])


@pytest.mark.parametrize("one", SETS, ids=lambda c: c.wire_name)
@pytest.mark.parametrize("per_axis", [None, 3])
def test_least_users(one: BoxGrid, per_axis: int | None) -> None:
    for epsilon in (0.2, 1.0, 3.0):
        n = least_users(one, epsilon, per_axis)
        assert n is not None
        assert plan_cover(one, n, epsilon, per_axis).feasible
        assert n == 1 or not plan_cover(one, n - 1, epsilon, per_axis).feasible


def test_no_number_of_users_is_enough() -> None:
    wide = BallLattice(20, 1.0, 1)  # no cover of 2^16 cells is finer than the ball itself
    assert least_users(wide, 1.0) is None
    assert not plan_cover(wide, 10**9, 1.0).feasible
    assert least_users(BoxGrid(2, 1.0, 1), 1.0, 1) is None  # one cell: nothing to vote on
    assert least_users(BoxGrid(2, 1.0, 1), 1e-12) is None
