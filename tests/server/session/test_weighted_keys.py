"""Keys by weights: exact chances of a user's own keys, both sides of the threshold, privacy."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from clients.histograms.key_queries import WEIGHT, weight_of
from fedhist.model.query import Keyed
from fedhist.privacy.guarantee import gaussian_multiplier
from fedhist.users.keys import Keys
from server.noise import SimulatedNoise
from server.session.unknown_keys import WeightedKeys, unpack_keyed


@pytest.mark.parametrize("limit", [1, 2, 7, 50, 400])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.4, 1e-6), (3.0, 1e-2)])
def test_own_keys_appear_with_half_of_delta_at_most(limit, replaced, epsilon, delta):
    """Exactly, for every number of own keys of every longer row; and no threshold is lower."""
    way = WeightedKeys(limit, epsilon, delta, replaced, discrete=False)
    part = delta / (4 if replaced else 2)
    assert way.new_delta == part
    worst = 0.0
    for t in range(1, limit + 1):
        one = norm.sf((way.threshold - weight_of(t)) / way.std)
        for own in {1, t // 2, t} - {0}:
            appears = -math.expm1(own * math.log1p(-one))
            worst = max(worst, appears)
    assert worst <= part * (1 + 1e-9)
    assert worst > part * (1 - 1e-6)


def test_integer_noise_keeps_the_promise():
    """Where steps are coarse against the noise: the exact sum of the discrete Gaussian's tail."""
    for std in (0.7, 3.0, 40.0):
        k = np.arange(-int(40 * std) - 5, int(40 * std) + 6)
        p = np.exp(-((k / std) ** 2) / 2)
        p /= p.sum()
        for rare in (1e-2, 1e-7):
            least = math.ceil(-std * norm.ppf(rare) + 1)  # one step more than for a Gaussian
            assert p[k >= least].sum() <= rare
    way, real = (WeightedKeys(50, 1.0, 1e-6, discrete=d) for d in (True, False))
    assert way.threshold / way.std < real.threshold / real.std * 1.01
    assert way.std > real.std


def test_a_row_has_norm_one_at_most_and_nearly():
    for t in (1, 2, 3, 7, 50, 1000):
        assert t * weight_of(t) ** 2 <= WEIGHT**2
        assert (weight_of(t) + 1) ** 2 * t > WEIGHT**2


def test_noise_is_that_of_its_sensitivity():
    """Two rows of disjoint keys lie sqrt(2) apart, and no two rows of norm 1 farther."""
    base = WeightedKeys(5, 1.0, 1e-4, discrete=False)
    assert base.std == pytest.approx(gaussian_multiplier(1.0, 5e-5) * WEIGHT)
    doubled = WeightedKeys(5, 1.0, 1e-4, True, False)
    assert doubled.std == pytest.approx(math.sqrt(2) * base.std)
    rng = np.random.default_rng(0)
    a, b = (np.abs(rng.normal(size=(500, 4))) for _ in range(2))
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    assert np.linalg.norm(a - b, axis=1).max() <= math.sqrt(2)


@pytest.mark.parametrize("discrete", [True, False])
def test_draws_follow_the_chances(discrete):
    """2000 draws of four keys within 5 standard deviations: false alarm 1e-5."""
    way = WeightedKeys(10, 1.0, 1e-2, discrete=discrete)
    weights = (np.array([0.0, 0.5, 1.0, 1.5]) * way.threshold).astype(np.int64)
    part = Keyed(Keys.range(4), weights)
    result = np.zeros(4)
    for seed in range(2000):
        shown = unpack_keyed(way.draw(part, SimulatedNoise(seed, 0)))
        for key in shown.keys:
            result[int(key)] += 1
    chance = norm.cdf((weights - way.threshold) / way.std)
    assert result[0] == 0  # nobody sends it
    assert chance[2] == pytest.approx(0.5)
    room = 5 * np.sqrt(chance * (1 - chance) * 2000) + 1
    assert (np.abs(result - 2000 * chance)[1:] <= room[1:]).all()


def test_without_noise_every_key_appears():
    way = WeightedKeys(10, math.inf, 1e-6)
    part = Keyed(Keys.range(3), np.array([0, 1, 5]))
    shown = unpack_keyed(way.draw(part, SimulatedNoise(1, 0)))
    assert list(shown.keys) == ["1", "2"]
