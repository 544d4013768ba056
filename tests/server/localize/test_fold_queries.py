from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clients.localize.queries import BinVotes, ClippedMean
from clients.records.functionals import Coordinates
from fedhist.base.errors import PopulationError, WireError
from fedhist.channels.bits import count_bits
from fedhist.model.codec import decode_query, encode_fields, query_digest
from fedhist.model.query import Query, Report, Summary
from fedhist.privacy.guarantee import Trust, pure
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from tests.running import streams


def votes_query(**changes: object) -> BinVotes:
    return replace(BinVotes(Coordinates(1), 70, 1.0), **changes)


def mean_query(**changes: object) -> ClippedMean:
    base = ClippedMean(Coordinates(1), np.array([0.1]), 0.2, 1.0, "onebit")
    return replace(base, **changes)


QUERIES = [
    votes_query(),
    votes_query(neighbours=True, functional=Coordinates(1, max_items=2)),
    *(mean_query(kind=kind) for kind in ("laplace", "onebit", "piecewise")),
]


def absurd_users() -> Users:
    """Records that break what can be broken; the last three ones are unusable."""
    return Users.from_records(
        {
            "huge": [1e300, 1e300],
            "infinite": [np.inf, -np.inf, 0.5],
            "low": [-1e300],
            "plain": [0.25, 0.3],
            "nan": [0.1, np.nan],
            "all nan": [np.nan],
            "empty": [],
        }
    )


# -- privacy ------------------------------------------------------------------------


def test_no_record_sets_more_bits_than_the_channel_allows() -> None:
    for query in (votes_query(epsilon=math.inf), votes_query(epsilon=math.inf, neighbours=True)):
        users = absurd_users()
        votes = query.answer(users, streams(users, 0)).arrays["votes"]
        per_user = np.array([count_bits(v[None, :], query.n_bins).sum() for v in votes])
        assert per_user.max() <= query.channel.ones
        empty = ~np.isin(users.ids, Users.from_records(usable()).ids)
        assert (per_user[empty] == 0).all()
        assert (per_user[~empty] >= 1).all()


def usable() -> dict[str, list[float]]:
    return {"huge": [1.0], "infinite": [1.0], "low": [1.0], "plain": [1.0]}


def test_no_record_leaves_the_interval() -> None:
    users = absurd_users()
    query = mean_query(epsilon=math.inf, kind="laplace")
    u = query.answer(users, streams(users, 0)).arrays["reports"]
    assert (np.abs(u) <= 1).all()
    unusable = ~np.isin(users.ids, Users.from_records(usable()).ids)
    assert (u[unusable] == 0).all()


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: f"{q.wire_name}-{q.release.epsilon}")
def test_release_is_the_budget(query: Query) -> None:
    assert query.release == pure(1.0)
    assert query.trust is Trust.LOCAL


# -- messages -----------------------------------------------------------------------


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.wire_name)
def test_rows_do_not_depend_on_the_batch(query: Query) -> None:
    users = absurd_users()
    name = "votes" if isinstance(query, BinVotes) else "reports"
    report = query.answer(users, streams(users, 1))
    query.check(report)
    whole = report.arrays[name]
    backwards = users.take(np.arange(len(users))[::-1])
    assert np.array_equal(query.answer(backwards, streams(backwards, 1)).arrays[name][::-1], whole)
    for i in range(len(users)):
        one = users.slice(i, i + 1)
        assert np.array_equal(query.answer(one, streams(one, 1)).arrays[name][0], whole[i])
    none = users.slice(0, 0)
    summary = query.fold(query.answer(none, streams(none, 1)))
    query.check_summary(summary)
    assert (summary.n_users, int(summary.sums[name].sum())) == (0, 0)
    assert summary.linear


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.wire_name)
def test_the_query_survives_the_wire(query: Query) -> None:
    query = replace(query, cohort=Cohort(3, 0.0, 0.25))
    text, arrays = encode_fields(query)
    back = decode_query(query.wire_name, text, arrays)
    assert back == query
    assert query_digest(back, 1) == query_digest(query, 1)


def test_votes_are_checked() -> None:
    query, ids = votes_query(), np.arange(2, dtype=np.uint64)
    good = np.zeros((2, 2), dtype=np.uint64)
    query.check(Report(ids, {"votes": good}))
    for bad, what in (
        (good[:, :1], "shape"),
        (good.astype(np.uint32), "dtype"),
        (good.astype(np.float64), "dtype"),
        (good + np.uint64(1 << 6), "bits set from 70 on"),
    ):
        with pytest.raises(WireError, match=what):
            query.check(Report(ids, {"votes": bad}))
    with pytest.raises(WireError, match="'votes' is expected"):
        query.check(Report(ids, {"other": good}))
    for votes in (3, -1):
        sums = {"votes": np.full((1, 70), votes), "users": np.array([2])}
        with pytest.raises(WireError, match="outside"):
            query.check_summary(Summary(2, sums))


def test_folds_are_checked() -> None:
    """Two folds of one user each: no fold has more votes, or larger reports, than users."""
    votes = votes_query(functional=Coordinates(2))
    two = np.ones((2, 70), dtype=np.int64)
    votes.check_summary(Summary(2, {"votes": two, "users": np.array([1, 1])}))
    with pytest.raises(WireError, match="adds up to more than"):
        votes.check_summary(Summary(2, {"votes": two, "users": np.array([2, 0])}))
    with pytest.raises(WireError, match="the folds have 3 users, 2 answered"):
        votes.check_summary(Summary(2, {"votes": two, "users": np.array([2, 1])}))
    means = mean_query(functional=Coordinates(2), centres=np.zeros(2))
    means.check_summary(Summary(2, {"reports": np.array([1, -1]), "users": np.array([1, 1])}))
    with pytest.raises(WireError, match="adds up to more"):
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
    with pytest.raises(WireError, match="outside"):
        query.check_summary(Summary(2, {"reports": np.array([most + 1]), "users": np.array([2])}))


def test_bad_query_parameters() -> None:
    with pytest.raises(ValueError, match="got 0"):
        votes_query(n_bins=0)
    with pytest.raises(ValueError, match="got -1"):
        votes_query(fold_salt=-1)
    with pytest.raises(ValueError, match="2049 folds of 65536 bins"):
        votes_query(functional=Coordinates(2049), n_bins=65536)
    with pytest.raises(ValueError, match="got 'auto'"):
        mean_query(kind="auto")
    with pytest.raises(ValueError, match=r"got 0\.0"):
        mean_query(half_width=0.0)
    with pytest.raises(ValueError, match="got inf"):
        mean_query(centres=np.array([math.inf]))
    with pytest.raises(ValueError, match=r"must be \(1,\) float64, got float64\(2,\)"):
        mean_query(centres=np.zeros(2))


def test_only_the_first_samples_count() -> None:
    users = Users.from_records({"ann": [1.0, 1.0, -1.0], "bob": [0.0]})
    query = votes_query(epsilon=math.inf, n_bins=4, functional=Coordinates(1, max_items=2))
    votes = query.fold(query.answer(users, streams(users, 0))).sums["votes"]
    assert votes.tolist() == [[0, 0, 1, 1]]


def test_users_must_have_one_coordinate() -> None:
    users = Users.from_samples([1], [0, 1], np.zeros((1, 2)))
    with pytest.raises(PopulationError, match="dimension 1, got 2"):
        votes_query().answer(users, streams(users, 0))


def test_prepared_draws_are_those_of_the_summary() -> None:
    """Of one block, with the same coins; scalars that are kept serve other intervals."""
    values = np.random.default_rng(2).uniform(-1, 1, (200, 2))
    users = Users.from_samples(np.arange(200, dtype=np.uint64), np.arange(201), values)
    kept, two = dict[str, Any](), Coordinates(2)
    asked = [
        votes_query(functional=two),
        mean_query(functional=two, centres=np.zeros(2)),
        mean_query(functional=two, centres=np.array([0.2, -0.1]), half_width=0.05),
    ]
    for query in asked:
        drawn = query.summary_law(users, kept)(np.random.default_rng(1))
        plain = query.draw_summary(users, np.random.default_rng(1))
        assert drawn.n_users == plain.n_users == len(users)
        assert all(np.array_equal(drawn.sums[name], plain.sums[name]) for name in plain.sums)
    assert len(kept) == 1
