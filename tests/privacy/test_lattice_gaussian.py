"""The discrete Gaussian against its exact law: enumerated delta, in one and several entries.

The multiplier of the analytic Gaussian mechanism comes from dp_accounting here, the laws and the
hockey-stick divergence from :mod:`enumerated`.
"""

import math

import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from enumerated import delta_of_move, discrete_gaussian

from fedhist.privacy.guarantee import zcdp_rho
from fedhist.privacy.lattice_gaussian import (
    discrete_gaussian_cost,
    discrete_gaussian_std,
    discrete_gaussian_stds,
    lattice_std,
)
from fedhist.privacy.noise_law import NoiseLaw, noise_per_sensitivity

BUDGETS = [(1.0, 1e-6), (0.25, 1e-5), (4.0, 1e-8), (0.1, 1e-3), (10.0, 1e-2)]


def analytic(move, epsilon, delta):
    return get_sigma_gaussian(epsilon, delta) * math.hypot(*move)


@pytest.mark.parametrize(
    ("move", "alone", "rounded"),
    [
        ((1, 1), 1.008, 0.3205),
        ((4,), 1.002, 0.868),
        ((3, 4), None, 0.912),
        ((6, 8), None, 0.977),
        ((2, 2, 1), None, 0.774),
    ],
)
def test_delta_at_one_and_a_millionth(move, alone, rounded):
    """Without the 4 the budget is passed, with it never."""
    std = analytic(move, 1.0, 1e-6)
    if alone:
        assert delta_of_move(std**2, move, 1.0) / 1e-6 == pytest.approx(alone, abs=6e-4)
    sized = lattice_std(math.hypot(*move), 1.0, 1e-6)
    assert sized == pytest.approx(math.sqrt(std**2 + 4), rel=1e-9)
    assert delta_of_move(sized**2, move, 1.0) / 1e-6 == pytest.approx(rounded, abs=6e-4)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("move", [(1,), (2,), (40,), (1, -2), (1,) * 9, (7, 3, 1)])
def test_no_direction_passes_the_budget(move, epsilon, delta):
    std = lattice_std(math.hypot(*move), epsilon, delta)
    assert delta_of_move(std**2, move, epsilon) <= delta


def test_an_adaptive_series_is_one_gaussian():
    """Two rounds that a released value steers: enumerated over both integers."""
    epsilon, delta, shift = 1.0, 1e-6, 3
    variance = lattice_std(shift, epsilon, delta, rounds=2) ** 2
    assert variance == pytest.approx(2 * (lattice_std(shift, epsilon, delta) ** 2 - 4) + 4)
    span = math.ceil(12 * math.sqrt(variance))
    apart = np.zeros(shift)
    one = discrete_gaussian(variance, span)
    p, q = np.concatenate([one, apart]), np.concatenate([apart, one])
    for steps in ((3, 3), (3, 0), (1, 3)):  # below the middle, from it on
        total = 0.0
        for x, (a, b) in enumerate(zip(p, q, strict=True)):
            step = steps[x >= span + 1]
            moved = np.concatenate([np.zeros(step), one, np.zeros(shift - step)])
            total += math.fsum(np.maximum(a * p - math.exp(epsilon) * b * moved, 0.0))
        assert total <= delta
    assert delta_of_move(variance * (1 - 4 / variance) * 0.99, (shift, shift), epsilon) > delta


def test_no_noise_and_bad_input():
    assert lattice_std(3.0, math.inf, 1e-6) == 0.0
    assert lattice_std(0.0, 1.0, 1e-6) == 0.0
    with pytest.raises(ValueError, match="-1"):
        lattice_std(-1.0, 1.0, 1e-6)
    with pytest.raises(ValueError, match="rounds"):
        lattice_std(1.0, 1.0, 1e-6, rounds=0)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("move", [(1,), (2,), (1, 1), (3, 4), (2, 2, 1), (30,)])
def test_the_smaller_of_the_two_keeps_the_budget(move, epsilon, delta):
    """Enumerated; its zCDP is the stated one, exactly that of the law."""
    size = math.hypot(*move)
    std, cost = discrete_gaussian_cost(size, epsilon, delta)
    assert std <= lattice_std(size, epsilon, delta) * (1 + 1e-15)
    assert std <= size * math.sqrt(0.5 / zcdp_rho(epsilon, delta)) * (1 + 1e-15)
    assert delta_of_move(std**2, move, epsilon) <= delta * (1 + 1e-9)
    assert (cost.epsilon, cost.delta) == (epsilon, delta)
    assert cost.rho == pytest.approx(size**2 / (2 * std**2))
    assert discrete_gaussian_cost(size, math.inf, delta)[0] == 0.0
    assert discrete_gaussian_cost(0.0, epsilon, delta)[0] == 0.0


def test_what_the_two_are_at_one_and_a_millionth():
    rounded, concentrated = discrete_gaussian_stds(1000.0, 1.0, 1e-6)
    assert discrete_gaussian_std(1000.0, 1.0, 1e-6) == rounded < concentrated
    assert rounded / 1000 == pytest.approx(4.2247, abs=1e-4)
    assert discrete_gaussian_std(1.0, 1.0, 1e-6) == pytest.approx(4.531, abs=1e-3)
    assert lattice_std(1.0, 1.0, 1e-6) == pytest.approx(4.674, abs=1e-3)
    law = noise_per_sensitivity(1.0, 1e-6, True, 8.0)
    assert law.scale * 8 == pytest.approx(lattice_std(8.0, 1.0, 1e-6))


@pytest.mark.parametrize("scale", [0.05, 0.407, 1.0, 1.999, 2.001, 7.0])
def test_the_standard_deviation_on_coarse_grids(scale: float) -> None:
    k = np.arange(-400, 401)
    weights = np.exp(-0.5 * (k / scale) ** 2)
    std = math.sqrt((k**2 * weights).sum() / weights.sum())
    assert NoiseLaw("discrete-gaussian", scale, 0.5).std == pytest.approx(0.5 * std, rel=1e-9)
