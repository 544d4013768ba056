"""Errors against closed forms and against simulations that share nothing with the formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedhist.privacy.guarantee import gaussian_multiplier
from fedhist.privacy.lattice_gaussian import discrete_gaussian_std
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.protocols.distributions import theory
from server.distributions.simplex import CMAX, presence_to_probability, project_simplex
from tests.protocols.running import table_users

# -- post-processing -------------------------------------------------------------------------------


def projected_by_bisection(v: np.ndarray) -> np.ndarray:
    """The projection as its definition: the shift at which the positive parts add up to 1."""
    low, high = v.min() - 1, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(v - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(v - low, 0)


@pytest.mark.parametrize("k", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e9])
def test_projection(k, scale):
    rng = np.random.default_rng(k)
    for shift in (0.0, scale, -scale):
        v = rng.normal(0, scale, k) + shift
        p = project_simplex(v)
        assert (p >= 0).all()
        assert p.sum() == pytest.approx(1, abs=1e-9)
        assert p == pytest.approx(projected_by_bisection(v), abs=1e-6 * max(1.0, scale * 1e-6))
        assert project_simplex([v / 2, v])[1].tolist() == p.tolist()


def test_projection_leaves_distributions_alone_and_refuses_what_is_not_finite():
    assert project_simplex([0.25, 0.75, 0.0]).tolist() == [0.25, 0.75, 0.0]
    assert project_simplex([-3.0]).tolist() == [1.0]
    for bad in ([], [math.nan], [math.inf, 0], 1.0, [[0.0, math.nan]]):
        with pytest.raises(ValueError, match="finite vector"):
            project_simplex(bad)


def test_presence_reads_exact_frequencies():
    p = np.array([0.0, 1e-9, 0.01, 0.1, 0.3])
    for m in (1, 7):
        present = 1000 * (1 - (1 - p) ** m)
        assert presence_to_probability(present, 1000, m) == pytest.approx(p, rel=1e-6, abs=1e-12)
    assert presence_to_probability([-5, 1e9], 10, 8).tolist() == [0.0, -math.expm1(-CMAX / 8)]
    for bad in ((0, 1, 4.0), (1, 0, 4.0), (1, 1, 0.0)):
        with pytest.raises(ValueError, match="positive"):
            presence_to_probability([1], *bad)


# -- the noise that is printed ---------------------------------------------------------------------


def test_laplace_beats_gaussian_on_counts():
    """At (1, 1e-6): 4.2247 per unit of l2, so 4.77 k / s against 2 k / s."""
    assert gaussian_multiplier(1.0, 1e-6) == pytest.approx(4.2247, abs=1e-4)
    law = theory.counts_law(100, 10, 1.0, 1e-6, discrete=False)
    assert law.mean_absolute / 10 == pytest.approx(4.77, abs=5e-3)
    assert theory.counts_law(100, 10, 1.0, 0.0, discrete=False).mean_absolute / 10 == 2.0


def test_what_the_printed_gaussian_spends():
    """Its variance 4 m^2 ln(1.25 / delta) / eps^2 keeps its promise below 1 and breaks it above."""
    m = 3
    for epsilon in (0.1, 0.5, 1.0, 20.0):
        std = math.sqrt(2) * m * theory.printed_multiplier(epsilon, 1e-6)
        assert std**2 == pytest.approx(4 * m**2 * math.log(1.25e6) / epsilon**2)
        spent = theory.printed_gaussian_spends(epsilon, 1e-6, discrete=False)
        assert gaussian_multiplier(spent, 1e-6) == pytest.approx(
            theory.printed_multiplier(epsilon, 1e-6), rel=1e-3
        )
        assert (spent < epsilon) == (epsilon <= 1)
        size = math.sqrt(2) * m
        discrete = theory.printed_gaussian_spends(epsilon, 1e-6, True, size)
        assert spent < discrete < 1.3 * spent
        assert discrete_gaussian_std(size, discrete, 1e-6)[0] == pytest.approx(std, rel=1e-3)
    assert theory.printed_gaussian_spends(math.inf, 1e-6, discrete=True) == math.inf


# -- errors ----------------------------------------------------------------------------------------


LAWS = [
    NoiseLaw("laplace", 2.0),
    NoiseLaw("gaussian", 3.0),
    NoiseLaw("discrete-laplace", 2.0),
    NoiseLaw("discrete-gaussian", 3.0),
    NoiseLaw("laplace", 0.0),
]


def draw(law, rng, shape):
    if law.scale == 0:
        return np.zeros(shape)
    if law.kind == "laplace":
        return rng.laplace(0, law.scale, shape)
    if law.kind == "discrete-laplace":
        stop = -math.expm1(-1 / law.scale)
        return rng.geometric(stop, shape) - rng.geometric(stop, shape)
    if law.kind == "gaussian":
        return rng.normal(0, law.scale, shape)
    x = np.arange(-60, 61)
    p = np.exp(-0.5 * (x / law.scale) ** 2)
    return rng.choice(x, shape, p=p / p.sum())


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_expected_absolute(law):
    """200,000 draws at each of six settings, 4.5 standard errors: false alarm 4e-5 a law."""
    rng = np.random.default_rng(8)
    bias, std = np.array([0.0, 4.0, -4.0, 0.0, 2.0, 7.5]), np.array([0.0, 0.0, 0.0, 2.5, 2.5, 6.0])
    n = 200_000
    x = np.abs(bias + std * rng.normal(size=(n, 6)) + draw(law, rng, (n, 6)))
    off = np.abs(theory.expected_absolute(bias, std, law) - x.mean(axis=0))
    assert (off < 4.5 * x.std(axis=0) / math.sqrt(n) + 0.004).all()


def test_gaussian_and_laplace_closed_forms():
    """E|G + Z| is .8 hypot for two Gaussians, and .8 a + b erfcx(a / (b sqrt 2)) for Laplace."""
    from scipy.special import erfcx

    std = np.array([0.3, 3.0, 10.0])
    found = theory.expected_absolute(np.zeros(3), std, NoiseLaw("gaussian", 3.0))
    assert found == pytest.approx(math.sqrt(2 / math.pi) * np.hypot(std, 3.0), rel=5e-3)
    found = theory.expected_absolute(np.zeros(3), std, NoiseLaw("laplace", 3.0))
    exact = math.sqrt(2 / math.pi) * std + 3.0 * erfcx(std / (3.0 * math.sqrt(2)))
    assert found == pytest.approx(exact, rel=5e-3)


def test_error_of_counts_is_below_the_papers_bound_and_at_the_sharp_constant():
    k, m, s, eps = 50, 20, 400, 1.0
    p = np.full(k, 1 / k)
    law = theory.counts_law(k, m, eps, 0.0, discrete=False)
    found = theory.counts_error(p, m, s, law, pooled=False)
    assert found < math.sqrt(k / (s * m)) + 2 * k / (s * eps)
    assert theory.counts_error(p, m, s, law, pooled=True) == pytest.approx(2 * k / (s * eps))
    silent = theory.counts_error(p, m, s, NoiseLaw("laplace", 0.0), pooled=False)
    assert silent == pytest.approx(math.sqrt(2 * (k - 1) / (math.pi * s * m)))
    assert theory.users_for_sampling(k, m, silent) == pytest.approx(s)


def multinomial(rng, p, m, s):
    return rng.multinomial(m, p, s)


@pytest.mark.parametrize(
    ("k", "m", "skew"), [(20, 30, 0.0), (100, 20, 0.5), (100, 5, 1.0), (400, 20, 0.8)]
)
@pytest.mark.parametrize("pooled", [False, True])
def test_presence_error_against_simulation(k, m, skew, pooled):
    """12,000 errors of symbols, of relative std 0.75 each: 6 % are 8 standard errors, the formula's
    own inaccuracy of 2 % at most apart. False alarm below 1e-6.
    """
    rng = np.random.default_rng(k + m)
    p = np.arange(1, k + 1.0) ** -skew
    p /= p.sum()
    s, sigma = 500, 30.0
    losses = []
    for _ in range(12_000 // k):
        table = multinomial(rng, p, m, s)
        noisy = (table > 0).sum(axis=0) + rng.normal(0, sigma, k)
        estimate = 1 - np.clip(1 - noisy / s, math.exp(-CMAX), 1) ** (1 / m)
        losses.append(np.abs(estimate - (table.mean(axis=0) / m if pooled else p)).sum())
    found = theory.presence_error(p, m, s, NoiseLaw("gaussian", sigma), pooled, CMAX)
    assert found == pytest.approx(np.mean(losses), rel=0.06)


def test_presence_error_is_near_its_closed_form():
    """e^(m p) / (m s) hypot(.8 sqrt(s q (1 - q)), .8 sigma) per symbol while m p <= 2."""
    s, sigma = 20_000, 40.0
    for m, p in ((10, 0.05), (10, 0.1), (40, 0.02), (100, 0.02)):
        q = (1 - p) ** m
        exact = math.exp(m * p) / (m * s) * 0.8 * math.hypot(math.sqrt(s * q * (1 - q)), sigma)
        law = NoiseLaw("gaussian", sigma)
        found = theory.presence_error(np.array([p]), m, s, law, False, CMAX)
        assert found == pytest.approx(exact, rel=0.15)


@pytest.mark.parametrize("law", [NoiseLaw("laplace", 30.0), NoiseLaw("discrete-laplace", 30.0)])
def test_presence_error_with_laplace_noise(law):
    """One million draws around known totals; within 2 %."""
    rng = np.random.default_rng(2)
    mean, std, p = (
        np.array([3.0, 100.0, 390.0]),
        np.array([0.0, 10.0, 4.0]),
        np.array([0.001, 0.03, 0.3]),
    )
    found = theory.presence_absolute(mean, std, p, 10, 400, law, CMAX)
    noisy = mean + std * rng.normal(size=(10**6, 3)) + draw(law, rng, (10**6, 3))
    estimate = 1 - np.clip(1 - noisy / 400, math.exp(-CMAX), 1) ** 0.1
    assert found == pytest.approx(np.abs(estimate - p).mean(axis=0), rel=0.02)


# -- known users -----------------------------------------------------------------------------------


def test_moments_of_the_cut_by_enumeration():
    """Every subset of m of a user's tokens, equally likely."""
    from itertools import combinations

    table = np.array([[3, 1, 0, 1], [0, 2, 0, 0], [4, 4, 1, 0], [0, 0, 0, 0]])
    m = 3
    users = table_users(table)
    mean, var = np.zeros(4), np.zeros(4)
    seen, spread = np.zeros(4), np.zeros(4)
    for row in table:
        tokens = np.repeat(np.arange(4), row)
        rows = [np.bincount(c, minlength=4) for c in combinations(tokens, min(m, len(tokens)))]
        rows = np.array(rows)
        mean, var = mean + rows.mean(axis=0), var + rows.var(axis=0)
        seen, spread = seen + (rows > 0).mean(axis=0), spread + (rows > 0).var(axis=0)
    for found, exact in (
        (theory.cut_moments(users, users.vocabulary, m), (mean, var)),
        (theory.presence_moments(users, users.vocabulary, m), (seen, spread)),
    ):
        assert found[0] == pytest.approx(exact[0], abs=1e-9)
        assert found[1] == pytest.approx(exact[1], abs=1e-9)


# -- users that are needed -------------------------------------------------------------------------


def test_least_users():
    assert theory.least_users(lambda s: 1 / math.sqrt(s), 0.1) == 100
    assert theory.least_users(lambda s: 0.0, 0.1) == 1
    assert theory.least_users(lambda s: 1.0, 0.1) == math.inf
    with pytest.raises(ValueError, match="alpha"):
        theory.least_users(lambda s: 1.0, 0.0)


def test_lower_bounds_lie_below_what_is_achieved():
    """Laplace on counts needs 2 k / (alpha eps) users for the noise alone."""
    for k, alpha, eps in ((100, 0.1, 0.05), (1000, 0.3, 0.01)):
        achieved = 2 * k / (alpha * eps)
        assert theory.users_for_counts(k, alpha, eps, 1e-6) == pytest.approx(
            achieved / 8000, rel=1e-3
        )
        assert theory.users_for_pure(k, 1, alpha, eps) == pytest.approx(achieved / 5400)
    assert theory.users_for_pure(10, 100, 0.1, 1.0) * 10 == theory.users_for_pure(10, 1, 0.1, 1.0)
