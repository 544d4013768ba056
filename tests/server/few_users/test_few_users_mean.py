"""Means and distributions from few users: statuses, bad input, null records, the ledger."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clients.few_users.queries import UserMeans, UserShares
from clients.records.user_rows import mean_rows, share_rows
from fedhist.base.errors import PopulationError
from fedhist.model.protocol import Estimate
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Samples
from fedhist.users.streams import SeededStreams
from server.few_users.few_users_mean import FewUsersMean
from server.few_users.plan import clip_bias, large_n_noise
from simulations.runs.options import Options
from simulations.runs.run import execute
from tests.running import one_sample, streams


def gathered(n: int, d: int, r: float) -> NDArray[np.float64]:
    return 0.3 + np.random.default_rng(5).standard_normal((n, d)) * r / math.sqrt(d)


def run(protocol: FewUsersMean, users: Users, seed: int = 1, noise: str = "simulated") -> Estimate:
    return execute(protocol, users, Options(seed=seed, noise=noise)).estimate


BASE: dict[str, Any] = {"epsilon": 1.0, "n_users": 100, "dimension": 32, "radius": 0.1}


@pytest.mark.parametrize(
    ("change", "least"),
    [
        ({"method": "blocks", "n_blocks": 4, "dimension": 64}, 331),
        ({"method": "large-n", "box": 0.4, "dimension": 64}, 1619),
        ({"corrupted": 0.49, "lam": 1.0, "dimension": 64}, 792),
    ],
)
def test_the_number_that_would_do_does(change: dict[str, Any], least: int) -> None:
    protocol = FewUsersMean(**BASE | change)
    assert protocol.plan.least_users == least
    assert dataclasses.replace(protocol, n_users=least).plan.feasible
    assert not dataclasses.replace(protocol, n_users=least - 1).plan.feasible


def test_users_apart_give_a_failure_that_has_spent() -> None:
    protocol = FewUsersMean(**BASE | {"n_rounds": 50})
    rows = 100 * np.random.default_rng(1).standard_normal((100, 32))
    estimate = run(protocol, one_sample(rows))
    assert estimate.status == "failed"
    assert estimate.value is None
    assert estimate.public["points"] == 0
    assert estimate.ledger.spent().epsilon == 1.0


def test_fewer_answers_than_needed_are_a_failure() -> None:
    protocol = FewUsersMean(**BASE)
    estimate = run(protocol, one_sample(gathered(60, 32, 0.1)))
    assert estimate.status == "failed"
    assert " 60 " in estimate.reason
    assert " 73 " in estimate.reason
    assert not estimate.ledger.entries


def test_the_choice_takes_the_least_error_that_is_feasible() -> None:
    """Public numbers only: ball, blocks, large n, as users get more; nothing without users."""
    plans = {}
    for n in (50, 100, 400, 2000, 20_000):
        plans[n] = FewUsersMean(**BASE | {"n_users": n, "dimension": 1024, "box": 10.0}).plan
    assert not plans.pop(50).feasible
    assert all(p.feasible for p in plans.values())
    assert [(p.method, p.n_parts) for p in plans.values()] == [
        ("ball", 1), ("blocks", 4), ("blocks", 64), ("large-n", 0)
    ]  # fmt: skip
    without_box = FewUsersMean(**BASE | {"n_users": 20_000, "dimension": 1024}).plan
    assert without_box.method == "blocks"


def test_with_a_box_and_too_few_users_for_large_n_all_is_left_to_central_mean() -> None:
    """Where it is predicted better: also for users who differ three times as much as is said."""
    change = {"n_users": 1000, "dimension": 64, "box": 10.0}
    protocol = FewUsersMean(**BASE | change)
    assert protocol.plan.method == "blocks"
    assert protocol.handed is not None
    users = one_sample(gathered(1000, 64, 0.3))
    estimate = run(protocol, users)
    assert estimate.status == "ok"
    assert protocol.loss_of(estimate, users) < protocol.plan.error / 2
    assert estimate.ledger.spent().epsilon == pytest.approx(1.0, rel=1e-9)
    assert protocol.error(users).kind == "simulated"
    assert estimate.public["radius"] < 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"box": None},
        {"method": "blocks"},
        {"corrupted": 0.2, "lam": 1.0},
        {"n_users": 100, "dimension": 1024},  # of which a ball is predicted better
        {"n_users": 2000, "dimension": 16},  # enough for large n
        {"epsilon": math.inf},
        {"mode": "paper"},
    ],
)
def test_nothing_else_is_left_to_central_mean(change: dict[str, Any]) -> None:
    given = {"n_users": 1000, "dimension": 64, "box": 10.0} | change
    assert FewUsersMean(**BASE | given).handed is None


def test_a_prediction_is_the_theorem_s_bound() -> None:
    users = one_sample(gathered(100, 32, 0.1))
    result = FewUsersMean(**BASE).error(users)
    assert (result.kind, result.expected) == ("bound", FewUsersMean(**BASE).plan.error)
    narrow = FewUsersMean(**BASE | {"box": 0.1, "method": "ball"}).error(users)
    assert narrow.expected == 0.2
    exact = FewUsersMean(**BASE | {"epsilon": math.inf}).error(users)
    assert exact.expected < 1e-9


def test_secure_noise_has_no_branch_that_draws_points() -> None:
    """The others draw a real point. Two runs with the same seed differ: there is none."""
    change = {"method": "large-n", "box": 0.4, "n_users": 2000, "dimension": 40}
    protocol = FewUsersMean(**BASE | change)
    users = one_sample(gathered(protocol.n_users, 40, 0.1) - 0.28)  # inside the box
    a, b = (run(protocol, users, noise="secure") for _ in range(2))
    assert a.status == b.status == "ok"
    assert not np.array_equal(a.value, b.value)
    assert np.linalg.norm(a.value - protocol.truth(users)) < 3 * protocol.plan.error
    few = FewUsersMean(**BASE | {"n_rounds": 3000})
    refused = run(few, one_sample(gathered(100, 32, 0.1)), noise="secure")
    assert refused.status == "refused"
    assert '"ball"' in refused.reason


def test_users_who_stay_away_may_change_the_branch_and_secure_noise_fails() -> None:
    """The plan for those who answered is "blocks": the run fails and releases nothing."""
    protocol = FewUsersMean(**BASE | {"n_users": 20_000, "dimension": 1024, "box": 10.0})
    assert protocol.plan.method == "large-n"
    assert protocol.plan_for(2000).method == "blocks"
    users = one_sample(gathered(2000, 1024, 0.1))
    estimate = run(protocol, users, noise="secure")
    assert estimate.status == "failed"
    assert '"blocks"' in estimate.reason
    assert not estimate.ledger.entries


def test_unusable_records_become_the_null_record_and_are_not_dropped() -> None:
    nan, inf = math.nan, math.inf
    values = np.array([[1, 1], [nan, 0], [2, 2], [inf, -inf], [1e308, 1e308], [1e308, 1e308]])
    samples = Samples(np.array([0, 1, 3, 3, 4, 6]), values)
    rows = mean_rows(samples, 5.0)
    assert rows[:4].tolist() == [[1, 1], [0, 0], [0, 0], [0, 0]]
    assert rows[4].tolist() == [0, 0]  # the sum overflows: not usable either
    users = Users(np.arange(5, dtype=np.uint64), samples=samples)
    protocol = FewUsersMean(**BASE | {"n_users": 200, "dimension": 2})
    assert protocol.diagnostics(users) == {"unusable records": 4}
    assert protocol.truth(users).tolist() == [1, 1]


def test_samples_of_another_dimension_are_refused() -> None:
    users = one_sample(np.zeros((2, 3)))
    with pytest.raises(PopulationError):
        UserMeans(2, 1.0).answer(users, streams(users))


def test_shares_are_of_the_known_items() -> None:
    users = Users.from_records({"a": {"x": 3, "z": 9, "y": 1}, "b": {"z": 4}, "c": {}})
    domain = Keys.of(["y", "x"])
    report = UserShares(domain).answer(users, SeededStreams(users.ids, 1, "x"))
    rows = {tuple(r) for r in report.arrays["mean"].tolist()}
    assert rows == {(0.25, 0.75), (0.0, 0.0)}
    whole = share_rows(users.counts, None, 3)
    assert sorted(whole.sum(axis=1).tolist()) == pytest.approx([0, 1, 1])


@pytest.mark.parametrize(("d", "mean"), [(1, 0.0), (4, 0.5)])
def test_in_few_dimensions_the_clip_is_in_the_bound(d: int, mean: float) -> None:
    """The bias is 7 to 40 times the noise, and the most there is where bins end at the mean."""
    n = 4000
    x = mean + np.random.default_rng(8).standard_normal((n, d)) / math.sqrt(d)
    users = one_sample(x)
    change = {"n_users": n, "dimension": d, "radius": 1.0, "box": 8.0, "method": "large-n"}
    protocol = FewUsersMean(**BASE | change)
    losses = [protocol.loss_of(run(protocol, users, seed), users) for seed in range(20)]
    noise = large_n_noise(protocol.plan) * math.sqrt(d)
    assert protocol.plan.error == pytest.approx(math.hypot(clip_bias(d), 1 / math.sqrt(n), noise))
    assert np.mean(losses) <= 1.1 * protocol.plan.error
    if (d, mean) == (1, 0.0):  # 16 bins from -8 to 8: one ends at 0
        assert np.mean(losses) >= 0.9 * protocol.plan.error


def test_with_a_box_no_estimate_lies_outside() -> None:
    """A ball of 1.6 around users of a box of 1: the nearest point of the box, and a warning."""
    x = np.zeros((150, 1000))
    x[:, 0] = 0.2
    change = {"n_users": 150, "dimension": 1000, "box": 1.0, "radius": 0.1, "method": "ball"}
    estimate = run(FewUsersMean(**BASE | change), one_sample(x))
    assert np.linalg.norm(estimate.value) <= 1 + 1e-9
    assert estimate.warnings
