"""The discrete Gaussian and shares of noise against their exact laws, by enumeration.

The multiplier of the analytic Gaussian mechanism comes from dp_accounting here, the laws and the
hockey-stick divergence from :mod:`enumerated`.
"""

from __future__ import annotations

import math
from decimal import Decimal

import enumerated
import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from enumerated import delta_of_move, discrete_gaussian

from fedhist.privacy.guarantee import gaussian, gaussian_multiplier, pure, zcdp_rho
from fedhist.privacy.noise_law import (
    NoiseLaw,
    discrete_gaussian_cost,
    discrete_gaussian_std,
    discrete_gaussian_stds,
    expected_l1,
    lattice_std,
    noise_per_sensitivity,
)
from fedhist.privacy.shares import Aggregation, ShareNoise, fits, modulus_bits, share_cost

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


def shares(kind, sensitivity, epsilon=1.0, delta=0.0, honest=80, rounds=1):
    return ShareNoise.calibrated(
        kind, sensitivity=sensitivity, epsilon=epsilon, delta=delta, honest=honest, rounds=rounds
    )


@pytest.mark.parametrize(("scale", "fewer"), [(4, 1.3347), (8, 1.5433), (20, 1.9657)])
def test_m_laplace_shares_are_pure_and_fewer_are_not(scale, fewer):
    """Largest log-ratio over epsilon at D1 = 4, by total shape m / M."""
    noise = shares("laplace", 4, epsilon=4 / scale)
    assert noise.size == scale
    for shape, ratio in ((0.8, fewer), (1.0, 1.0), (1.25, 0.98)):
        law = enumerated.share_difference(shape, noise.size, 12 * scale)
        assert enumerated.largest_log_ratio(law, 4) * scale / 4 == pytest.approx(ratio, abs=1e-3)


def test_laplace_shares_add_up_to_the_discrete_laplace_law():
    """Five shares, convolved, are exp(-|k| / s) up to rounding."""
    noise = shares("laplace", 3, honest=5)
    x = enumerated.negative_binomial(noise.share, noise.size, 120)
    one = np.convolve(x, x[::-1])
    law = enumerated.added(one, 5)
    k = np.arange(-25, 26)
    expected = math.tanh(0.5 / noise.size) * np.exp(-np.abs(k) / noise.size)
    assert law[len(law) // 2 + k] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("honest", [1, 10, 80])
def test_a_gaussian_share_has_its_part_of_the_variance(honest):
    noise = shares("gaussian", 40.0, delta=1e-6, honest=honest)
    assert noise.size**2 == pytest.approx((40 * gaussian_multiplier(1.0, 1e-6)) ** 2 + 4)
    assert honest * noise.share**2 == pytest.approx(noise.size**2)
    series = shares("gaussian", 40.0, delta=1e-6, honest=honest, rounds=9)
    assert series.size**2 - 4 == pytest.approx(9 * (noise.size**2 - 4))


def test_every_admissible_sum_keeps_the_budget():
    """N = 10, one in five may drop out, one in ten collude: M = 7; 7, 8 and 10 shares."""
    noise = shares("gaussian", 8.0, delta=1e-6, honest=7)
    one = enumerated.discrete_gaussian(noise.share**2, math.ceil(12 * noise.share))
    for count in (7, 8, 10):
        assert enumerated.delta_of_shift(enumerated.added(one, count), 8, 1.0) <= 1e-6
        assert noise.std(count) == pytest.approx(noise.size * math.sqrt(count / 7))
    assert enumerated.delta_of_shift(enumerated.added(one, 6), 8, 1.0) > 1e-6


def test_too_coarse_a_grid_is_refused_by_name():
    with pytest.raises(ValueError, match=r"80 .*0\.523.* 5\.7"):
        shares("gaussian", 1.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"2\.99 steps"):
        ShareNoise("gaussian", 2.99, 1)
    assert ShareNoise("gaussian", 3.0, 1).share == 3


def test_what_shares_cost():
    assert share_cost("laplace", 0.5, 0.0) == pure(0.5)
    m = gaussian_multiplier(1.0, 1e-6)
    assert share_cost("gaussian", 1.0, 1e-6) == gaussian(m, 1.0, 1e-6)
    assert shares("gaussian", 4.0, math.inf, 1e-6).size == 0.0
    assert shares("laplace", 4.0, math.inf).size == 0.0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "laplace", "delta": 1e-6}, "1e-06"),
        ({"kind": "gaussian"}, "delta > 0"),
        ({"kind": "laplace", "rounds": 2}, "2 rounds"),
        ({"kind": "laplace", "sensitivity": -2.0}, "-2.0"),
        ({"kind": "laplace", "honest": 0}, "honest"),
        ({"kind": "laplace", "epsilon": 0.0}, "epsilon"),
    ],
)
def test_bad_input_is_named(given, told):
    with pytest.raises(ValueError, match=told):
        shares(**{"sensitivity": 4.0} | given)


@pytest.mark.parametrize("scale", [0.3, 2.0, 9.5, 30.0])
@pytest.mark.parametrize("count", [64, 80, 100])
def test_predictions_follow_the_law_of_the_sum(scale, count):
    """Std and expected errors against the enumerated law of count / 80 shape."""
    law = ShareNoise("laplace", scale, 80).law(count, step=0.5)
    span = math.ceil(45 * scale) + 5
    z, p = np.arange(-span, span + 1), enumerated.share_difference(count / 80, scale, span)
    assert law.std == pytest.approx(0.5 * math.sqrt(math.fsum(p * z**2)), rel=1e-9)
    bias, kept = np.array([0.0, 0.2, 3.5, 40.0]), np.array([0.0, 4.0, 0.3, 2.0])
    error = [math.fsum(p * np.abs(0.5 * z - b)) for b in bias]
    saved = [math.fsum(p * np.maximum(0.5 * z - y, 0)) for y in kept]  # signs of Z are alike
    assert expected_l1(law, bias) == pytest.approx(sum(error), rel=1e-9)
    assert expected_l1(law, bias, kept) == pytest.approx(sum(error) - sum(saved), rel=1e-9)


@pytest.mark.parametrize("scale", [1.0, 6.0, 30.0])
@pytest.mark.parametrize("count", [80, 100, 160])
def test_the_tail_of_laplace_shares_is_a_bound(scale, count):
    """At 2^-20 too, by the same formula: the chance that is stated covers the enumerated one."""
    noise = ShareNoise("laplace", scale, 80)
    tail = noise.tail(count, 1)
    assert tail - noise.tail(count, 1 << 20) == pytest.approx(-40 * scale * math.log(2), abs=1)
    at = math.ceil(tail - 40 * scale * math.log(2))  # where the bound is 2^-20
    span = math.ceil(60 * scale)
    law = enumerated.share_difference(count / 80, scale, span)
    z = np.arange(-span, span + 1)
    assert math.fsum(law[np.abs(z) > at]) <= 2.0**-20


def test_the_tail_of_gaussian_shares_is_a_bound():
    noise = shares("gaussian", 8.0, delta=1e-6, honest=7)
    one = enumerated.discrete_gaussian(noise.share**2, math.ceil(25 * noise.share))
    law = enumerated.added(one, 10)
    far = np.abs(np.arange(len(law)) - len(law) // 2) > noise.tail(10, 1)
    assert 0 < math.fsum(law[far]) <= 2.0**-40


def test_the_modulus_holds_the_largest_sum_and_no_more():
    assert modulus_bits(2**31 - 1) == 32
    assert modulus_bits(2**31) == 64
    assert modulus_bits(2**63 - 1) == 64
    with pytest.raises(ValueError, match="more than 64 bits: take a coarser grid"):
        modulus_bits(2**63)
    assert fits(1000, 11)
    assert not fits(1000, 10)
    assert not fits(1024, 11)  # +1024 and -1024 are alike modulo 2048


def test_predictions_of_all_shares_and_of_wide_ones():
    """M shares are the law that the Curator draws; wide ones are treated as coarse ones."""
    exact = ShareNoise("laplace", 7.0, 80).law(80)
    assert exact == NoiseLaw("discrete-laplace", 7.0)
    fine, coarse = (NoiseLaw("discrete-laplace", s, shape=1.25) for s in (4000.0, 40_000.0))
    assert coarse.mean_absolute == pytest.approx(10 * fine.mean_absolute, rel=1e-6)
    gauss = ShareNoise("gaussian", 50.0, 80).law(100, step=2.0)
    assert gauss == NoiseLaw("discrete-gaussian", 50.0 * math.sqrt(1.25), 2.0)
    assert NoiseLaw("laplace", 3.0, 0.5).std == pytest.approx(1.5 * math.sqrt(2))


@pytest.mark.parametrize("hundredths", range(50))
def test_margins_are_the_decimals_that_are_written(hundredths: int) -> None:
    """In floating point 0.29 * 100 is 28.999999999999996."""
    tau = float(f"0.{hundredths:02d}")
    for parties in (1, 7, 10, 99, 100, 1000, 12_345):
        lost = int(Decimal(f"0.{hundredths:02d}") * parties)
        result = Aggregation(parties, tau, 0.0)
        assert (result.quorum, result.honest) == (parties - lost, parties - lost)
        assert Aggregation(parties, 0.0, tau).honest == parties - lost
        assert Aggregation(parties, 0.0, tau).quorum == parties


def test_the_honest_are_what_neither_margin_takes() -> None:
    assert Aggregation(100).honest == 80
    assert Aggregation(15).honest == 13  # 1.5 of each: at most one node
    assert Aggregation(100, 0.29, 0.21).honest == 50
    with pytest.raises(ValueError, match=r"29%.*22%.*only 49 .*at least half"):
        Aggregation(100, 0.29, 0.22)
