"""Bounds: against binomial tails, and their coverage. False alarms: see each test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from simulations.audit import bounds


@pytest.mark.parametrize("alpha", [0.05, bounds.ALPHA / 8])
@pytest.mark.parametrize(("hits", "n"), [(1, 10), (9, 10), (10, 10), (37, 1000), (400_000, 10**6)])
def test_limits_are_where_the_tail_is_alpha(hits: int, n: int, alpha: float) -> None:
    low = float(bounds.proportion_low(hits, n, alpha))
    assert binom.sf(hits - 1, n, low) == pytest.approx(alpha, rel=1e-3)
    assert binom.sf(hits - 1, n, low) <= alpha  # outwards, also in doubles
    if hits < n:
        high = float(bounds.proportion_high(hits, n, alpha))
        assert binom.cdf(hits, n, high) == pytest.approx(alpha, rel=1e-3)
        assert binom.cdf(hits, n, high) <= alpha


def test_nothing_seen_and_everything_seen() -> None:
    assert bounds.proportion_low(0, 5, 0.1) == 0
    assert bounds.proportion_high(5, 5, 0.1) == 1
    assert float(bounds.proportion_high(0, 5, 0.1)) == pytest.approx(1 - 0.1 ** (1 / 5), rel=1e-6)


@pytest.mark.parametrize(
    ("p", "q", "delta"), [(0.75, 0.25, 0.0), (0.3, 0.01, 0.1), (0.02, 0.01, 0)]
)
def test_epsilon_is_covered(p: float, q: float, delta: float) -> None:
    """40,000 repetitions at alpha = 0.05: more than 2,000 wrong with probability below 1/2 even if
    each were wrong with probability exactly 0.05; in fact, both limits must be beaten at once, and
    the true rate is below 0.01: P(more than 2,000) < 1e-100."""
    rng = np.random.default_rng(3)
    truth = math.log((p - delta) / q)
    a, b = rng.binomial(2000, p, 40_000), rng.binomial(2000, q, 40_000)
    result = bounds.epsilon_low(a, 2000, b, 2000, delta=delta, alpha=0.05)
    assert (result > truth).sum() <= 2000
    assert (result > 0).any()


def test_an_event_that_one_input_never_makes() -> None:
    """1000 of 1000 against 0 of 1000: the limits are alpha / 2 to the power 1 / 1000."""
    tail = (0.01 / 2) ** (1 / 1000)
    result = float(bounds.epsilon_low(1000, 1000, 0, 1000, alpha=0.01))
    assert result == pytest.approx(math.log(tail / (1 - tail)), rel=1e-6)


def test_delta_is_a_curve_below_the_truth() -> None:
    grid = [0.0, 0.5, 1.0, 2.0]
    result = bounds.delta_low(750_000, 10**6, 250_000, 10**6, grid)
    truth = np.maximum(0.75 - np.exp(grid) * 0.25, 0)
    assert (result <= truth).all()
    assert result == pytest.approx(truth, abs=0.011)


def test_a_claim_allows_what_randomized_response_does() -> None:
    """(epsilon, 0): the hockey-stick divergence of randomized response is the largest."""
    e = math.log(3)
    assert bounds.claimed_delta([0.0, 0.5], e, 0.0) == pytest.approx(
        [0.5, 0.75 - math.exp(0.5) / 4], rel=1e-12
    )
    assert bounds.claimed_delta(9.0, e, 0.01) == pytest.approx(0.01)


def test_all_false_alarms_together() -> None:
    assert pytest.approx(bounds.TOTAL_ALPHA) == bounds.ALPHA * bounds.MOST_CHECKS
    assert bounds.TOTAL_ALPHA <= 1e-6
