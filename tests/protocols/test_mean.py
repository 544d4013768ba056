from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.bits import count_bits
from fedhist.codec import decode_query, encode_fields, query_digest
from fedhist.cohort import Cohort
from fedhist.errors import PopulationError, WireError
from fedhist.privacy import Adjacency, Guarantee, Trust, pure
from fedhist.protocol import Estimate
from fedhist.protocols.mean import Mean
from fedhist.protocols.univariate import BinVotes, ClippedMean
from fedhist.query import Query, Report, Summary
from fedhist.streams import SeededStreams
from fedhist.users import Users


def streams(users: Users, seed: int, context: str = "test") -> SeededStreams:
    return SeededStreams(users.ids, seed, context)


def drive(
    protocol: Mean, users: Users, seed: int, nodes: int = 1
) -> tuple[Estimate, list[Query], list[Summary]]:
    """Run a script by hand, and check every summary as the session does."""
    script = protocol.rounds(None)  # type: ignore[arg-type]
    queries: list[Query] = []
    summaries: list[Summary] = []
    try:
        query = next(script)
        while True:
            context = f"round {len(queries)}"
            parts = [
                query.answer_folded(u.select(query.cohort), lambda c: streams(c, seed, context))  # noqa: B023
                for u in users.split(nodes)
            ]
            summary = Summary.merge(parts)
            query.check_summary(summary)
            queries.append(query)
            summaries.append(summary)
            query = script.send(summary)
    except StopIteration as end:
        return end.value, queries, summaries


def coin_users(n: int, T: int, theta: float, seed: int = 0) -> Users:
    values = np.where(np.random.default_rng(seed).random(n * T) < (1 + theta) / 2, 1.0, -1.0)
    return Users.from_samples(np.arange(1, n + 1), np.arange(n + 1) * T, values)


def votes_query(**changes: object) -> BinVotes:
    return replace(BinVotes(-1.0, 1.0, 70, 1.0), **changes)  # type: ignore[arg-type]


def mean_query(**changes: object) -> ClippedMean:
    return replace(ClippedMean(0.1, 0.2, -1.0, 1.0, 1.0, "onebit"), **changes)  # type: ignore[arg-type]


QUERIES = [
    votes_query(),
    votes_query(neighbours=True, max_items=2),
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


# -- queries: privacy ------------------------------------------------------------------------


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


def test_guarantee_and_disjoint_cohorts() -> None:
    for mode in ("default", "paper"):
        protocol = replace(Mean.example(), mode=mode)
        assert protocol.guarantee == Guarantee(2.0, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)
        assert protocol.claimed == protocol.guarantee
        _, (vote, refine), (voters, reporters) = drive(protocol, Mean.example_users(), 0)
        assert vote.cohort is not None
        assert refine.cohort is not None
        assert vote.cohort.disjoint(refine.cohort)
        assert vote.cohort.share + refine.cohort.share == pytest.approx(1)
        assert voters.n_users + reporters.n_users == 400
        assert vote.release == refine.release == pure(2.0)


# -- queries: messages -----------------------------------------------------------------------


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


def test_integer_parameters_do_not_change_the_digest() -> None:
    users = coin_users(400, 64, 0.2)
    as_integers = Mean(2, 400, 64, -1, 1)
    as_floats = Mean(2.0, 400, 64.0, -1.0, 1.0)
    _, first, _ = drive(as_integers, users, 0)
    _, second, _ = drive(as_floats, users, 0)
    assert [query_digest(q, 0) for q in first] == [query_digest(q, 0) for q in second]


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
    for votes in ([3], [-1]):
        sums = {"votes": np.array(votes * 70)}
        with pytest.raises(WireError, match="outside"):
            query.check_summary(Summary(2, sums))


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


@pytest.mark.parametrize(("kind", "total"), [("onebit", 3), ("piecewise", 8.4)])
def test_sums_are_bounded(kind: str, total: float) -> None:
    query = mean_query(kind=kind)
    with pytest.raises(WireError, match="outside"):
        query.check_summary(Summary(2, {"reports": np.array([total])}))


def test_bad_query_parameters() -> None:
    with pytest.raises(ValueError, match=r"got \[1.0, 1.0\]"):
        votes_query(low=1.0)
    with pytest.raises(ValueError, match="got 0"):
        votes_query(n_bins=0)
    with pytest.raises(ValueError, match="got -1"):
        votes_query(max_items=-1)
    with pytest.raises(ValueError, match="got 'auto'"):
        mean_query(kind="auto")
    with pytest.raises(ValueError, match="got 0.0"):
        mean_query(half_width=0.0)
    with pytest.raises(ValueError, match="got inf"):
        mean_query(centre=math.inf)


# -- the protocol ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("default", "auto"),
        ("default", "laplace"),
        ("default", "onebit"),
        ("default", "piecewise"),
        ("paper", "auto"),
    ],
)
def test_exact_without_noise(mode: str, kind: str) -> None:
    protocol, users = replace(Mean.example(), epsilon=math.inf, kind=kind), Mean.example_users()
    estimate, _, _ = drive(replace(protocol, mode=mode), users, 0)
    assert estimate.value == pytest.approx(protocol.truth(users), abs=1e-12)


def test_one_round_for_one_sample_a_user() -> None:
    protocol = Mean(1.0, 3000, 1, -1.0, 1.0)
    estimate, queries, summaries = drive(protocol, coin_users(3000, 1, 0.5), 0)
    assert protocol.max_rounds == len(queries) == 1
    assert summaries[0].n_users == 3000
    assert estimate.stderr is not None
    # five standard errors: false alarm 6e-7
    assert abs(estimate.value[0] - 0.5) < 5 * estimate.stderr[0]  # type: ignore[index]


def test_mse_of_two_rounds() -> None:
    n, T, theta = 2000, 1024, 0.237
    users = coin_users(n, T, theta)
    protocol = Mean(1.0, n, T, -1.0, 1.0, kind="laplace")
    squares = np.array([(drive(protocol, users, s)[0].value[0] - theta) ** 2 for s in range(150)])
    # theory: 1.55e-5; relative deviation of the average sqrt(2/150) = 0.12: chance below 1e-5
    assert 0.7e-5 < squares.mean() < 2.5e-5
    assert protocol.error(users).expected == pytest.approx(2.04e-5, rel=0.01)


def test_stderr_is_calibrated_and_kinds_agree() -> None:
    users = coin_users(2000, 256, -0.4)
    for kind in ("onebit", "piecewise"):
        protocol = Mean(1.0, 2000, 256, -1.0, 1.0, kind=kind)
        z = []
        for seed in range(60):
            estimate, _, _ = drive(protocol, users, seed)
            z.append((estimate.value[0] + 0.4) / estimate.stderr[0])  # type: ignore[index]
        # a clipping bias of up to half a standard error is planned for; chi-squared of 60 degrees
        # leaves [0.45, 1.9] with probability 1e-4 at ratio 1
        assert 0.45 < np.mean(np.square(z)) < 1.9


@pytest.mark.parametrize("theta", [-1.0, 1.0])
def test_means_at_the_ends(theta: float) -> None:
    users = coin_users(2000, 64, theta)
    protocol = Mean(1.0, 2000, 64, -1.0, 1.0)
    values = np.array([drive(protocol, users, s)[0].value[0] for s in range(40)])
    assert (np.abs(values) <= 1).all()
    # the mean square of 40 errors exceeds twice its expectation with probability 1e-4
    assert ((values - theta) ** 2).mean() < 2 * protocol.plan.risk


def test_other_ranges_are_the_same_problem() -> None:
    users = coin_users(1500, 128, 0.3)
    moved = Users.from_samples(users.ids, users.reals.indptr, 20 + 10 * users.reals.values)
    unit, _, _ = drive(Mean(1.0, 1500, 128, -1.0, 1.0, kind="onebit"), users, 4)
    wide, _, _ = drive(Mean(1.0, 1500, 128, 10.0, 30.0, kind="onebit"), moved, 4)
    assert wide.value[0] == pytest.approx(20 + 10 * unit.value[0], abs=1e-9)  # type: ignore[index]
    assert wide.stderr == pytest.approx(10 * unit.stderr)  # type: ignore[operator]


def test_packing_does_not_change_integer_estimates() -> None:
    users = coin_users(600, 64, 0.1)
    protocol = Mean(1.0, 600, 64, -1.0, 1.0, kind="onebit")
    values = {drive(protocol, users, 2, nodes=k)[0].value.tobytes() for k in (1, 7, 60)}  # type: ignore[union-attr]
    assert len(values) == 1


def test_bad_records_cost_little_and_break_nothing() -> None:
    clean = coin_users(2000, 64, 0.3)
    values, indptr = clean.reals.values.copy(), clean.reals.indptr
    values[indptr[:10]] = np.nan
    values[indptr[10]] = 1e300
    users = Users.from_samples(clean.ids, indptr, values)
    estimate, _, summaries = drive(Mean(1.0, 2000, 64, -1.0, 1.0), users, 0)
    assert sum(s.n_users for s in summaries) == 2000
    assert abs(estimate.value[0] - 0.3) < 6 * estimate.stderr[0]  # type: ignore[index]


def test_refusal_names_the_least_n() -> None:
    protocol = Mean(0.1, 50, 64, -1.0, 1.0)
    estimate, queries, _ = drive(protocol, coin_users(50, 64, 0.0), 0)
    assert estimate.status == "refused"
    assert not queries
    least = int(estimate.reason.split("at least ")[1].split()[0])
    assert replace(protocol, n_users=least).plan.feasible
    assert not replace(protocol, n_users=least - 1).plan.feasible


def test_a_wrong_window_is_announced() -> None:
    # users without a common mean: no window holds many of them
    rng = np.random.default_rng(0)
    n = 20_000
    users = Users.from_samples(np.arange(1, n + 1), np.arange(n + 1), rng.uniform(-1, 1, n))
    estimate, _, _ = drive(Mean(1.0, n, 1024, -1.0, 1.0), users, 0)
    assert estimate.public["window_mass"] < 0.6
    assert "may be the wrong one" in estimate.warnings[0]
    good, _, _ = drive(Mean(1.0, 2000, 64, -1.0, 1.0), coin_users(2000, 64, 0.3), 0)
    assert not good.warnings
    assert good.public["window_mass"] > 0.6


def test_nobody_answers() -> None:
    script = Mean.example().rounds(None)  # type: ignore[arg-type]
    query = next(script)
    with pytest.raises(StopIteration) as end:
        script.send(Summary(0, {"votes": np.zeros(query.n_bins, dtype=np.int64)}))  # type: ignore[attr-defined]
    assert end.value.value.status == "failed"


# -- mode="paper" ----------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "epsilon"), [(3000, 1.0), (8000, 0.5)])
def test_paper_mode_localizes_with_its_interval(n: int, epsilon: float) -> None:
    T, theta = 256, 0.237
    users = coin_users(n, T, theta)
    protocol = Mean(epsilon, n, T, -1.0, 1.0, mode="paper")
    delta = math.sqrt(0.25 * math.log(n * epsilon**2 * T) / T)
    for seed in range(5):
        estimate, (vote, refine), _ = drive(protocol, users, seed)
        assert isinstance(vote, BinVotes)
        assert isinstance(refine, ClippedMean)
        assert vote.channel.ones == 3
        assert 2 * refine.half_width == pytest.approx(min(7 * delta, 2.0))
        assert refine.kind == "laplace"
        assert estimate.public["interval_low"] < theta < estimate.public["interval_high"]
        # planned failures below 5e-3, five standard errors otherwise
        assert abs(estimate.value[0] - theta) < 5 * estimate.stderr[0]  # type: ignore[index]


def test_paper_mode_localizes_at_its_edge() -> None:
    users, protocol = coin_users(1500, 256, 0.237), Mean(1.0, 1500, 256, -1.0, 1.0, mode="paper")
    assert protocol.plan.failure < 0.02
    runs = [drive(protocol, users, seed)[0].public for seed in range(20)]
    found = sum(r["interval_low"] < 0.237 < r["interval_high"] for r in runs)
    assert found >= 17  # four failures of 20 at probability 0.02: 6e-4


def test_paper_mode_uses_the_first_samples_only() -> None:
    protocol = Mean(1.0, 1500, 1e9, -1.0, 1.0, mode="paper")
    assert protocol.plan.max_items == math.floor(math.exp(15))
    users = Users.from_records({"ann": [1.0, 1.0, -1.0], "bob": [0.0]})
    query = votes_query(epsilon=math.inf, n_bins=4, max_items=2)
    votes = query.fold(query.answer(users, streams(users, 0))).sums["votes"]
    assert votes.tolist() == [0, 0, 1, 1]


def test_paper_mode_warns_where_its_vote_fails() -> None:
    protocol = Mean(1.0, 200, 256, -1.0, 1.0, mode="paper")
    estimate, _, _ = drive(protocol, coin_users(200, 256, 0.2), 0)
    assert "wrong window with probability" in estimate.warnings[0]


# -- configuration ---------------------------------------------------------------------------


def test_resolve_takes_public_numbers() -> None:
    users = Users.from_records({"ann": [0.1] * 4, "bob": [0.2] * 12, "eve": []})
    fixed, notes = Mean.resolve({"samples_per_user": 5}, users, None)
    assert (fixed, notes) == ({"samples_per_user": 5, "n_users": 3}, [])
    asked = {"samples_per_user": "harmonic-mean", "n_users": 9}
    found, notes = Mean.resolve(asked, users, None)
    assert found == {"samples_per_user": pytest.approx(6.0), "n_users": 9}
    assert len(notes) == 1
    for declared in ({"samples_public": True}, asked | {"samples_public": True}):
        found, notes = Mean.resolve(declared, users, None)
        assert found["samples_per_user"] == pytest.approx(6.0)
        assert "samples_public" not in found
        assert notes == []
    with pytest.raises(PopulationError, match="no user has samples"):
        Mean.resolve({"samples_public": True}, Users.from_records({"eve": [], "ann": []}), None)


def test_truth_skips_unusable_records() -> None:
    users = Users.from_records({"ann": [0.5, 9.0], "bob": [0.0], "eve": [np.nan], "dan": []})
    assert Mean.example().truth(users).tolist() == [0.375]
    assert Mean.example().loss(np.array([0.5]), np.array([0.375])) == 0.125**2
    with pytest.raises(PopulationError, match="no mean"):
        Mean.example().truth(Users.from_records({"eve": [np.nan]}))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"epsilon": 0.0}, "got 0.0"),
        ({"n_users": 0}, "got 0"),
        ({"samples_per_user": 0.5}, "got 0.5"),
        ({"samples_per_user": "harmonic-mean"}, "got 'harmonic-mean'"),
        ({"low": 2.0}, r"got \[2.0, 1.0\]"),
        ({"mean_scale": 0.0}, "got 0.0"),
        ({"kind": "gauss"}, "got 'gauss'"),
        ({"mode": "papers"}, "got 'papers'"),
        ({"mode": "paper", "kind": "onebit"}, "got kind 'onebit'"),
        ({"salt": -1}, "got -1"),
    ],
)
def test_bad_parameters(changes: dict[str, object], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        replace(Mean.example(), **changes)  # type: ignore[arg-type]


def test_users_must_have_one_coordinate() -> None:
    users = Users.from_samples([1], [0, 1], np.zeros((1, 2)))
    with pytest.raises(PopulationError, match="one dimension, got 2"):
        votes_query().answer(users, streams(users, 0))
