"""Steps, square roots of prefix sums and regularized minimisers against obvious versions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from fedhist.privacy.guarantee import Adjacency, gaussian_multiplier
from server.histograms.clip_search import (
    FACTOR_BITS,
    first_below,
    log_step,
    prefix_factor,
    prefix_root,
    proof_step,
    regularized_minimum,
    squared_change,
)

ZERO, REPLACE, ADD = (
    Adjacency.ZERO_OUT_USER,
    Adjacency.REPLACE_USER,
    Adjacency.ADD_REMOVE_USER,
)
SIZES = [1, 2, 3, 7, 21, 41, 81]

# -- the square root of the prefix sums ----------------------------------------------------------


@pytest.mark.parametrize("k", SIZES)
def test_the_root_squared_is_the_prefix_sum(k):
    root = prefix_root(k)
    assert np.allclose(root @ root, np.tril(np.ones((k, k))), atol=1e-12)
    # another formula for the same column: central binomial coefficients over powers of 4
    column = [math.comb(2 * j, j) / 4**j for j in range(k)]
    assert np.allclose(root[:, 0], column, rtol=1e-12)


@pytest.mark.parametrize("k", SIZES)
def test_the_integer_factors_are_exact_and_close_to_the_root(k):
    encoder, decoder = prefix_factor(k)
    assert encoder.dtype == np.int64
    assert (encoder >= 0).all()
    assert (np.diag(encoder) == 1 << FACTOR_BITS).all()
    x = np.random.default_rng(k).integers(0, 2**40, k)
    assert np.allclose(decoder @ (encoder @ x), np.cumsum(x), rtol=1e-12)
    root = prefix_root(k)
    assert np.allclose(encoder / 2.0**FACTOR_BITS, root, atol=2.0**-FACTOR_BITS)
    # what rounding the root costs: the noise of every point of the curve, relative
    noise = np.linalg.norm(decoder, axis=1) * math.sqrt(squared_change(encoder, ZERO))
    ideal = np.linalg.norm(root, axis=1) * np.linalg.norm(root[:, 0])
    assert np.allclose(noise, ideal, rtol=2e-3)


def test_the_noise_of_the_curve_in_the_papers_setting():
    """d = 1000, s = 100, 41 points, (0.1, 1 / 1.2e6): std 825 on the last point; M = 3401."""
    encoder, decoder = prefix_factor(41)
    per_radius = np.linalg.norm(decoder, axis=1) * math.sqrt(squared_change(encoder, ZERO))
    delta = 1 / 1.2e6
    assert per_radius[-1] * 10 * gaussian_multiplier(0.1, delta) == pytest.approx(825, abs=1)
    mass = 1000 * gaussian_multiplier(1.0, delta) * math.sqrt(2 / math.pi)
    assert mass == pytest.approx(3401, abs=1)
    # against adding noise to the bins, whose last prefix sum has sqrt(K)
    assert per_radius[-1] < 0.4 * math.sqrt(41)


@pytest.mark.parametrize("adjacency", [ZERO, REPLACE, ADD])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
def test_the_sensitivity_of_the_encoding_is_exact(adjacency, k):
    """All users of weight 0 to 3 in any bin, against the null record or one another."""
    most = 3
    encoder, _ = prefix_factor(k)
    users = [np.zeros(k, dtype=np.int64)]
    users += [w * np.eye(k, dtype=np.int64)[j] for j in range(k) for w in range(1, most + 1)]
    if adjacency is REPLACE:
        changes = [a - b for a, b in itertools.combinations(users, 2)]
    else:
        changes = users
    largest = max(int(((encoder @ x) ** 2).sum()) for x in changes)
    assert most**2 * squared_change(encoder, adjacency) == largest


@pytest.mark.parametrize("k", [2, 9, 41])
def test_replacement_needs_less_than_sqrt_2(k):
    encoder, _ = prefix_factor(k)
    zero, replaced = squared_change(encoder, ZERO), squared_change(encoder, REPLACE)
    assert zero <= replaced < 2 * zero
    assert (replaced > zero) == (k > 2)  # two columns lie further apart than one is long


# -- the noisy curve -----------------------------------------------------------------------------


def slow_fit(y):
    """Least-squares non-increasing fit by its max-min formula."""
    k = len(y)
    mean = [[np.mean(y[a : b + 1]) if b >= a else None for b in range(k)] for a in range(k)]
    return np.array(
        [min(max(mean[a][b] for b in range(j, k)) for a in range(j + 1)) for j in range(k)]
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=9), st.integers(-60, 60))
def test_first_below_against_the_max_min_formula(values, level):
    fit = slow_fit(np.array(values, dtype=float))
    level += 0.1234  # no fitted mean of at most 9 integers is that close to a level
    below = [k for k, v in enumerate(fit) if v <= level]
    found = first_below(np.array(values, dtype=float), level)
    assert found == (below[0] if below else None)


# -- steps ---------------------------------------------------------------------------------------


def test_steps_go_against_the_slope_and_stay_in_the_range():
    ends = (0.0, 5.0)
    assert log_step(2.0, 1, 0.0, 3.0, ends) == 2.0
    assert log_step(2.0, 9, -1.5, 3.0, ends) == pytest.approx(2.0 + 0.5 / 3)
    assert log_step(2.0, 4, 1e300, 3.0, ends) == 1.5
    assert log_step(0.2, 1, 5.0, 3.0, ends) == 0.0
    assert log_step(4.9, 1, -5.0, 3.0, ends) == 5.0
    assert proof_step(2.0, 1, -1e9, 1.0, ends) == 5.0
    assert proof_step(2.0, 1, 1e9, 1.0, ends) == 0.0
    assert proof_step(2.0, 25, 3.0, 10.0, ends) == pytest.approx(2.0 - 0.3)


# -- regularized minimisers ----------------------------------------------------------------------

steps = st.lists(st.integers(0, 40), min_size=1, max_size=5)


def pieces(weights, gaps):
    tails = np.cumsum(np.array(weights)[::-1])[::-1].astype(np.int64)
    lower = np.cumsum([0, *gaps[: len(weights) - 1]]).astype(np.int64)
    return tails, lower


@settings(max_examples=80, deadline=None)
@given(steps, st.lists(st.integers(1, 15), min_size=4, max_size=4), st.integers(0, 60))
def test_the_minimum_minimises(weights, gaps, level):
    """Nowhere on a grid of halves is level C + C^2 / 2 - integral of S smaller."""
    tails, lower = pieces(weights, gaps)

    def objective(c):
        width = np.clip(c - lower, 0, np.append(np.diff(lower), np.inf))
        return level * c + c * c / 2 - float((width * tails).sum())

    best = regularized_minimum(tails, lower, level)
    grid = np.arange(0, 2 * (int(tails[0]) + int(lower[-1]) + 2)) / 2
    assert objective(best) == pytest.approx(min(objective(c) for c in grid), abs=1e-9)


def test_the_objective_of_the_test_is_the_integral_of_the_slope():
    tails, lower = pieces([4, 3, 2], [2, 5])

    def slope(c):
        return 1 + c - tails[np.searchsorted(lower, c, side="right") - 1]

    width = np.clip(6.0 - lower, 0, np.append(np.diff(lower), np.inf))
    assert quad(slope, 0, 6.0, points=[2.0])[0] == pytest.approx(
        1 * 6.0 + 18.0 - float((width * tails).sum())
    )


@pytest.mark.parametrize("adjacency", [ZERO, REPLACE])
def test_the_sensitivity_of_the_minimum_is_one_weight(adjacency):
    """Every population of 3 users of weight up to 3 in 3 bins or none, every change of one."""
    lower, level, most = np.array([0, 2, 3]), 2, 3
    user = [(0, 0), *itertools.product(range(3), range(1, most + 1))]
    worst = 0
    for others in itertools.combinations_with_replacement(user, 2):
        base = np.zeros(3, dtype=np.int64)
        for j, w in others:
            base[j] += w
        found = []
        for j, w in user:
            x = base.copy()
            x[j] += w
            found.append(regularized_minimum(np.cumsum(x[::-1])[::-1], lower, level))
        pairs = (
            itertools.combinations(found, 2)
            if adjacency is REPLACE
            else ((found[0], f) for f in found)
        )
        worst = max(worst, *(abs(a - b) for a, b in pairs))
    assert worst == most
