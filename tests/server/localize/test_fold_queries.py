import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clients.localize.queries import BinVotes, ClippedMean
from clients.records.functionals import Coordinates, Rotated
from fedhist.base.errors import WireError
from fedhist.channels.bits import count_bits
from fedhist.model.query import Report, Summary
from fedhist.users.batch import Users
from tests.running import sampled, streams


def votes_query(**changes: object) -> BinVotes:
    return replace(BinVotes(Coordinates(1), 70, 1.0), **changes)


def mean_query(**changes: object) -> ClippedMean:
    base = ClippedMean(Coordinates(1), np.array([0.1]), 0.2, 1.0, "onebit")
    return replace(base, **changes)


def absurd_users(dimension: int) -> Users:
    """Records that break what can be broken; the last four users are unusable."""
    usable = [[1e300, 1e300], [1e308, -1e308], [-1e300], [0.25, 0.3], [5e-324]]
    rows = [*usable, [0.1, np.nan], [np.nan], [np.nan, np.inf], []]
    values = np.repeat([x for row in rows for x in row], dimension).reshape(-1, dimension)
    return sampled([len(row) for row in rows], values)


FUNCTIONALS = [Coordinates(1), Coordinates(3), Rotated(3, 1.0, 5, clip=0.5)]


@pytest.mark.parametrize("functional", FUNCTIONALS, ids=str)
@pytest.mark.parametrize("neighbours", [False, True])
def test_no_record_sets_more_bits_than_the_channel_allows(
    functional: Any, neighbours: bool
) -> None:
    users = absurd_users(functional.dimension)
    query = votes_query(epsilon=math.inf, neighbours=neighbours, functional=functional)
    votes = query.answer(users, streams(users)).arrays["votes"]
    bits = np.array([count_bits(v[None, :], query.n_bins).sum() for v in votes])
    assert 1 <= bits[:-4].min() <= bits.max() <= query.channel.ones
    assert (bits[-4:] == 0).all()


@pytest.mark.parametrize("functional", FUNCTIONALS, ids=str)
def test_no_record_leaves_the_interval(functional: Any) -> None:
    users = absurd_users(functional.dimension)
    centres = np.full(functional.n_folds, 0.1)
    query = mean_query(epsilon=math.inf, kind="laplace", functional=functional, centres=centres)
    u = query.answer(users, streams(users)).arrays["reports"]
    assert (np.abs(u) <= 1).all()
    assert (u[-4:] == 0).all()


def test_votes_are_checked() -> None:
    query, ids = votes_query(), np.arange(2, dtype=np.uint64)
    good = np.zeros((2, 2), dtype=np.uint64)
    query.check(Report(ids, {"votes": good}))
    for bad in (good[:, :1], good.astype(np.uint32), good + np.uint64(1 << 6)):
        with pytest.raises(WireError):
            query.check(Report(ids, {"votes": bad}))
    for votes in (3, -1):
        sums = {"votes": np.full((1, 70), votes), "users": np.array([2])}
        with pytest.raises(WireError):
            query.check_summary(Summary(2, sums))


def test_folds_are_checked() -> None:
    """Two folds of one user each: no fold has more votes, or larger reports, than users."""
    votes = votes_query(functional=Coordinates(2))
    two = np.ones((2, 70), dtype=np.int64)
    votes.check_summary(Summary(2, {"votes": two, "users": np.array([1, 1])}))
    with pytest.raises(WireError, match="more than"):
        votes.check_summary(Summary(2, {"votes": two, "users": np.array([2, 0])}))
    with pytest.raises(WireError, match="3 users, 2"):
        votes.check_summary(Summary(2, {"votes": two, "users": np.array([2, 1])}))
    means = mean_query(functional=Coordinates(2), centres=np.zeros(2))
    means.check_summary(Summary(2, {"reports": np.array([1, -1]), "users": np.array([1, 1])}))
    with pytest.raises(WireError):
        means.check_summary(Summary(2, {"reports": np.array([2, 0]), "users": np.array([1, 1])}))


@pytest.mark.parametrize(
    ("kind", "reports"),
    [
        ("onebit", np.array([1, 0], dtype=np.int8)),
        ("onebit", np.array([1, 2], dtype=np.int8)),
        ("onebit", np.array([1, 1], dtype=np.int64)),
        ("onebit", np.array([1.0, 1.0])),
        ("piecewise", np.array([0.0, 4.2])),
        ("piecewise", np.array([0.0, np.nan])),
        ("laplace", np.array([0.0, np.inf])),
        ("laplace", np.zeros((2, 1))),
    ],
)
def test_reports_are_checked(kind: str, reports: np.ndarray) -> None:
    with pytest.raises(WireError, match="reports"):
        mean_query(kind=kind).check(Report(np.arange(2, dtype=np.uint64), {"reports": reports}))


@pytest.mark.parametrize("kind", ["onebit", "piecewise", "laplace"])
def test_sums_are_bounded(kind: str) -> None:
    query = mean_query(kind=kind)
    most = 2 * int(query.channel.bound)
    for total in (most, -most):
        query.check_summary(Summary(2, {"reports": np.array([total]), "users": np.array([2])}))
    with pytest.raises(WireError):
        query.check_summary(Summary(2, {"reports": np.array([most + 1]), "users": np.array([2])}))
