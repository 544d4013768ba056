"""Bases, series, shrinkage, projection and levels, against slow or closed forms."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from clients.records.functionals import BasisName, SeriesMeans
from fedhist.base.arrays import Floats
from fedhist.channels.oracles import oracle_channel
from server.densities.plan import density_level, paper_level, plan_series, tail_energy
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
from server.localize.choice import plan_univariate
from tests.running import one_each

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
    records = [[0.1, 0.4], [0.9], [-3.0, 1e300], [], [0.3, math.nan]]
    users = one_each(*records)
    part = SeriesMeans(name, J)
    rows = part.vectors(users)
    for i, record in enumerate(records[:3]):
        x = np.clip(record, 0, 1)
        means = [phi(name, j, x).mean() for j in range(2, J + 2)]
        assert rows[i] == pytest.approx(means, abs=1e-12)
        np.testing.assert_array_equal(rows[i], part.vectors(users.slice(i, i + 1))[0])
    assert np.isnan(rows[3:]).all()
    x = np.linspace(0, 1, 5001)
    norms = np.sqrt(sum(phi(name, j, x) ** 2 for j in range(2, J + 2)))
    assert norms.max() <= part.bound * (1 + 1e-12)
    with pytest.raises(ValueError, match="basis"):
        SeriesMeans("sine", 3)
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


def test_the_plan_weighs_variance_and_energy() -> None:
    plan = plan_series(15_000, 1.0, 1.6, "cosine", 2.0, 9.0, 500)
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


def test_projection_is_the_nearest_density() -> None:
    """Against the root of its optimality condition: (f - level)_+ with mean 1."""
    rng = np.random.default_rng(3)
    for n in (1, 2, 100, 1024):
        f = 1 + 2 * rng.normal(size=n)
        level = brentq(lambda c, f=f: np.maximum(f - c, 0).mean() - 1, f.min() - 2, f.max())
        result = project_density(f)
        assert result == pytest.approx(np.maximum(f - level, 0), abs=1e-8)
        assert result.min() >= 0
        assert result.mean() == pytest.approx(1)


@pytest.mark.parametrize(
    ("n", "T", "epsilon", "beta", "r"),
    [
        (20_000, 100, 1.0, 1.0, 1.5),
        (3000, 10_000, 1.0, 1.0, 4.0),
        (2000, 50, math.inf, 1.0, 1.5),
        (300, 10, 0.2, 1.0, 1.5),
        (4, 1, 0.2, 1.0, 10.0),  # three terms would do, if the plan were feasible
    ],
)
def test_level_against_all_levels(n: int, T: float, epsilon: float, beta: float, r: float) -> None:
    kind = "laplace" if math.isinf(epsilon) else "auto"
    totals = {1: r**2 * 2.0 ** (-2 * beta)}
    for J in range(3, 151, 2):
        plan = plan_univariate(n / (J - 1), T**-0.5, 1.0, epsilon, kind)
        if plan.feasible:
            totals[J] = 2 * (J - 1) * plan.risk + r**2 * (J + 1.0) ** (-2 * beta)
    best = min(totals, key=lambda J: (totals[J], J))
    assert best < 149
    assert density_level(n, T**-0.5, epsilon, kind, beta, r) == best


def test_levels_stay_below_the_most() -> None:
    assert density_level(10**6, 0.03, 2.0, most=7) == 7
    assert density_level(10**6, 0.03, 2.0, most=8) == 7
    assert density_level(10**6, 0.03, 2.0, most=2) == 1


def test_paper_level() -> None:
    """(49): the polynomial term, then n epsilon^2 / (100 log(n epsilon^2))."""
    assert paper_level(10**7, 10, 1.0, 1.0) == 100  # 1e8^(1/4)
    assert paper_level(10**7, 10, 1.0, 2.0) == 21  # 1e8^(1/6) = 21.5
    assert paper_level(10**5, 10**12, 1.0, 1.0) == math.floor(1e3 / math.log(1e5))
    assert paper_level(10**5, 10**12, 0.5, 1.0) == math.floor(250 / math.log(2.5e4))
    assert paper_level(10**5, 10**12, 8.0, 1.0) == paper_level(10**5, 10**12, math.inf, 1.0)
    assert paper_level(2, 100, 1.0, 1.0) == 1
    assert paper_level(10**9, 10**9, 1.0, 1.0, most=63) == 63
