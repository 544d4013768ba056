"""Shares of noise: their size, the laws of their sums, the room they need, and whose they are."""

from __future__ import annotations

import math
from decimal import Decimal

import enumerated
import numpy as np
import pytest

from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import gaussian, gaussian_multiplier, pure
from fedhist.privacy.noise_law import NoiseLaw, expected_l1
from fedhist.privacy.shares import ShareNoise, fits, modulus_bits, share_cost


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
