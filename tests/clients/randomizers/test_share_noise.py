"""Shares of noise as nodes draw them, both grades.

Chi-squared tests that reject at p < 1e-9; secure draws have no seed: with 9 such tests a run fails
by chance once in 1e8.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from clients.randomizers.share_noise import draw_share, exact_differences, gaussian_share
from fedhist.privacy.shares import ShareNoise
from tests.privacy.enumerated import discrete_gaussian, share_difference
from tests.running import p_value

ALARM = 1e-9
LAPLACE, GAUSSIAN = ShareNoise("laplace", 6.0, 80), ShareNoise("gaussian", 40.0, 80)


def chi2_p(draws, p):
    """p-value of draws against masses at -span..span; both tails are in the last ones."""
    span = len(p) // 2
    result = np.bincount(np.clip(draws, -span, span) + span, minlength=len(p))
    p = p.copy()
    p[[0, -1]] += (1 - p.sum()) / 2
    return p_value(result, p * len(draws))


@pytest.mark.parametrize("seed", [5, None], ids=["simulated", "secure"])
@pytest.mark.parametrize(("scale", "honest"), [(0.4, 3), (6.0, 80), (25.0, 7)])
def test_laplace_shares_have_their_law(seed, scale, honest):
    span = math.ceil(12 * scale)
    masses = share_difference(1 / honest, scale, span)
    noise = ShareNoise("laplace", scale, honest)
    draws = draw_share(noise, 200_000 if seed else 40_000, seed=seed, node=2, digest="q")
    assert draws.dtype == np.int64
    assert chi2_p(draws, masses) > ALARM
    one_more = ShareNoise("laplace", scale, honest + 1)
    other = draw_share(one_more, 200_000, seed=5, node=2, digest="q")
    if honest < 80:  # the test can fail
        assert chi2_p(other, masses) < ALARM


@pytest.mark.parametrize("seed", [5, None], ids=["simulated", "secure"])
def test_gaussian_shares_have_their_law(seed):
    noise, n = GAUSSIAN, 20_000
    v, span = noise.share**2, math.ceil(8 * noise.share)
    draws = draw_share(noise, n, seed=seed, node=2, digest="q")
    assert draws.dtype == np.int64
    assert chi2_p(draws, discrete_gaussian(v, span)) > ALARM


def test_a_simulated_share_is_a_function_of_seed_node_and_question():
    """A secure one is drawn anew."""
    drawn = [(1, 0, "a"), (2, 0, "a"), (1, 1, "a"), (1, 0, "b"), (None, 0, "a"), (None, 0, "a")]
    for noise in (LAPLACE, GAUSSIAN):
        draws = [tuple(draw_share(noise, 400, seed=s, node=i, digest=d)) for s, i, d in drawn]
        assert len(set(draws)) == 6
        assert draws[0] == tuple(draw_share(noise, 400, seed=1, node=0, digest="a"))


@pytest.mark.parametrize("seed", [3, None])
def test_no_noise_is_none(seed):
    for kind in ("laplace", "gaussian"):
        noise = ShareNoise(kind, 0.0, 80)
        assert not draw_share(noise, 5, seed=seed, node=0, digest="a").any()
    assert draw_share(LAPLACE, 0, seed=seed, node=0, digest="a").shape == (0,)


def words_of(exact):
    return [int(h) << 64 | int(w) for h, w in zip(exact.high, exact.low, strict=True)]


def mp_law(scale, honest):
    """p, and the mean number of jumps, in 100 digits."""
    p = mpmath.exp(-1 / mpmath.mpf(scale))
    return p, -mpmath.log(1 - p) / honest


@pytest.mark.parametrize(
    ("scale", "honest"), [(1e-9, 2), (0.02, 4), (2.5, 1), (7.0, 80), (2.0**50, 1)]
)
def test_the_number_of_jumps_is_poisson_to_128_bits(scale, honest):
    """Against 100 digits: every partial sum to the last unit, and nothing behind the last."""
    exact = exact_differences(scale, honest)
    with mpmath.workdps(100):
        _, rate = mp_law(scale, honest)
        mass = mpmath.exp(-rate)
        partial = mpmath.mpf(0)
        for j, t in enumerate(words_of(exact)):
            partial += mass
            assert 0 <= partial * 2**128 - t < 1 + mpmath.mpf(2) ** -20
            mass *= rate / (j + 1)
        assert 1 - partial <= mpmath.mpf(2) ** -127
    assert len(exact.high) < 180


@pytest.mark.parametrize("scale", [0.02, 0.7, 2.5, 40.0])
def test_jumps_are_logarithmic_to_more_than_110_bits(scale):
    """The law that the thresholds make, in fractions, over all octaves and all places in them."""
    exact = exact_differences(scale, 1)
    kept = [
        (k, Fraction(exact.threshold(j, k), 2**128 * 2**j))
        for j in range(len(exact.powers))
        for k in range(2**j, 2 ** (j + 1))
    ]
    assert [k for k, _ in kept] == list(range(1, 2 ** len(exact.powers)))
    total = sum(chance for _, chance in kept)
    with mpmath.workdps(100):
        p, rate = mp_law(scale, 1)
        ours = [mpmath.mpf(c.numerator) / c.denominator for _, c in kept]
        norm = mpmath.mpf(total.numerator) / total.denominator
        apart = mpmath.fsum(
            abs(c / norm - p**k / (k * rate)) for c, (k, _) in zip(ours, kept, strict=True)
        )
        assert rate * apart <= exact.total_variation <= 2.0**-110
        for c, (k, _) in zip(ours, kept, strict=True):
            assert 0 <= p**k / k - c <= mpmath.mpf(2) ** -127


def test_draws_at_the_edges_of_the_table():
    """Words just below an entry, at it, and behind the last one; both words count."""
    exact = exact_differences(3.0, 2)
    low, most = exact.low, np.uint64(2**64 - 1)
    j = np.arange(len(low) - 1)
    assert (exact.jumps(exact.high[j], low[j] - np.uint64(1)) == j).all()
    assert (exact.jumps(exact.high[j], low[j]) == j + 1).all()
    ends = np.array([0, most])
    assert exact.jumps(ends, ends).tolist() == [0, len(low)]


def test_the_distance_at_any_scale_is_far_below_the_specification():
    for scale in (1e-3, 1.0, 20_480.0, 2.0**50):
        for honest in (1, 80, 100_000):
            assert exact_differences(scale, honest).total_variation < 2.0**-120


@pytest.mark.parametrize("std", [0.3, 3.0, 40.25, 5000.5, 40_000.0])
def test_compiled_gaussian_shares_have_their_law(std):
    """Pooled into 400 equal parts."""
    n = 300_000
    draws = gaussian_share(7, n, std)
    k = np.arange(-math.ceil(9 * std), math.ceil(9 * std) + 1)
    mass = np.exp(-0.5 * (k / std) ** 2)
    upper = np.cumsum(mass / mass.sum())
    cuts = np.unique(np.searchsorted(upper, np.linspace(0, 1, 400)[1:-1]))
    want = np.diff(np.concatenate(([0.0], upper[cuts], [1.0])))
    got = np.bincount(np.searchsorted(k[cuts], draws), minlength=len(want))
    assert stats.chisquare(got, want * n).pvalue > ALARM
    # the integers next to 0, whose cell is the only one that is not falling
    near = np.bincount(np.clip(np.abs(draws), 0, 4), minlength=5)[:4]
    law = np.exp(-0.5 * (np.arange(4) / std) ** 2) * [1, 2, 2, 2] / mass.sum()
    both = np.append(near, n - near.sum()), np.append(law, 1 - law.sum()) * n
    assert stats.chisquare(*both).pvalue > ALARM
