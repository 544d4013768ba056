"""The public side of descent, and the theory of its excess risk, against slow versions."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import fedhist as fh
from clients.regression.risk import (
    LogisticRisk,
    Risk,
    SquaredRisk,
    minimise,
    project,
    squared_sums,
)
from fedhist.protocols import UserLevelErm
from server.regression.user_level_erm import gradient_std, least_users
from tests.running import sampled

BASE = replace(
    UserLevelErm.example(), gradient_bound=4.0, spread=0.25, smoothness=2.0, strong_convexity=0.5
)


def risk_of(users: fh.Users, model: str, ridge: float = 0.0) -> Risk:
    if model == "logistic":
        return LogisticRisk.of(users, ridge)
    return SquaredRisk.read(squared_sums(users), ridge)


def population(model: str, seed: int = 1, n: int = 60, d: int = 3) -> fh.Users:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 7, n)
    x = rng.normal(size=(sizes.sum(), d))
    y = x @ np.linspace(1.0, -0.5, d) + rng.normal(size=len(x))
    if model == "logistic":
        y = np.where(y > 0, 1.0, -1.0)
    values = np.column_stack((x, y))
    return sampled(sizes, values)


def test_projection_is_the_nearest_point() -> None:
    rng = np.random.default_rng(2)
    for point in rng.normal(size=(50, 3)):
        near = project(point, 1.0)
        assert np.linalg.norm(near) <= 1 + 1e-15
        assert (point @ near) >= np.linalg.norm(point) * np.linalg.norm(near) - 1e-12
        assert np.linalg.norm(near) == pytest.approx(min(1.0, np.linalg.norm(point)))


@pytest.mark.parametrize(("smooth", "strong"), [(2.0, 0.5), (3.0, 0.0), (1.0, 1.0)])
def test_step_shrinks_every_direction(smooth: float, strong: float) -> None:
    step = replace(BASE, smoothness=smooth, strong_convexity=strong).learning_rate
    worst = max(abs(1 - step * a) for a in np.linspace(strong, smooth, 101))
    assert worst == pytest.approx((smooth - strong) / (smooth + strong) if strong else 1.0)


@pytest.mark.parametrize("curvature", [0.0, 0.7, 2.0])
def test_the_mean_gradient_stays_within_the_lag_of_its_centre(curvature: float) -> None:
    """For every Hessian between mu and L and every move; some of them attain it."""
    protocol = replace(BASE, curvature=curvature)
    rng = np.random.default_rng(3)
    reached = 0.0
    for _ in range(300):
        values = rng.choice([0.5, 2.0, rng.uniform(0.5, 2.0)], 3)
        basis = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        moved = basis[:, 0] * 0.1 if rng.random() < 0.5 else 0.1 * rng.normal(size=3)
        gradient = rng.normal(size=3)
        now = gradient + basis @ np.diag(values) @ basis.T @ moved
        gap = np.linalg.norm(now - (gradient + curvature * moved))
        lag = protocol.clip_after(float(np.linalg.norm(moved))) - 2 * protocol.spread
        assert gap <= lag * (1 + 1e-12)
        reached = max(reached, gap / lag)
    assert reached > 1 - 1e-9


def test_clip_never_passes_the_first() -> None:
    assert BASE.clip_after(0.0) == 0.5
    assert BASE.clip_after(1.0) == 2.5
    assert BASE.clip_after(1e9) == 4.0


def test_fewest_users_is_where_the_first_noise_is_as_long_as_the_bound() -> None:
    n = least_users(4.2247, 16, 25)
    noise = [gradient_std(3.0, 4.2247, 16, k) * math.sqrt(25) for k in (n, n - 1)]
    assert noise[0] <= 3.0 < noise[1]


def test_balls_spend_the_budget() -> None:
    """T draws share rho(epsilon, delta / 2) and delta / 2, and need users as sqrt(T)."""
    rho = fh.zcdp_rho(1.0, 5e-7)
    many = replace(BASE, oracle="few-users", epsilon=1.0, delta=1e-6, dimension=100, spread=0.1)
    plans = {t: replace(many, steps=t).balls for t in (16, 64, 256)}
    for steps, plan in plans.items():
        assert steps * plan.part_epsilon**2 / 8 == pytest.approx(rho)
        assert steps * plan.part_delta == pytest.approx(5e-7)
        assert plan.part_radius == pytest.approx(0.5 * 0.1 * 10)
    growth = plans[256].least_users / plans[16].least_users
    assert 4.0 < growth < 5.0  # sqrt(16), and a logarithm


def slow_value(users: fh.Users, model: str, theta: fh.Floats) -> float:
    """Return the mean over users with samples of the means of their losses."""
    means = []
    for u in range(len(users)):
        z = users.slice(u, u + 1).reals.values
        s = z[:, :-1] @ theta
        each = np.logaddexp(0, -z[:, -1] * s) if model == "logistic" else (s - z[:, -1]) ** 2 / 2
        means += [each.mean()] if len(z) else []
    return float(np.mean(means))


@pytest.mark.parametrize("model", ["least-squares", "logistic"])
@pytest.mark.parametrize(("ridge", "radius"), [(0.0, 10.0), (0.3, 0.4)])
def test_risk_and_minimiser_are_those_of_all_samples(
    model: str, ridge: float, radius: float
) -> None:
    """Inside the ball and on its boundary."""
    users = population(model)
    risk = risk_of(users, model, ridge)
    theta = np.array([0.3, -1.0, 0.5])
    expected = slow_value(users, model, theta) + ridge / 2 * theta @ theta
    assert risk.value(theta) == pytest.approx(expected, rel=1e-12)
    best = minimise(risk, radius)
    ball = {"type": "ineq", "fun": lambda t: radius**2 - t @ t}
    solved = minimize(
        risk.value, np.zeros(3), method="SLSQP", constraints=ball, options={"ftol": 1e-14}
    )
    assert np.linalg.norm(best) <= radius * (1 + 1e-12)
    assert best == pytest.approx(solved.x, abs=1e-4)


@pytest.mark.parametrize("model", ["least-squares", "logistic"])
def test_derivatives_by_differences(model: str) -> None:
    risk, theta, h = risk_of(population(model), model, 0.2), np.array([0.3, -1, 0.5]), 1e-5
    for k, e in enumerate(np.eye(3)):
        up, down = theta + h * e, theta - h * e
        slope = (risk.value(up) - risk.value(down)) / (2 * h)
        assert risk.gradient(theta)[k] == pytest.approx(slope, abs=1e-8)
        bend = (risk.gradient(up) - risk.gradient(down)) / (2 * h)
        assert risk.hessian(theta)[k] == pytest.approx(bend, abs=1e-8)


def test_separable_labels_have_their_minimiser_on_the_boundary() -> None:
    users = fh.Users.from_samples([1, 2], [0, 1, 2], [[1.0, 1.0], [-1.0, -1.0]], unusable=True)
    assert minimise(risk_of(users, "logistic"), 5.0) == pytest.approx([5.0])


def test_nobody_usable() -> None:
    users = fh.Users.from_samples([1, 2], [0, 0, 1], [[1.0, math.nan]], unusable=True)
    for model in ("least-squares", "logistic"):
        with pytest.raises(fh.PopulationError, match=model):
            risk_of(users, model)
