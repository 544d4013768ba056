"""Local queries that a hostile server may send, and records that no honest user has."""

import math

import numpy as np
import pytest
from numpy.typing import ArrayLike

from clients.centred.queries import RadiusVotes
from clients.localize.queries import BinVotes, ClippedMean
from clients.means.queries import HashedVotes
from clients.records.functionals import Cell, Coordinates, Rotated, Scalar
from fedhist.base.search import MOST_USERS
from fedhist.channels.covers import BoxGrid, SobolevLattice
from fedhist.channels.sphere import SphereChannel
from fedhist.model.query import Query, Report
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, SystemStreams
from server.baselines.naive_mean import NaiveMean, SampledScalar, SphereReports
from server.densities.density import Density
from server.localize.choice import least_users, plan_paper
from server.means.mean_linf import MeanLinf
from server.means.sparse_mean import SparseMean

LEAST, MOST = 5e-324, 1e308
IDS = np.arange(6, dtype=np.uint64) * np.uint64(7919)
VICTIM = 3
ABSURD = [
    np.zeros((0, 3)),
    *(np.full((2, 3), x) for x in (0.0, LEAST, -1e-310, 1e300, -1.79e308, math.inf, math.nan)),
    np.array([[math.inf, -math.inf, 0.0], [-math.inf, 1e308, math.nan]]),
    np.array([[1.7e308, LEAST, -0.0], [1.7e308, -1.7e308, 1.0]]),
]

FUNCTIONALS = [
    Coordinates(3),
    Coordinates(3, 0.0, LEAST),
    Coordinates(3, -8.9e307, 8.9e307),
    Coordinates(3, 1.0, math.nextafter(1.0, 2.0), np.zeros(2, dtype=np.int64), 1),
    Rotated(3, LEAST, 1),
    Rotated(3, 8e307, 1),
    Rotated(3, 1.0, 1, clip=LEAST),
    Rotated(3, 1e-310, 1, clip=8e307),
]
QUERIES: list[Query] = [
    *(
        BinVotes(f, n_bins, 1.0, neighbours=near)
        for f in FUNCTIONALS
        for n_bins, near in ((1, True), (2, False))
    ),
    BinVotes(FUNCTIONALS[1], 65536, 1.0, neighbours=True),
    *(
        kind(f, np.full(f.n_folds, centre), half_width, 1.0, channel)
        for f in FUNCTIONALS
        for kind, channel in ((ClippedMean, "laplace"), (SampledScalar, "onebit"))
        for centre, half_width in ((0.0, LEAST), (MOST, LEAST), (-MOST, MOST))
    ),
    *(
        HashedVotes(3, radius, threshold, 1, 1.0, vote, reach)
        for radius in (2.0**-400, 2.0**400)
        for threshold in (LEAST, MOST)
        for vote in ("sign", "laplace")
        for reach in (LEAST, MOST)
    ),
    *(
        query
        for radius in (2.0**-400, 2.0**400)
        for query in (
            SphereReports(3, radius, 1.0),
            SphereReports(3, radius, 1.0, one_sample=True),
            BinVotes(Cell(BoxGrid(3, radius, 2)), 8, 1.0),
            BinVotes(Cell(SobolevLattice(3, radius, 4, smoothness=16.0)), 5, 1.0),
        )
    ),
]


def crowd(record: ArrayLike) -> Users:
    """Six users of two samples, one of whom has another record."""
    rows = list(np.random.default_rng(0).normal(size=(6, 2, 3)))
    rows[VICTIM] = np.asarray(record)
    indptr = np.cumsum([0, *(len(r) for r in rows)])
    return Users.from_samples(IDS, indptr, np.concatenate(rows), unusable=True)


def answer(query: Query, users: Users) -> Report:
    report = query.answer(users, SeededStreams(users.ids, 5, "test"))
    query.check(report)
    return report


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.wire_name)
def test_no_record_shows_in_a_status_a_shape_or_another_row(query: Query) -> None:
    """And one user's record changes its own row only."""
    usual = answer(query, crowd(np.ones((2, 3))))
    others = np.arange(6) != VICTIM
    for record in ABSURD:
        users = crowd(record)
        report = answer(query, users)
        for name, rows in report.arrays.items():
            assert (rows.dtype, rows.shape) == (usual.arrays[name].dtype, usual.arrays[name].shape)
            assert np.array_equal(rows[others], usual.arrays[name][others])
    query.check_summary(query.draw_summary(users, np.random.default_rng(1)))


ONE_OF_EACH: list[Query] = [
    BinVotes(Coordinates(3), 5, 1.0),
    BinVotes(Rotated(3, 1.0, 1), 5, 1.0),
    ClippedMean(Coordinates(3), np.zeros(3), 0.1, 1.0, "onebit"),
    RadiusVotes(Scalar(Coordinates(3, columns=np.array([1]))), np.zeros(1), np.ones(1), 1.0),
    SampledScalar(Rotated(3, 1.0, 1), np.zeros(4), 0.1, 1.0, "piecewise"),
    HashedVotes(3, 1.0, 0.1, 2, 1.0),
    SphereReports(3, 1.0, 1.0),
    SphereReports(3, 1.0, 1.0, one_sample=True),
    BinVotes(Cell(BoxGrid(3, 1.0, 2)), 8, 1.0),
]


@pytest.mark.parametrize("query", ONE_OF_EACH, ids=lambda q: q.wire_name)
def test_a_phone_without_samples_answers_like_any_other(query: Query) -> None:
    """An empty record has no dimension of its own: a refusal would say that it is empty."""
    nobody = Users.from_samples([7], [0, 0], [], unusable=True)
    somebody = Users.from_samples([7], [0, 1], np.ones((1, 3)), unusable=True)
    empty, held = (answer(query, users) for users in (nobody, somebody))
    for name, rows in empty.arrays.items():
        assert rows.shape == held.arrays[name].shape
        assert rows.dtype == held.arrays[name].dtype
    query.check(query.answer(nobody, SystemStreams(1)))
    query.check_summary(query.draw_summary(nobody, np.random.default_rng(2)))


def test_queries_without_a_channel_are_refused_before_any_record_is_read() -> None:
    for kind in ("laplace", "piecewise"):
        with pytest.raises(ValueError, match=r"epsilon of at least 0\.0001, got 1e-05"):
            ClippedMean(Coordinates(3), np.zeros(3), 1.0, 1e-5, kind)
    with pytest.raises(ValueError, match=r"epsilon of at least 0\.0001, got 1e-05"):
        HashedVotes(3, 1.0, 0.1, 2, 1e-5, "laplace")
    with pytest.raises(ValueError, match="need finite low < high"):
        Rotated(3, 1e308, 1)
    with pytest.raises(ValueError, match="epsilon is too small, got 1e-300"):
        SphereChannel(2, 1.0, 1e-300)


def test_plans_exist_at_any_budget() -> None:
    """Tiny budgets are refused in words, and with huge ones the paper's vote cannot fail."""
    assert least_users(0.1, 1.0, 1e-300, "onebit") == MOST_USERS
    for epsilon in (300.0, 1e300):
        plan = plan_paper(1000, 64, 1 / 8, 1.0, epsilon)
        assert plan.failure == 0.0
        assert plan.feasible
        common = {"epsilon": epsilon, "n_users": 1000, "samples_per_user": 64, "mode": "paper"}
        assert MeanLinf(dimension=3, **common).max_rounds in (1, 2)
        assert SparseMean(dimension=30, sparsity=2, **common).max_rounds in (1, 2, 3)
        assert Density(**common).max_rounds in (0, 1, 2)
    assert NaiveMean(epsilon=1e-300, n_users=9, kind="onebit").planned_mse == math.inf
    assert NaiveMean(epsilon=1e300, n_users=9, kind="laplace").planned_mse == 0.0
