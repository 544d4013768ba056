from __future__ import annotations

import math

import numpy as np
import pytest

from fedhist.base.errors import PopulationError
from fedhist.model.codec import query_digest
from fedhist.users.batch import Users
from server.means.mean import Mean
from tests.running import run


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


def test_one_round_for_one_sample_a_user() -> None:
    protocol = Mean(1.0, 3000, 1, -1.0, 1.0)
    estimate, queries, summaries = run(protocol, coin_users(3000, 1, 0.5), 0)
    assert protocol.max_rounds == len(queries) == 1
    assert summaries[0].n_users == 3000
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


def test_stderr_is_calibrated() -> None:
    users = coin_users(2000, 256, -0.4)
    protocol, z = Mean(1.0, 2000, 256, -1.0, 1.0, kind="piecewise", method="vote"), []
    for seed in range(60):
        estimate, _, _ = run(protocol, users, seed)
        z.append((estimate.value[0] + 0.4) / estimate.stderr[0])
    # a clipping bias of up to half a standard error is planned for; chi-squared of 60 degrees
    # leaves [0.45, 1.9] with probability 1e-4 at ratio 1
    assert 0.45 < np.mean(np.square(z)) < 1.9


def test_means_at_the_ends() -> None:
    users = coin_users(2000, 64, -1.0)
    protocol = Mean(1.0, 2000, 64, -1.0, 1.0, method="vote")
    values = np.array([run(protocol, users, s)[0].value[0] for s in range(40)])
    assert (np.abs(values) <= 1).all()
    # the mean square of 40 errors exceeds twice its expectation with probability 1e-4
    assert ((values + 1) ** 2).mean() < 2 * protocol.plan.risk


def test_a_wrong_window_is_announced() -> None:
    # users without a common mean: no window holds many of them
    rng = np.random.default_rng(0)
    n = 20_000
    users = Users.from_samples(np.arange(1, n + 1), np.arange(n + 1), rng.uniform(-1, 1, n))
    estimate, _, _ = run(Mean(1.0, n, 1024, -1.0, 1.0, method="vote"), users, 0)
    assert estimate.public["window_mass"] < 0.6
    assert estimate.warnings
    learned, _, _ = run(Mean(1.0, n, 1024, -1.0, 1.0), users, 0)
    assert learned.warnings
    good, _, _ = run(Mean(1.0, 2000, 64, -1.0, 1.0, method="vote"), coin_users(2000, 64, 0.3), 0)
    assert not good.warnings
    assert good.public["window_mass"] > 0.6


def test_nobody_answers() -> None:
    protocol = Mean(1.0, 2000, 64, -1.0, 1.0, method="vote")
    assert run(protocol, coin_users(0, 64, 0.0)).estimate.status == "failed"


# -- mode="paper" ----------------------------------------------------------------------------


def test_paper_mode_localizes_with_its_interval() -> None:
    n, epsilon, T, theta = 8000, 0.5, 256, 0.237
    users = coin_users(n, T, theta)
    protocol = Mean(epsilon, n, T, -1.0, 1.0, mode="paper")
    delta = math.sqrt(0.25 * math.log(n * epsilon**2 * T) / T)
    for seed in range(3):
        estimate, (vote, refine), _ = run(protocol, users, seed)
        assert vote.channel.ones == 3
        assert 2 * refine.half_width == pytest.approx(min(7 * delta, 2.0))
        assert refine.kind == "laplace"
        assert estimate.public["interval_low"] < theta < estimate.public["interval_high"]
        # planned failures below 5e-3, five standard errors otherwise
        assert abs(estimate.value[0] - theta) < 5 * estimate.stderr[0]


def test_paper_mode_warns_where_its_vote_fails() -> None:
    protocol = Mean(1.0, 200, 256, -1.0, 1.0, mode="paper")
    estimate, _, _ = run(protocol, coin_users(200, 256, 0.2), 0)
    assert estimate.warnings


# -- configuration ---------------------------------------------------------------------------


def test_truth_skips_unusable_records() -> None:
    users = Users.from_records({"ann": [0.5, 9.0], "bob": [0.0], "eve": [np.nan], "dan": []})
    assert Mean.example().truth(users).tolist() == [2.375]  # 9.0 lies outside the range, and shows
    assert Mean.example().loss(np.array([0.5]), np.array([0.375])) == 0.125**2
    with pytest.raises(PopulationError, match="mean"):
        Mean.example().truth(Users.from_records({"eve": [np.nan]}))
