"""Budgets per symbol, the error formulas' parts, the users that are needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from fedhist.privacy.guarantee import zcdp_rho
from fedhist.protocols.distributions.selection_theory import (
    epsilon_per_symbol,
    ks_error,
    ks_slope,
    phs_error,
    printed_dense,
    printed_sparse,
    selection_cost,
    spent_by,
    users_needed,
)

RHO = zcdp_rho(1.0, 1e-6)


def composition_table(epsilon: float, delta: float, changed: int) -> dict[str, float]:
    """Budgets per symbol that make (epsilon, delta) in all, by the way they are derived.

    "proof": what the proof of the printed one means. "advanced": solved from Dwork, Rothblum &
    Vadhan, FOCS 2010. "pure zcdp": as if only epsilon-DP were known.
    """
    log = math.log(1 / delta)
    rho = zcdp_rho(epsilon, delta)
    low, high = 0.0, epsilon
    for _ in range(200):
        middle = (low + high) / 2
        spent = middle * math.sqrt(2 * changed * log) + changed * middle * math.expm1(middle)
        low, high = (middle, high) if spent <= epsilon else (low, middle)
    return {
        "printed": printed_dense(epsilon, delta, changed),
        "proof": epsilon / (4 * math.sqrt(changed * log)),
        "advanced": low,
        "pure zcdp": math.sqrt(2 * rho / changed),
        "bounded range": epsilon_per_symbol(epsilon, delta, rho, changed),
    }


def test_five_ways_to_split_a_budget_over_a_hundred_symbols() -> None:
    table = composition_table(1.0, 1e-6, 100)
    assert {name: round(x, 5) for name, x in table.items()} == {
        "printed": 0.00181,
        "proof": 0.00673,
        "advanced": 0.01838,
        "pure zcdp": 0.02207,
        "bounded range": 0.04414,
    }
    # what they spend in all, of a nominal 1
    spent = {name: spent_by((selection_cost(x, 100),), 1e-6) for name, x in table.items()}
    assert spent["printed"] == pytest.approx(0.033, abs=5e-4)
    assert spent["proof"] == pytest.approx(0.135, abs=5e-4)
    assert spent["bounded range"] == pytest.approx(1.0, rel=1e-6)
    assert table["bounded range"] / table["printed"] == pytest.approx(24, abs=0.5)


def test_few_symbols_are_paid_for_by_basic_composition() -> None:
    assert epsilon_per_symbol(1.0, 1e-6, RHO, 5) == 0.2
    assert epsilon_per_symbol(1.0, 1e-6, RHO, 6) == math.sqrt(8 * RHO / 6) > 1 / 6
    assert epsilon_per_symbol(1.0, 0.0, math.nan, 10) == 0.1
    assert math.isinf(epsilon_per_symbol(math.inf, 1e-6, math.inf, 10))
    for q in (1, 4, 5, 6, 100):
        one = epsilon_per_symbol(1.0, 1e-6, RHO, q)
        assert spent_by((selection_cost(one, q),), 1e-6) == pytest.approx(1.0, rel=1e-6)


def test_algorithm_5_splits_twice() -> None:
    each, small = printed_sparse(1.0, 1e-6, 100, 10)
    assert small == pytest.approx(1 / (8 * math.sqrt(10 * math.log(1e6))))
    assert each == pytest.approx(small / (4 * 10 * math.log(1e6)))


@pytest.mark.parametrize("m", [1, 2, 30, 1000])
@pytest.mark.parametrize("p", [1e-4, 0.013, 0.3, 0.5, 0.97])
def test_the_slope_is_the_derivative_of_total_variation(m: int, p: float) -> None:
    x = 1e-7
    n = np.arange(m + 1)
    slope = 0.5 * np.abs(binom.pmf(n, m, p) - binom.pmf(n, m, p + x)).sum() / x
    assert ks_slope(np.array([p]), m)[0] == pytest.approx(slope, rel=2e-3)


def test_the_slope_far_from_the_ends_is_that_of_a_normal() -> None:
    p = 0.2
    normal = math.sqrt(1000 / (2 * math.pi * p * (1 - p)))
    assert ks_slope(np.array([p]), 1000)[0] == pytest.approx(normal, rel=0.01)
    assert ks_slope(np.array([0.0, 1.0]), 1000).tolist() == [1000.0, 1000.0]


def test_users_needed_solve_their_equation() -> None:
    for m, epsilon in [(300, 1.0), (1000, 0.01), (1, 0.2)]:
        s = users_needed(m, epsilon)
        x = s * epsilon
        assert x >= 2 * math.log(math.sqrt(m) * (x - epsilon)) + 6 - 1e-9
        assert x - epsilon <= 2 * math.log(math.sqrt(m) * x) + 6
    assert users_needed(300, math.inf) == 1.0


def test_errors_behave_at_the_ends() -> None:
    p = np.array([0.0, 1e-4, 0.3, 1.0])
    for error in (ks_error, phs_error):
        without, some = error(p, 50, 10_000, math.inf, True), error(p, 50, 10_000, 0.1, True)
        assert (some > without).all()
        assert (error(p, 50, 10_000, 0.01, True) > some).all()
        assert (error(p, 50, 3, 1e-9, True) <= 0.51).all()  # nothing is further off than chance
    assert ks_error(p, 50, 10_000, 0.1, False)[2] > ks_error(p, 50, 10_000, 0.1, True)[2]
    assert (phs_error(p, 50, 10_000, 0.1, False) > ks_error(p, 50, 10_000, 0.1, False)).all()
