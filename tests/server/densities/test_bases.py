"""Bases, shrinkage by decay, and what is planned with them, against slow or closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clients.records.vectors import SeriesMeans
from fedhist.base.arrays import Floats
from fedhist.channels.oracles import oracle_channel
from fedhist.users.batch import Users
from server.densities.bases import BASES
from server.densities.centred_plan import plan_series
from server.densities.series import tail_energy
from server.densities.shrinkage import POWERS, SIZES, shrink_by_decay


def phi(basis: str, j: int, x: Floats) -> Floats:
    """The basis, one function at a time; j = 1 is the constant."""
    if j == 1:
        return np.ones_like(x)
    if basis == "cosine":
        return math.sqrt(2) * np.cos(math.pi * (j - 1) * x)
    wave = np.sin if j % 2 else np.cos
    return math.sqrt(2) * wave(2 * math.pi * (j // 2) * x)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("J", [1, 2, 5, 24])
def test_series_and_coefficients(name: str, J: int) -> None:
    rng, basis = np.random.default_rng(J), BASES[name]
    theta, x = rng.normal(size=J), (np.arange(96) + 0.5) / 96
    slow = sum(t * phi(name, j, x) for j, t in enumerate(theta, start=1))
    assert basis.on_grid(theta, 96) == pytest.approx(slow, abs=1e-12)
    assert basis.of_grid(slow, J) == pytest.approx(theta, abs=1e-12)
    points, weights = rng.random(50), rng.random(50)
    expected = [float((weights * phi(name, j, points)).sum()) for j in range(1, J + 1)]
    assert basis.coefficients_of(points, weights, J) == pytest.approx(expected, abs=1e-11)
    spread = rng.random(J)
    total = sum((s * phi(name, j, x)) ** 2 for j, s in enumerate(spread, start=1))
    assert basis.standard_error(spread, 96) == pytest.approx(np.sqrt(total))
    assert np.isinf(basis.standard_error([math.inf, 1.0], 4)).all()


def test_many_samples_are_walked_in_parts() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.random(600_000), rng.random(600_000)
    basis = BASES["cosine"]
    halves = sum(basis.coefficients_of(x[i::2], w[i::2], 4) for i in (0, 1))
    assert basis.coefficients_of(x, w, 4) == pytest.approx(halves, rel=1e-9)


@pytest.mark.parametrize("name", BASES)
def test_bins_give_the_coefficients_of_a_series(name: str) -> None:
    """Exactly, if it has no more terms than twice the bins less those that are looked for."""
    rng, basis, B = np.random.default_rng(1), BASES[name], 13
    theta = np.append(1.0, 0.1 * rng.normal(size=8))
    fine = basis.on_grid(theta, B * 512).reshape(B, 512).mean(axis=1) / B
    found = basis.of_bins(B, 8) @ fine
    assert found == pytest.approx(theta[1:], abs=1e-4)


@pytest.mark.parametrize("name", ["cosine", "fourier"])
@pytest.mark.parametrize("J", [1, 2, 7])
def test_a_users_vector(name: str, J: int) -> None:
    """By hand, of any record; no point has a larger norm than is said."""
    records = {
        "a": [0.1, 0.4],
        "b": [0.9],
        "far": [-3.0, 1e300],
        "none": [],
        "bad": [0.3, math.nan],
    }
    users = Users.from_records(records)
    part = SeriesMeans(name, J)  # type: ignore[arg-type]
    rows = part.vectors(users)
    want = {u: np.clip(np.array(v), 0, 1) for u, v in records.items()}
    by_id = {bytes(k): v for k, v in zip(users.ids.view("V8"), rows, strict=True)}
    for user, x in want.items():
        alone = Users.from_records({user: records[user]})
        row = by_id[bytes(alone.ids.view("V8")[0])]
        np.testing.assert_array_equal(row, part.vectors(alone)[0])  # of its own record, to the bit
        if user in ("none", "bad"):
            assert np.isnan(row).all()
        else:
            means = [phi(name, j, x).mean() for j in range(2, J + 2)]
            assert row == pytest.approx(means, abs=1e-12)
    x = np.linspace(0, 1, 5001)
    norms = np.sqrt(sum(phi(name, j, x) ** 2 for j in range(2, J + 2)))
    assert norms.max() <= part.bound * (1 + 1e-12)
    assert part.bound == BASES[name].largest_norm(J)
    with pytest.raises(ValueError, match="basis"):
        SeriesMeans("sine", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_coefficients"):
        SeriesMeans("cosine", 0)


def test_shrinkage_is_a_posterior_mean() -> None:
    """Against the integral over the prior, coefficient by coefficient, for one law of decay."""
    theta, se = np.array([0.9, -0.1]), np.array([0.2, 0.3])
    grid = np.linspace(-16, 16, 40_001)
    top = bottom = 0.0
    for a in POWERS:
        for s in SIZES:
            width = s * np.array([1.0, 2.0**-a])
            each, means = [], []
            for t, e, w in zip(theta, se, width, strict=True):
                density = np.exp(-((t - grid) ** 2) / (2 * e**2) - grid**2 / (2 * w**2)) / (e * w)
                each.append(density.sum())
                means.append((density * grid).sum() / density.sum())
            top, bottom = top + math.prod(each) * np.array(means), bottom + math.prod(each)
    assert shrink_by_decay(theta, se) == pytest.approx(top / bottom, abs=0.002)


def test_shrinkage_keeps_what_is_sure_and_drops_what_is_not() -> None:
    theta = np.array([0.5, 0.2, -0.1])
    assert shrink_by_decay(theta, np.zeros(3)) == pytest.approx(theta)
    assert shrink_by_decay(theta, [1e-6, math.inf, 1e-6]) == pytest.approx([0.5, 0.0, -0.1])
    assert shrink_by_decay(theta, [math.inf] * 3).tolist() == [0.0] * 3


def test_shrinkage_helps_where_coefficients_fall() -> None:
    rng = np.random.default_rng(2)
    j = np.arange(1, 17)
    for decay in (1.0, 2.0, 4.0):
        theta = j**-decay
        noisy = theta + 0.15 * rng.normal(size=(200, 16))
        shrunk = np.array([shrink_by_decay(z, np.full(16, 0.15)) for z in noisy])
        assert np.square(shrunk - theta).sum(axis=1).mean() < 0.7 * 16 * 0.15**2


def test_the_plan_weighs_variance_and_energy() -> None:
    plan = plan_series(15_000, 1.0, 1.6, "cosine", 2.0, 9.0, 500)
    assert plan.stages is not None
    J, B = plan.n_coefficients, plan.n_bins
    kept = np.sinc(np.arange(1, J + 1) / 2 / B)
    variance = (oracle_channel("auto", 1.6, B).v / kept**2 + 1).sum() / 15_000
    assert plan.stages.risk == pytest.approx(variance)
    energy = tail_energy(J + 1, 2.0, 9.0) + tail_energy(2 * B - J - 1, 2.0, 9.0)
    assert plan.ise == pytest.approx(variance + energy)
    for other in (J - 1, J + 1, J + 3):
        at = plan_series(15_000, 1.0, 1.6, "cosine", 2.0, 9.0, 500, other)
        assert at.n_coefficients == other
        assert at.ise >= plan.ise


def test_without_noise_everything_is_asked_for() -> None:
    plan = plan_series(100, 5.0, math.inf, "fourier", 2.0, 9.0, 40)
    assert plan.stages is not None
    assert (plan.n_coefficients, plan.n_bins, plan.stages.n_stages) == (40, 0, 1)
