"""Bases, shrinkage by decay, and what is planned with them, against slow or closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clients.records.functionals import BasisName, SeriesMeans
from fedhist.base.arrays import Floats
from fedhist.channels.oracles import oracle_channel
from fedhist.users.batch import Users
from server.densities.plan import plan_series, tail_energy
from server.densities.series import (
    coefficients_of,
    midpoints,
    nearest_density,
    of_bins,
    project_density,
    series_at,
    series_stderr,
    shrink_by_decay,
)

BASES = ("cosine", "fourier")


def phi(basis: str, j: int, x: Floats) -> Floats:
    """The basis, one function at a time; j = 1 is the constant."""
    if j == 1:
        return np.ones_like(x)
    if basis == "cosine":
        return math.sqrt(2) * np.cos(math.pi * (j - 1) * x)
    wave = np.sin if j % 2 else np.cos
    return math.sqrt(2) * wave(2 * math.pi * (j // 2) * x)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("n", [0, 1, 4, 23])
def test_series_and_coefficients(name: BasisName, n: int) -> None:
    rng = np.random.default_rng(n)
    theta, x = rng.normal(size=n), midpoints(96)
    slow = 1 + sum(t * phi(name, j, x) for j, t in enumerate(theta, start=2))
    assert series_at(name, theta, x) == pytest.approx(slow * np.ones(96), abs=1e-12)
    again = coefficients_of(name, x, slow / 96 * np.ones(96), n)
    assert again == pytest.approx(theta, abs=1e-12)
    points, weights = rng.random(50), rng.random(50)
    expected = [float((weights * phi(name, j, points)).sum()) for j in range(2, n + 2)]
    assert coefficients_of(name, points, weights, n) == pytest.approx(expected, abs=1e-11)
    spread = rng.random(n)
    total = sum((s * phi(name, j, x)) ** 2 for j, s in enumerate(spread, start=2))
    assert series_stderr(name, spread, 96) == pytest.approx(np.sqrt(total) * np.ones(96))
    assert np.isinf(series_stderr(name, np.array([math.inf, 1.0]), 4)).all()


@pytest.mark.parametrize("name", BASES)
def test_points_and_samples_are_walked_in_parts(
    name: BasisName, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x, w, theta = rng.random(1000), rng.random(1000), rng.normal(size=5)
    once = series_at(name, theta, x), coefficients_of(name, x, w, 5), series_stderr(name, theta, 50)
    monkeypatch.setattr("server.densities.series.NUMBERS_AT_A_TIME", 64)
    parts = (
        series_at(name, theta, x),
        coefficients_of(name, x, w, 5),
        series_stderr(name, theta, 50),
    )
    for one, other in zip(once, parts, strict=True):
        assert one == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize("name", BASES)
def test_the_nearest_density_of_a_series(name: BasisName) -> None:
    """A density stays as it is; of another one the coefficients are those of the projection."""
    small = np.array([0.3, -0.1, 0.05])
    assert nearest_density(name, small) == pytest.approx(small, abs=1e-12)
    values = project_density(series_at(name, 9 * small, midpoints(256)))
    slow = [np.mean(values * phi(name, j, midpoints(256))) for j in (2, 3, 4)]
    assert nearest_density(name, 9 * small) == pytest.approx(slow, abs=1e-12)


@pytest.mark.parametrize("name", BASES)
def test_bins_give_the_coefficients_of_a_series(name: BasisName) -> None:
    """Exactly, if it has no more terms than twice the bins less those that are looked for."""
    rng, B = np.random.default_rng(1), 13
    theta = 0.1 * rng.normal(size=8)
    fine = series_at(name, theta, midpoints(B * 512)).reshape(B, 512).mean(axis=1) / B
    assert of_bins(name, B, 8) @ fine == pytest.approx(theta, abs=1e-4)


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
    with pytest.raises(ValueError, match="basis"):
        SeriesMeans("sine", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_coefficients"):
        SeriesMeans("cosine", 0)


def test_shrinkage_is_a_posterior_mean() -> None:
    """Against the integral over the prior, coefficient by coefficient, for one law of decay."""
    theta, se = np.array([0.9, -0.1]), np.array([0.2, 0.3])
    grid = np.linspace(-16, 16, 40_001)
    top = bottom = 0.0
    for a in (0.5, 1, 1.5, 2, 3):
        for s in np.geomspace(0.02, 3.0, 10):
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
