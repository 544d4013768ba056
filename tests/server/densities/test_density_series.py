"""Series, grids, shrinkage, projection and levels against slow or closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from fedhist.base.arrays import Floats
from server.densities.plan import density_level, paper_level, tail_energy
from server.densities.series import GridDensity, project_density
from server.localize.choice import plan_univariate
from simulations.populations.density_samples import TrigonometricDensity


def phi(j: int, x: Floats) -> Floats:
    """The basis, one function at a time [eq. (18)]."""
    if j == 1:
        return np.ones_like(x)
    wave = np.sin if j % 2 else np.cos
    return math.sqrt(2) * wave(2 * math.pi * (j // 2) * x)


@pytest.mark.parametrize("J", [1, 2, 3, 6, 21])
def test_series(J: int) -> None:
    rng = np.random.default_rng(J)
    theta, x = rng.normal(size=J), rng.random((3, 7))
    f = TrigonometricDensity(theta)
    slow = sum(t * phi(j, x) for j, t in enumerate(theta, start=1))
    assert f.evaluate(x) == pytest.approx(slow, abs=1e-12)
    # Parseval on the grid: the midpoint rule is exact below its number of cells
    assert np.mean(f.on_grid(J + 1) ** 2) == pytest.approx(np.sum(theta**2))


def test_grid_density() -> None:
    rng = np.random.default_rng(2)
    f = GridDensity(rng.random(8))
    x = np.append(rng.random(20), [0.0, 1.0, 0.125])
    assert f.evaluate(x).tolist() == [f.values[min(7, math.floor(8 * t))] for t in x]
    for a, b in ((0.0, 1.0), (0.03, 0.04), (0.1, 0.77), (0.5, 0.5), (0.99, 1.0)):
        pieces = [max(0.0, min(b, (i + 1) / 8) - max(a, i / 8)) for i in range(8)]
        assert f.integrate(a, b) == pytest.approx(float(np.dot(pieces, f.values)), abs=1e-14)


def test_refusals() -> None:
    g = GridDensity(np.ones(4))
    for a, b in ((-0.1, 0.5), (0.5, 1.1), (0.6, 0.5), (0.0, math.nan)):
        with pytest.raises(ValueError, match=r"need 0 <= a <= b <= 1"):
            g.integrate(a, b)
    for x in (-0.01, 1.01, math.nan):
        with pytest.raises(ValueError, match=r"points must lie in \[0, 1\]"):
            g.evaluate([0.5, x])
    for bad in ([], [math.nan], [[1.0]]):
        with pytest.raises(ValueError, match="finite"):
            TrigonometricDensity(np.array(bad))
        with pytest.raises(ValueError, match="finite"):
            GridDensity(np.array(bad))


# -- post-processing -------------------------------------------------------------------------------


def test_projection_is_the_nearest_density() -> None:
    """Against the root of its optimality condition: (f - level)_+ with mean 1."""
    rng = np.random.default_rng(3)
    for n in (1, 2, 100, 1024):
        f = 1 + 2 * rng.normal(size=n)
        level = brentq(lambda c, f=f: np.maximum(f - c, 0).mean() - 1, f.min() - 2, f.max())
        found = project_density(f)
        assert found == pytest.approx(np.maximum(f - level, 0), abs=1e-8)
        assert found.min() >= 0
        assert found.mean() == pytest.approx(1)


def test_projection_never_enlarges_the_error() -> None:
    rng = np.random.default_rng(4)
    gains = []
    for _ in range(200):
        truth = rng.gamma(0.5, size=64)
        truth /= truth.mean()
        noisy = truth + rng.normal(scale=rng.choice([0.01, 0.3, 3.0]), size=64)
        before = np.mean((noisy - truth) ** 2)
        after = np.mean((project_density(noisy) - truth) ** 2)
        assert after <= before * (1 + 1e-12)
        gains.append(after / before)
    assert np.median(gains) < 0.9  # and it does something


# -- levels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "T", "epsilon", "beta", "r"),
    [
        (20_000, 100, 1.0, 1.0, 1.5),
        (3000, 10_000, 1.0, 1.0, 4.0),
        (50_000, 1, 0.5, 2.0, 10.0),
        (400, 10, 1.0, 1.0, 30.0),
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


def test_phase_transition_in_samples() -> None:
    """beta = 1: predicted errors fall as T^(-1/2), then no more: a polynomial plateau in n."""

    def predicted(n: int, T: float) -> float:
        J = density_level(n, T**-0.5, 1.0, "onebit", 1.0, 3.0)
        plan = plan_univariate(n / max(1, J - 1), T**-0.5, 1.0, 1.0, "onebit")
        return 2 * (J - 1) * plan.risk + tail_energy(J, 1.0, 3.0)

    n = 300_000
    slope = math.log(predicted(n, 4000) / predicted(n, 100)) / math.log(40)
    assert slope == pytest.approx(-0.5, abs=0.1)
    assert predicted(n, 1e10) > 0.9 * predicted(n, 1e9)
    # on the plateau the error falls as (n / log n)^(-2)
    ratio = predicted(4 * n, 1e12) / predicted(n, 1e12)
    assert 1 / 20 < ratio < 1 / 8


def test_paper_level() -> None:
    """(49): the polynomial term, then n epsilon^2 / (100 log(n epsilon^2))."""
    assert paper_level(10**7, 10, 1.0, 1.0) == 100  # 1e8^(1/4)
    assert paper_level(10**7, 10, 1.0, 2.0) == 21  # 1e8^(1/6) = 21.5
    assert paper_level(10**5, 10**12, 1.0, 1.0) == math.floor(1e3 / math.log(1e5))
    assert paper_level(10**5, 10**12, 0.5, 1.0) == math.floor(250 / math.log(2.5e4))
    assert paper_level(10**5, 10**12, 8.0, 1.0) == paper_level(10**5, 10**12, math.inf, 1.0)
    assert paper_level(2, 100, 1.0, 1.0) == 1
    assert paper_level(10**9, 10**9, 1.0, 1.0, most=63) == 63
