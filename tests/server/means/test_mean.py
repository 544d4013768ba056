from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clients.localize.queries import BinVotes, ClippedMean
from fedhist.base.errors import PopulationError
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Estimate
from fedhist.model.query import Summary
from fedhist.users.batch import Users
from server.means.mean import Mean
from server.session.session import Session
from tests.running import run, secure, streams


def coin_users(n: int, T: int, theta: float, seed: int = 0) -> Users:
    values = np.where(np.random.default_rng(seed).random(n * T) < (1 + theta) / 2, 1.0, -1.0)
    return Users.from_samples(np.arange(1, n + 1), np.arange(n + 1) * T, values)


# -- the protocol ----------------------------------------------------------------------------


def test_integer_parameters_do_not_change_the_digest() -> None:
    users = coin_users(400, 64, 0.2)
    as_integers = Mean(2, 400, 64, -1, 1)
    as_floats = Mean(2.0, 400, 64.0, -1.0, 1.0)
    _, first, _ = run(as_integers, users, 0)
    _, second, _ = run(as_floats, users, 0)
    assert [query_digest(q, 0) for q in first] == [query_digest(q, 0) for q in second]


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
    estimate, _, _ = run(replace(protocol, mode=mode), users, 0)
    assert estimate.value == pytest.approx(protocol.truth(users), abs=1e-12)


def test_one_round_for_one_sample_a_user() -> None:
    protocol = Mean(1.0, 3000, 1, -1.0, 1.0)
    estimate, queries, summaries = run(protocol, coin_users(3000, 1, 0.5), 0)
    assert protocol.max_rounds == len(queries) == 1
    assert summaries[0].n_users == 3000
    assert estimate.stderr is not None
    # five standard errors: false alarm 6e-7
    assert abs(estimate.value[0] - 0.5) < 5 * estimate.stderr[0]


def test_mse_of_two_rounds() -> None:
    n, T, theta = 2000, 1024, 0.237
    users = coin_users(n, T, theta)
    protocol = Mean(1.0, n, T, -1.0, 1.0, kind="laplace", method="vote")
    squares = np.array([(run(protocol, users, s)[0].value[0] - theta) ** 2 for s in range(150)])
    # theory: 1.55e-5; relative deviation of the average sqrt(2/150) = 0.12: chance below 1e-5
    assert 0.7e-5 < squares.mean() < 2.5e-5
    assert protocol.plan.risk == pytest.approx(2.04e-5, rel=0.01)


def test_stderr_is_calibrated_and_kinds_agree() -> None:
    users = coin_users(2000, 256, -0.4)
    for kind in ("onebit", "piecewise"):
        protocol = Mean(1.0, 2000, 256, -1.0, 1.0, kind=kind, method="vote")
        z = []
        for seed in range(60):
            estimate, _, _ = run(protocol, users, seed)
            z.append((estimate.value[0] + 0.4) / estimate.stderr[0])
        # a clipping bias of up to half a standard error is planned for; chi-squared of 60 degrees
        # leaves [0.45, 1.9] with probability 1e-4 at ratio 1
        assert 0.45 < np.mean(np.square(z)) < 1.9


@pytest.mark.parametrize("theta", [-1.0, 1.0])
def test_means_at_the_ends(theta: float) -> None:
    users = coin_users(2000, 64, theta)
    protocol = Mean(1.0, 2000, 64, -1.0, 1.0, method="vote")
    values = np.array([run(protocol, users, s)[0].value[0] for s in range(40)])
    assert (np.abs(values) <= 1).all()
    # the mean square of 40 errors exceeds twice its expectation with probability 1e-4
    assert ((values - theta) ** 2).mean() < 2 * protocol.plan.risk


def test_other_ranges_are_the_same_problem() -> None:
    """With the same coins, which otherwise follow from the question."""
    users = coin_users(1500, 128, 0.3)
    moved = Users.from_samples(users.ids, users.reals.indptr, 20 + 10 * users.reals.values)

    def tossed(low: float, high: float, some: Users) -> Estimate:
        session = Session(Mean(1.0, 1500, 128, low, high, kind="onebit", method="vote"), secure)
        return session.run(
            lambda q, r: q.answer_folded(
                some.select(q.cohort), lambda part: streams(part, 4, f"round {r}")
            )
        )

    unit, wide = tossed(-1.0, 1.0, users), tossed(10.0, 30.0, moved)
    assert wide.value[0] == pytest.approx(20 + 10 * unit.value[0], abs=1e-9)
    assert wide.stderr == pytest.approx(10 * unit.stderr)


def test_packing_does_not_change_integer_estimates() -> None:
    users = coin_users(600, 64, 0.1)
    protocol = Mean(1.0, 600, 64, -1.0, 1.0, kind="onebit")
    values = {run(protocol, users, 2, nodes=k)[0].value.tobytes() for k in (1, 7, 60)}
    assert len(values) == 1


def test_bad_records_cost_little_and_break_nothing() -> None:
    clean = coin_users(2000, 64, 0.3)
    values, indptr = clean.reals.values.copy(), clean.reals.indptr
    values[indptr[:10]] = np.nan
    values[indptr[10]] = 1e300
    users = Users.from_samples(clean.ids, indptr, values)
    estimate, _, summaries = run(Mean(1.0, 2000, 64, -1.0, 1.0), users, 0)
    assert sum(s.n_users for s in summaries) == 2000
    assert abs(estimate.value[0] - 0.3) < 6 * estimate.stderr[0]


def test_a_wrong_window_is_announced() -> None:
    # users without a common mean: no window holds many of them
    rng = np.random.default_rng(0)
    n = 20_000
    users = Users.from_samples(np.arange(1, n + 1), np.arange(n + 1), rng.uniform(-1, 1, n))
    estimate, _, _ = run(Mean(1.0, n, 1024, -1.0, 1.0, method="vote"), users, 0)
    assert estimate.public["window_mass"] < 0.6
    assert "may be the wrong one" in estimate.warnings[0]
    learned, _, _ = run(Mean(1.0, n, 1024, -1.0, 1.0), users, 0)
    assert "users differ" in learned.warnings[0]
    good, _, _ = run(Mean(1.0, 2000, 64, -1.0, 1.0, method="vote"), coin_users(2000, 64, 0.3), 0)
    assert not good.warnings
    assert good.public["window_mass"] > 0.6


def test_nobody_answers() -> None:
    script = Mean.example().rounds(None)
    query = next(script)
    with pytest.raises(StopIteration) as end:
        script.send(Summary(0, {"votes": np.zeros(query.n_bins, dtype=np.int64)}))
    assert end.value.value.status == "failed"


# -- mode="paper" ----------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "epsilon"), [(3000, 1.0), (8000, 0.5)])
def test_paper_mode_localizes_with_its_interval(n: int, epsilon: float) -> None:
    T, theta = 256, 0.237
    users = coin_users(n, T, theta)
    protocol = Mean(epsilon, n, T, -1.0, 1.0, mode="paper")
    delta = math.sqrt(0.25 * math.log(n * epsilon**2 * T) / T)
    for seed in range(5):
        estimate, (vote, refine), _ = run(protocol, users, seed)
        assert isinstance(vote, BinVotes)
        assert isinstance(refine, ClippedMean)
        assert vote.channel.ones == 3
        assert 2 * refine.half_width == pytest.approx(min(7 * delta, 2.0))
        assert refine.kind == "laplace"
        assert estimate.public["interval_low"] < theta < estimate.public["interval_high"]
        # planned failures below 5e-3, five standard errors otherwise
        assert abs(estimate.value[0] - theta) < 5 * estimate.stderr[0]


def test_paper_mode_localizes_at_its_edge() -> None:
    users, protocol = coin_users(1500, 256, 0.237), Mean(1.0, 1500, 256, -1.0, 1.0, mode="paper")
    assert protocol.plan.failure < 0.02
    runs = [run(protocol, users, seed)[0].public for seed in range(20)]
    found = sum(r["interval_low"] < 0.237 < r["interval_high"] for r in runs)
    assert found >= 17  # four failures of 20 at probability 0.02: 6e-4


def test_paper_mode_caps_the_samples() -> None:
    protocol = Mean(1.0, 1500, 1e9, -1.0, 1.0, mode="paper")
    assert protocol.plan.max_items == math.floor(math.exp(15))


def test_paper_mode_warns_where_its_vote_fails() -> None:
    protocol = Mean(1.0, 200, 256, -1.0, 1.0, mode="paper")
    estimate, _, _ = run(protocol, coin_users(200, 256, 0.2), 0)
    assert "wrong window with probability" in estimate.warnings[0]


# -- configuration ---------------------------------------------------------------------------


def test_truth_skips_unusable_records() -> None:
    users = Users.from_records({"ann": [0.5, 9.0], "bob": [0.0], "eve": [np.nan], "dan": []})
    assert Mean.example().truth(users).tolist() == [2.375]  # 9.0 lies outside the range, and shows
    assert Mean.example().loss(np.array([0.5]), np.array([0.375])) == 0.125**2
    with pytest.raises(PopulationError, match="no mean"):
        Mean.example().truth(Users.from_records({"eve": [np.nan]}))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"low": 2.0}, r"got \[2.0, 1.0\]"),
    ],
)
def test_bad_parameters(changes: dict[str, object], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        replace(Mean.example(), **changes)
