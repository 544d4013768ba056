"""CoverSelect: its channel by enumeration, its vote by hand, its error by simulation."""

from dataclasses import replace

import numpy as np
import pytest

from fedhist.model.query import Summary
from fedhist.users.batch import Users
from server.means.cover_select import CoverSelect
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
