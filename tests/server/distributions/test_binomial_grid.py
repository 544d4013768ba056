"""The arcsine grid: a cover in total variation, the crossings, the bounds, exact scores."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from server.distributions.binomial_scores import BinomialGrid, doubles, dyadic, pick_eta

SIZES = [1, 2, 7, 1000]


def slow_tv(m: int, p: float, q: float) -> float:
    x = np.arange(m + 1)
    return 0.5 * float(np.abs(binom.pmf(x, m, p) - binom.pmf(x, m, q)).sum())


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("eta", [0.02, 0.3])
def test_every_binomial_is_within_eta(m: int, eta: float) -> None:
    grid = BinomialGrid.of(m, eta)
    assert len(grid) == math.ceil(math.pi * math.sqrt(m) / (4 * eta)) + 2
    probes = np.sin(np.random.default_rng(1).uniform(0, math.pi / 2, 40)) ** 2
    for p in (*probes, 0.0, 1.0, 1e-7, 0.3 / m):
        near = np.argsort(np.abs(grid.angle - math.asin(math.sqrt(p))))[:3]
        assert min(slow_tv(m, p, grid.p[j]) for j in near) <= eta


@pytest.mark.parametrize("m", SIZES)
def test_the_grid_is_symmetric_and_holds_the_ends(m: int) -> None:
    grid = BinomialGrid.of(m, 0.07)
    assert (grid.p[0], grid.p[-1]) == (0.0, 1.0)
    assert (np.diff(grid.p) > 0).all()
    assert (grid.q == grid.p[::-1]).all()
    np.testing.assert_allclose(grid.p + grid.q, 1, atol=3e-16)
    np.testing.assert_allclose(np.sin(grid.angle) ** 2, grid.p, atol=3e-16)
    assert np.diff(grid.angle).max() <= 2 * 0.07 / math.sqrt(m) * (1 + 1e-12)


@pytest.mark.parametrize("m", [1, 2, 8, 21])
def test_crossings_are_the_sets_of_larger_probability(m: int) -> None:
    """Against log-probabilities, for all pairs; equal ones are ties and in neither set."""
    grid = BinomialGrid.of(m, 0.11)
    x = np.arange(m + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.nan_to_num(x * np.log(grid.p)[:, None], nan=0.0, neginf=-1e9)
        log += np.nan_to_num((m - x) * np.log(grid.q)[:, None], nan=0.0, neginf=-1e9)
    ties = 0
    for j in range(len(grid)):
        for k in range(j + 1, len(grid)):
            low = np.flatnonzero(log[j] > log[k] + 1e-9)
            high = np.flatnonzero(log[k] > log[j] + 1e-9)
            t = int(grid.crossing(j, k))
            assert low.tolist() == list(range(t + 1))
            mirrored = m - 1 - int(grid.crossing(len(grid) - 1 - k, len(grid) - 1 - j))
            assert high.tolist() == list(range(mirrored + 1, m + 1))
            ties += mirrored > t and j > 0 and k < len(grid) - 1
    if m % 2 == 0:
        assert ties > 0  # p and 1 - p tie at m / 2


def test_tails_are_distribution_functions() -> None:
    grid = BinomialGrid.of(12, 0.1)
    for j in (0, 1, 9, len(grid) - 1):
        expected = binom.cdf(np.arange(12), 12, grid.p[j])
        np.testing.assert_allclose(grid.below(j, np.arange(12)), expected, atol=1e-14)


def test_the_width_follows_the_error_to_be_expected() -> None:
    assert pick_eta(10_000, math.inf) == 0.004
    assert pick_eta(100, math.inf) == pytest.approx(0.0125)
    assert pick_eta(1000, 0.05) == pytest.approx(0.0125)
    assert pick_eta(3, 0.1) == 0.05


def test_differences_with_dyadic_targets_are_exact() -> None:
    rng = np.random.default_rng(3)
    for n in (1, 53, 10_000, 3_000_000):
        f = rng.uniform(0, 1, 50)
        targets = dyadic(f * n, n)
        np.testing.assert_allclose(targets, f * n, atol=n * 2.0**-48)
        for x in targets.tolist():
            for c in (0, 1, n // 2, n):
                assert Fraction(c - x) == Fraction(c) - Fraction(x)
            for c in doubles(np.array([-n, -5 * n, 2 * n, 900 * n]), n).tolist():
                assert Fraction(c - x) == Fraction(c) - Fraction(x)
    assert doubles(np.array([[3, -900, 7]]), 5).tolist() == [[3.0, -5.0, 7.0]]


@pytest.mark.parametrize(
    ("m", "eta", "words"),
    [(0, 0.1, "m must be"), (3, 0.0, "eta must"), (3, 1.0, "eta"), (1 << 40, 1e-3, "too many")],
)
def test_bad_grids_are_refused(m: int, eta: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BinomialGrid.of(m, eta)
