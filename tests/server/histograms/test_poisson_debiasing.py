"""Debiasing of clipped Poisson counts: h against direct sums, its inverse, exact expected error."""

import mpmath
import numpy as np
import pytest
from scipy.stats import poisson

from server.histograms.poisson_debiasing import (
    clipped_mean,
    clipped_mean_slope,
    clipped_variance,
    debiased_stderr,
    most_rate,
    rate_of_mean,
)

CLIPS = [1, 2, 3, 7, 30]
RATES = np.array([0.0, 1e-6, 0.03, 0.5, 1.0, 2.7, 8.0, 40.0, 90.0])


def slow_moment(rate, clip, power):
    """E min(X, C)^power by the plain sum over the values of X."""
    x = np.arange(600)
    return (np.minimum(x, clip) ** float(power) * poisson.pmf(x, rate)).sum()


@pytest.mark.parametrize("clip", CLIPS)
def test_moments_equal_the_plain_sums(clip):
    mean = [slow_moment(r, clip, 1) for r in RATES]
    square = [slow_moment(r, clip, 2) for r in RATES]
    np.testing.assert_allclose(clipped_mean(RATES, clip), mean, rtol=1e-12)
    variance = np.array(square) - np.square(mean)
    np.testing.assert_allclose(clipped_variance(RATES, clip), variance, atol=1e-12 * clip**2)


def test_the_papers_formula_in_fifty_digits():
    """C - sum over j < C of (C - j) e^-rate rate^j / j! [proof of Theorem C.1]."""
    with mpmath.workdps(50):
        for clip, rate in [(1, 1e-12), (4, 0.1), (10, 25.0), (200, 180.0), (1000, 1100.0)]:
            x = mpmath.mpf(rate)
            terms = ((clip - j) * x**j / mpmath.factorial(j) for j in range(clip))
            exact = clip - mpmath.exp(-x) * mpmath.fsum(terms)
            assert float(clipped_mean(rate, clip)) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("clip", [*CLIPS, 150, 5000])
def test_inverse_undoes_h(clip):
    rates = np.concatenate([np.geomspace(1e-12, 1, 30), np.linspace(1, clip + 3 * clip**0.5, 60)])
    back = rate_of_mean(clipped_mean(rates, clip), clip)
    # rounding h by half an ulp moves the inverse by that over the slope
    room = 8e-16 * clipped_mean(rates, clip) / clipped_mean_slope(rates, clip) + 8e-16 * rates
    assert (np.abs(back - rates) <= 2 * room).all()
    means = np.linspace(0, clip, 200)[:-1]
    np.testing.assert_allclose(clipped_mean(rate_of_mean(means, clip), clip), means, rtol=1e-14)


def test_ends_of_the_inverse():
    for clip in (1, 4, 1000):
        cap = most_rate(clip)
        below = np.nextafter(clip, 0)
        out = rate_of_mean([-np.inf, -3.0, 0.0, 5e-324, below, clip, 2.0 * clip, np.inf], clip)
        assert out[:3].tolist() == [0.0, 0.0, 0.0]
        assert 0 < out[3] < 1e-300
        assert clip < out[4] < cap
        assert out[5:].tolist() == [cap, cap, cap]
        assert clipped_mean(cap, clip) == clip
    assert rate_of_mean([], 3).shape == (0,)
    assert rate_of_mean(np.full((2, 3), 0.5), 3).shape == (2, 3)


def test_stderr_is_infinite_at_the_cap():
    at_cap = np.array([1.0, most_rate(3)])
    for noise in (0.0, 5.0):
        out = debiased_stderr(at_cap, 100, 3, noise)
        assert np.isfinite(out[0])
        assert out[1] == np.inf
