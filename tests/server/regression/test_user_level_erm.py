"""User-level descent: exact sensitivities, spent budgets, honest predictions, refusals."""

import itertools
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from clients.regression.queries import NAME, UserGradients
from server.regression.user_level_erm import UserLevelErm
from tests.running import result

EXTREMES = (-1e9, -3.0, -0.2, 0.0, 0.7, 5.0, 1e9, math.nan, math.inf)


def answers(query: UserGradients, users: fh.Users) -> np.ndarray:
    report = query.answer(users, fh.SeededStreams(users.ids, 0, "test"))
    query.check(report)
    return report.arrays[NAME]


@lru_cache
def linear(n: int = 2000, m: int = 20, d: int = 4, **more: Any) -> fh.Users:
    spec = {"n_users": n, "samples_per_user": m, "dimension": d, "noise": 0.5, **more}
    return fh.population("regression", **spec).load().users


BASE = UserLevelErm(
    epsilon=1.0,
    delta=1e-6,
    n_users=2000,
    dimension=4,
    radius=3.0,
    gradient_bound=2.5,
    spread=0.3,
    smoothness=1.1,
    strong_convexity=0.9,
    steps=8,
)


@pytest.mark.parametrize("model", ["least-squares", "logistic"])
@pytest.mark.parametrize("discrete", [False, True])
def test_sensitivity_is_attained_and_never_passed(model: str, discrete: bool) -> None:
    """All pairs of 6,561 records and the empty one, in two dimensions, at several points."""
    grid = [r for r in itertools.product(EXTREMES, repeat=3) if not math.isnan(r[0])]
    labels = [(*x, y) for x in itertools.product(EXTREMES, repeat=2) for y in (-1.0, 1.0, 2.0)]
    records = np.array(labels if model == "logistic" else grid)
    indptr = np.append(np.arange(len(records) + 1), len(records))  # the last user has no samples
    users = fh.Users.from_samples(np.arange(1, len(indptr)), indptr, records, unusable=True)
    rng = np.random.default_rng(1)
    largest = 0.0
    for scale in (0.0, 0.3, 4.0):
        query = UserGradients(model, scale * rng.normal(size=2), rng.normal(size=2), 0.9, discrete)
        rows = answers(query, users).astype(np.float64)
        gaps = np.linalg.norm(rows[:, None] - rows[None], axis=2)
        assert gaps.max() <= query.l2_sensitivity
        largest = max(largest, gaps.max() / query.l2_sensitivity)
    assert largest > (1 - 1e-5 if model == "least-squares" else 0.97)


def test_query_keeps_its_own_copies() -> None:
    """A script may go on with its arrays; the question that was sent stays what it is."""
    theta = np.zeros(2)
    query = UserGradients("logistic", theta, theta, 1.0)
    theta[0] = 7.0
    assert query.theta.tolist() == [0.0, 0.0]


def test_clipping_outliers_keeps_the_estimate() -> None:
    """A hundred of 2,000 users with responses of 10^6 move it little; without clipping, wildly."""
    users = linear()
    values = users.reals.values.copy()
    values[: 100 * 20, -1] = 1e6
    spoiled = fh.Users.from_samples(users.ids, users.reals.indptr, values, unusable=True)
    assert BASE.loss_of(result(BASE, spoiled), users) < 0.05
    assert BASE.loss_of(result(replace(BASE, epsilon=math.inf), spoiled), users) > 1.0


def test_the_truth_is_the_minimiser_without_a_ridge() -> None:
    x = linear().reals.values  # of as many samples each
    assert BASE.truth(linear()) == pytest.approx(np.linalg.lstsq(x[:, :-1], x[:, -1])[0])


def test_average_and_last_iterate_without_noise() -> None:
    """The average of the iterates of plain descent, written out."""
    users = linear(200)
    protocol = replace(BASE, epsilon=math.inf, n_users=200, steps=3, iterate="average", ridge=0.2)
    risk, theta, found = protocol.risk(users), np.zeros(4), []
    for _ in range(3):
        theta = theta - 2 / (1.1 + 0.9 + 0.4) * risk.gradient(theta)
        found.append(theta)
    assert result(protocol, users).value == pytest.approx(np.mean(found, axis=0))
    assert result(replace(protocol, iterate="last"), users).value == pytest.approx(found[-1])
    predicted = protocol.error(users).expected
    assert protocol.loss_of(result(protocol, users), users) == pytest.approx(predicted, rel=1e-9)


def test_estimate_stays_in_the_ball() -> None:
    """Also where the noise is larger than the ball."""
    protocol = replace(BASE, radius=0.2, epsilon=0.05, delta=1e-9, n_users=50_000)
    value = result(protocol, linear(300)).value
    assert np.linalg.norm(value) <= 0.2 * (1 + 1e-12)


def test_unusable_users_change_nothing_where_the_centre_follows() -> None:
    """Every third user empty or spoiled: without noise the others' minimiser comes back."""
    users = linear(300)
    values = users.reals.values.copy()
    values[:: 20 * 3, 0] = math.nan
    spoiled = fh.Users.from_samples(users.ids, users.reals.indptr, values, unusable=True)
    protocol = replace(BASE, epsilon=math.inf, n_users=300, ridge=0.3, steps=60)
    assert result(protocol, spoiled).value == pytest.approx(protocol.truth(spoiled), abs=1e-8)
    assert np.abs(protocol.truth(spoiled) - protocol.truth(users)).max() > 1e-4


def few_users(**change: Any) -> UserLevelErm:
    given: dict[str, Any] = {"epsilon": 4.0, "n_users": 80, "dimension": 20, "oracle": "few-users"}
    given |= {"radius": 5.0, "gradient_bound": 5.0, "spread": 0.3, "steps": 3, "step": 0.9}
    return replace(BASE, **given | change)


@lru_cache
def few_population() -> fh.Users:
    """Gradients at 0 are 3.1 long, and 3.1 sqrt(d / m) = 0.28 from each other."""
    return linear(80, m=2500, d=20, theta=0.7)


def test_few_users_get_within_the_error_of_a_draw() -> None:
    """A draw is lam r sqrt(d) = 0.67 off, where the gradient at the start is 3.1 long."""
    protocol, users = few_users(), few_population()
    assert protocol.least_users <= 80
    assert protocol.balls.part_radius == pytest.approx(0.67, abs=0.01)
    risk, best = protocol.risk(users), protocol.truth(users)
    estimate = result(protocol, users, 0)
    assert estimate.status == "ok"
    assert estimate.public["failed_steps"] == 0
    start = risk.value(np.zeros(20)) - risk.value(best)
    assert protocol.loss_of(estimate, users, best) < start / 8


def test_a_draw_that_finds_no_gradient_fails() -> None:
    """Users who have nothing in common: buckets, and no value; with leave, they are skipped."""
    protocol = few_users(spread=1e-3, lam=1.0)
    strangers = linear(80, m=3, d=20, user_spread=2.0)
    failed = result(protocol, strangers)
    assert failed.status == "failed"
    assert failed.reason.startswith("1 ")
    skipped = result(replace(protocol, max_failed=0.99), strangers)
    assert skipped.status == "failed"
    assert skipped.reason.startswith("3 ")


def test_too_few_users_are_refused_before_anything_is_spent() -> None:
    for protocol in (replace(BASE, n_users=40), few_users(epsilon=1.0)):
        estimate = result(protocol, linear(40))
        assert estimate.status == "refused"
        assert f" {protocol.least_users} " in estimate.reason
        assert not estimate.ledger.entries
        enough = replace(protocol, n_users=protocol.least_users)
        assert enough.n_users == enough.least_users


def test_a_lost_centre_is_announced() -> None:
    assert result(BASE, linear()).warnings == ()
    (warning,) = result(replace(BASE, n_users=60), linear(60)).warnings
    assert "0.3" in warning


def test_resolve_takes_public_shapes() -> None:
    given, told = UserLevelErm.resolve({"epsilon": 1.0}, linear(50, d=7), None)
    assert (given["n_users"], given["dimension"], told) == (50, 7, [])


@pytest.mark.parametrize("more", [{"discrete": True}, {"keep_rows": True}])
def test_prepared_sums_are_those_of_the_answers(more: dict[str, Any]) -> None:
    """Up to rounding, where records are of one sample, of none and of a NaN as well."""
    values = np.random.default_rng(4).normal(size=(300, 4))
    values[7, 2] = np.nan
    users = fh.Users.from_samples(np.arange(102), np.r_[0, 0, 1, 3:301:3], values, unusable=True)
    query = UserGradients("least-squares", np.ones(3), np.full(3, 0.5), 0.8, **more)
    told = query.summary_law(users, {})(np.random.default_rng(0))
    wanted = query.draw_summary(users, np.random.default_rng(0))
    query.check_summary(told)
    if query.keep_rows:
        assert np.array_equal(told.ids, wanted.ids)
        assert np.allclose(told.rows[NAME], wanted.rows[NAME], atol=1e-12)
    else:
        assert np.allclose(told.sums[NAME], wanted.sums[NAME], atol=9)
    assert UserGradients("logistic", np.ones(3), np.ones(3), 0.8).summary_law(users, {}) is None
