"""Rates of private optimization: their regimes, and the users that follow from a condition."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy.optimize import brentq

from simulations.experiments.erm_theorems import Problem, erm_rate, erm_users, sco_rate, sco_users

ONE = Problem(0.5, 4000, 50, 20, 3.0, 5.0, 1.5, 0.4)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize(("epsilon", "spread"), [(0.05, 0.4), (1.0, 0.01)])
def test_users_of_sco_are_the_condition_solved(few: bool, epsilon: float, spread: float) -> None:
    p = replace(ONE, epsilon=epsilon, spread=spread)
    d = 1 if few else p.dimension

    def missing(log_n: float) -> float:
        n = math.exp(log_n)
        private = replace(p, n_users=1).private_error / n
        strength = math.hypot(private, math.sqrt(p.both_bounds / (n * p.samples))) / p.radius
        return n - math.sqrt(d * p.smoothness / strength) / epsilon

    solved = math.exp(brentq(missing, -30, 40))
    stated = sco_users(p, few)
    assert stated is not None
    stated -= 1 / epsilon if few else 0.0
    assert solved <= stated * (1 + 1e-9)
    assert stated <= 2 * solved


def test_rates_are_as_printed() -> None:
    sigma = 0.4 * math.sqrt(20 / 50)
    private = sigma * 50 / (4000 * math.sqrt(20) * 0.5)
    assert erm_rate(ONE, 8) == pytest.approx(9 * 1.5 / 8 + 3 * private)
    strong = replace(ONE, strong_convexity=0.7)
    expected = 5 * 3 * math.exp(-0.7 / 1.5 * 8) + private**2 / 0.7
    assert erm_rate(strong, 8) == pytest.approx(expected)
    assert erm_users(ONE, 8, False) == pytest.approx(math.sqrt(50 * 8) / 0.5)
    assert erm_users(ONE, 8, True) == pytest.approx(math.sqrt(8) / 0.5)
    both = 5 * min(5.0, sigma * math.sqrt(50))
    assert sco_rate(ONE) == pytest.approx(3 * (math.sqrt(both / (20 * 4000)) + private))
