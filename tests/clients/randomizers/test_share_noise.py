"""Shares of noise as nodes draw them, both grades.

Chi-squared tests that reject at p < 1e-9; secure draws have no seed: with 9 such tests a run fails
by chance once in 1e8.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from clients.randomizers import share_noise
from clients.randomizers.share_noise import draw_share, negative_binomial_table, seeded_differences
from fedhist.privacy.shares import ShareNoise

ALARM = 1e-9
LAPLACE, GAUSSIAN = ShareNoise("laplace", 6.0, 80), ShareNoise("gaussian", 40.0, 80)


def chi2_p(draws, mass, span):
    """p-value of draws against masses at -span..span, both tails pooled, 10 expected in each."""
    k = np.arange(-span, span + 1)
    p = np.array([mass(abs(int(x))) for x in k])
    p[[0, -1]] += (1 - p.sum()) / 2
    order = np.argsort(-p)
    cell = np.cumsum(p[order][::-1])[::-1] * len(draws)  # what is left from this place on
    n_cells = max(2, int(np.count_nonzero(cell >= 10)))
    place = np.empty(len(k), dtype=np.int64)
    place[order] = np.minimum(np.arange(len(k)), n_cells - 1)
    got = np.bincount(place[np.clip(draws, -span, span) + span], minlength=n_cells)
    want = np.bincount(place, weights=p, minlength=n_cells) * len(draws)
    return stats.chisquare(got, want / want.sum() * len(draws)).pvalue


def share_mass(scale, honest, span):
    """Masses of X - Y at 0..span, by 30-digit sums."""
    with mpmath.workdps(30):
        p, r = mpmath.exp(mpmath.mpf(-1) / scale), mpmath.mpf(1) / honest
        nb = [(1 - p) ** r]
        for j in range(math.ceil(40 * scale) + span):
            nb.append(nb[-1] * p * (j + r) / (j + 1))
        return [
            float(mpmath.fsum(a * b for a, b in zip(nb[z:], nb, strict=False)))
            for z in range(span + 1)
        ]


@pytest.mark.parametrize("seed", [5, None], ids=["simulated", "secure"])
@pytest.mark.parametrize(("scale", "honest"), [(0.4, 3), (6.0, 80), (25.0, 7)])
def test_laplace_shares_have_their_law(seed, scale, honest):
    span = math.ceil(12 * scale)
    masses = share_mass(scale, honest, span)
    noise = ShareNoise("laplace", scale, honest)
    draws = draw_share(noise, 200_000, seed=seed, node=2, digest="q")
    assert draws.dtype == np.int64
    assert chi2_p(draws, lambda k: masses[k], span) > ALARM
    one_more = ShareNoise("laplace", scale, honest + 1)
    other = draw_share(one_more, 200_000, seed=5, node=2, digest="q")
    if honest < 80:  # the test can fail
        assert chi2_p(other, lambda k: masses[k], span) < ALARM


@pytest.mark.parametrize("seed", [5, None], ids=["simulated", "secure"])
def test_gaussian_shares_have_their_law(seed):
    noise, n = GAUSSIAN, 20_000
    v, span = noise.share**2, math.ceil(8 * noise.share)
    total = math.fsum(math.exp(-k * k / (2 * v)) for k in range(-200, 201))
    draws = draw_share(noise, n, seed=seed, node=2, digest="q")
    assert draws.dtype == np.int64
    assert chi2_p(draws, lambda k: math.exp(-k * k / (2 * v)) / total, span) > ALARM


def test_m_shares_are_the_discrete_laplace_law():
    """Sums over 80 nodes of one question, 20,000 entries."""
    parts = [draw_share(LAPLACE, 20_000, seed=1, node=i, digest="q") for i in range(80)]
    p = math.exp(-1 / 6.0)
    mass = [math.tanh(1 / 12) * p**k for k in range(61)]
    assert chi2_p(np.sum(parts, axis=0), lambda k: mass[k], 60) > ALARM


def test_a_simulated_share_is_a_function_of_seed_node_and_question():
    for noise in (LAPLACE, GAUSSIAN):
        draws = [
            tuple(draw_share(noise, 400, seed=s, node=i, digest=d))
            for s, i, d in ((1, 0, "a"), (2, 0, "a"), (1, 1, "a"), (1, 0, "b"))
        ]
        assert len(set(draws)) == 4
        assert draws[0] == tuple(draw_share(noise, 400, seed=1, node=0, digest="a"))


def test_a_secure_share_is_drawn_anew():
    wide = ShareNoise("laplace", 500.0, 2)
    for noise in (wide, GAUSSIAN):
        one, two = (draw_share(noise, 400, seed=None, node=0, digest="a") for _ in range(2))
        assert (one != two).any()


@pytest.mark.parametrize("seed", [3, None])
def test_no_noise_is_none(seed):
    for kind in ("laplace", "gaussian"):
        noise = ShareNoise(kind, 0.0, 80)
        assert not draw_share(noise, 5, seed=seed, node=0, digest="a").any()
    assert draw_share(LAPLACE, 0, seed=seed, node=0, digest="a").shape == (0,)


@pytest.mark.parametrize(("scale", "honest"), [(0.02, 4), (2.5, 1), (7.0, 80), (40.0, 800)])
def test_the_table_is_the_law_to_128_bits(scale, honest):
    """Against 100 digits: every partial sum to the last unit, and the distance that is stated."""
    table = negative_binomial_table(scale, honest)
    stored = [int(h) << 64 | int(w) for h, w in zip(table.high, table.low, strict=True)]
    with mpmath.workdps(100):
        p, r = mpmath.exp(-1 / mpmath.mpf(scale)), mpmath.mpf(1) / honest
        mass = (1 - p) ** r
        partial, distance, before = mpmath.mpf(0), mpmath.mpf(0), 0
        for j, t in enumerate(stored):
            partial += mass
            assert 0 <= partial * 2**128 - t < 1 + mpmath.mpf(2) ** -20
            distance += abs((t - before) / mpmath.mpf(2) ** 128 - mass)
            before, mass = t, mass * p * (j + r) / (j + 1)
        behind = 1 - partial
        distance = distance / 2 + behind
        assert mass < mpmath.mpf(2) ** -128
        assert distance <= table.total_variation * (1 + 1e-6) <= 2.0**-110
    assert len(stored) <= 89 * scale + 3


def test_the_table_against_fractions():
    """p = exp(-1 / s) is irrational; with M = 1 the sums are 1 - p^(j + 1), in rationals of p."""
    table = negative_binomial_table(1.5, 1)
    with localcontext() as context:
        context.prec = 120
        p = Fraction((Decimal(-1) / Decimal("1.5")).exp())
    power = Fraction(1)
    for h, w in zip(table.high, table.low, strict=True):
        power *= p
        assert 0 <= (1 - power) * 2**128 - (int(h) << 64 | int(w)) < 1 + Fraction(1, 2**20)


def test_draws_at_the_edges_of_the_table():
    """Words just below an entry, at it, and behind the last one; ties of the high words."""
    table = negative_binomial_table(3.0, 2)
    low, most = table.low, np.uint64(2**64 - 1)
    j = np.arange(len(low) - 1)
    at = table.draw(table.high[j], low[j])  # T_j is no longer below T_j
    below = table.draw(table.high[j], low[j] - np.uint64(1))
    assert (below == j).all()
    assert (at == j + 1).all()
    assert table.draw(np.array([0, most]), np.array([0, most])).tolist() == [0, len(low)]


def test_the_distance_at_the_largest_scale_of_the_specification(monkeypatch):
    monkeypatch.setattr(share_noise, "MOST_ENTRIES", 100_000)
    assert negative_binomial_table(1000.0, 80).total_variation < 2.0**-114
    with pytest.raises(ValueError, match="more than 100000 entries: take a coarser grid"):
        negative_binomial_table(20_480.5, 80)


def test_jumps_cost_what_they_are():
    """Wide noise, many parties: mostly zeros, and the variance of the law."""
    draws = seeded_differences(np.random.default_rng(1), 400_000, 1000.0, 800)
    assert (draws == 0).mean() > 0.97
    second = np.square(draws.astype(np.float64))
    stderr = second.std() / math.sqrt(len(draws))
    assert abs(second.mean() - 2 * 1000.0**2 / 800) < 6 * stderr  # 2e-9
