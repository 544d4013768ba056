"""The arithmetic of privacy against published figures, its own inverses and dp_accounting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent, get_sigma_gaussian, rdp
from scipy.special import ndtr

from fedhist.privacy.guarantee import (
    EXACT,
    Adjacency,
    Guarantee,
    Release,
    Trust,
    bounded_range,
    chance_of_telling,
    check_budget,
    gaussian_multiplier,
    pure,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)


def test_figures_of_the_specification() -> None:
    assert zcdp_rho(1, 1e-6) == pytest.approx(0.024356, abs=5e-7)
    assert zcdp_rho(0.5, 1e-6) == pytest.approx(0.0066415, abs=5e-8)
    assert zcdp_rho(2, 1e-6) == pytest.approx(0.088153, abs=5e-7)
    assert gaussian_multiplier(1, 1 / 1.2e6) == pytest.approx(4.262, abs=5e-4)
    assert gaussian_multiplier(0.1, 1 / 1.2e6) == pytest.approx(36.72, abs=5e-3)


GRID = [(e, d) for e in (1e-7, 0.01, 0.5, 1, 3, 20) for d in (1e-12, 1e-6, 1e-3, 0.3, 0.9)]


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_zcdp_conversions_are_inverse(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert rho > 0
    assert zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-6)
    if rho > 1e-13:
        assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-10)


def test_ends() -> None:
    assert zcdp_delta(0.0, 1.0) == 0.0
    assert zcdp_epsilon(0.0, 1e-6) == 0.0
    assert math.isinf(zcdp_epsilon(1.0, 0.0))
    assert math.isinf(zcdp_epsilon(math.inf, 1e-6))
    assert math.isinf(zcdp_rho(math.inf, 1e-6))
    assert gaussian_multiplier(math.inf, 1e-6) == 0.0
    for f in (zcdp_rho, gaussian_multiplier):
        with pytest.raises(ValueError, match="delta > 0"):
            f(1.0, 0.0)


@pytest.mark.parametrize("rounds", [1, 10, 100])
@pytest.mark.parametrize("sigma", [1.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_zcdp_equals_dp_accounting(rounds: int, sigma: float, delta: float) -> None:
    """Composed Gaussians through RDP with a fine grid of orders: never below ours by more."""
    orders = list(1 + np.exp(np.linspace(-5, 7, 600)))
    accountant = rdp.RdpAccountant(orders)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(sigma), rounds))
    ours = zcdp_epsilon(rounds / (2 * sigma**2), delta)
    assert ours == pytest.approx(accountant.get_epsilon(delta), rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_gaussian_multiplier_is_that_of_dp_accounting(epsilon: float, delta: float) -> None:
    """To the last bit: seeded noise hangs on it."""
    assert gaussian_multiplier(epsilon, delta) == get_sigma_gaussian(epsilon, delta)


def test_pure_and_bounded_range_in_zcdp() -> None:
    """The Renyi divergence of randomized response is at most alpha eps^2 / 2; tight for small."""
    for epsilon in (0.01, 0.5, 2.0, 6.0):
        p = 1 / (1 + math.exp(-epsilon))
        for alpha in (1.01, 2.0, 8.0, 50.0):
            total = p**alpha * (1 - p) ** (1 - alpha) + (1 - p) ** alpha * p ** (1 - alpha)
            assert math.log(total) / (alpha - 1) <= alpha * pure(epsilon).rho * (1 + 1e-12)
    assert pure(0.5) == Release(0.5, 0.0, 0.125)
    assert bounded_range(0.5) == Release(0.5, 0.0, 0.03125)
    assert Release(0.0, 0.0, 0.0) == EXACT


def test_bounded_range_law_of_the_exponential_mechanism() -> None:
    """Exactly, over scores that a user moves by at most 1: eps-DP and eps^2/8-zCDP."""
    epsilon, rng = 1.3, np.random.default_rng(2)
    worst = 0.0
    for _ in range(300):
        s = rng.integers(0, 6, 5).astype(float)
        t = s + rng.integers(-1, 2, 5)
        p, q = (np.exp(epsilon * x / 2) / np.exp(epsilon * x / 2).sum() for x in (s, t))
        worst = max(worst, np.abs(np.log(p / q)).max())
        for alpha in (1.5, 3.0, 20.0):
            renyi = math.log(np.sum(p**alpha * q ** (1 - alpha))) / (alpha - 1)
            assert renyi <= alpha * bounded_range(epsilon).rho * (1 + 1e-12)
    assert 0.5 * epsilon < worst <= epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-7, 1e-300), (1e6, 1 - 1e-9)])
def test_budgets_beyond_doubles_are_refused_by_name(epsilon: float, delta: float) -> None:
    """No trace of a root finder: a value, or an error that names the budget."""
    for calibrate in (gaussian_multiplier, zcdp_rho):
        why = ""
        try:
            result = calibrate(epsilon, delta)
        except ValueError as e:
            result, why = 0.0, str(e)
        assert result > 0 or "no noise can be calibrated" in why


def test_an_epsilon_that_protects_nobody_breaks_nothing() -> None:
    """A rho whose minima are lost in rounding; the bound of Bun and Steinke holds."""
    rho = 1e9**2 / 2
    assert rho < zcdp_epsilon(rho, 1e-6) <= rho * (1 + 1e-4)
    assert zcdp_epsilon(0.999e12, 1e-6) <= zcdp_epsilon(1.001e12, 1e-6)
    assert gaussian_multiplier(1e9, 1e-6) > 0


def test_units_and_adjacencies_go_together() -> None:
    g = Guarantee(1.5, 1e-6, Trust.CENTRAL, Adjacency.ZERO_OUT_USER)
    assert str(g) == "(1.5, 1e-06)-DP per user, central trust, zero-out-user"
    assert "NOT PRIVATE" in str(Guarantee(math.inf, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER))
    for unit, adjacency in (
        ("group", Adjacency.REPLACE_USER),
        ("item", Adjacency.REPLACE_USER),
        ("user", Adjacency.REPLACE_ITEM),
    ):
        with pytest.raises(ValueError, match=unit):
            Guarantee(1.0, 0.0, Trust.LOCAL, adjacency, unit=unit)


def test_bad_budgets() -> None:
    for epsilon, delta in ((0, 0.0), (math.nan, 0.0), (1.0, -1e-9), (1.0, 1.0), (1.0, math.nan)):
        with pytest.raises(ValueError, match=f"got {delta if epsilon == 1.0 else epsilon}"):
            check_budget(epsilon, delta)
    with pytest.raises(ValueError, match="got 0"):
        Guarantee(0, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)
    for field in ("epsilon", "delta", "rho", "slack"):
        for bad in (-1.0, math.nan):
            with pytest.raises(ValueError, match="less than nothing"):
                Release(**({"epsilon": 1.0} | {field: bad}))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 0.0), (3.0, 1e-3), (0.5, 0.2)])
def test_the_worst_pair_is_told_apart_as_often_as_is_said(epsilon: float, delta: float) -> None:
    """Randomized response that shows the record with probability delta attains the bound."""
    keep = (1 - delta) / (1 + math.exp(-epsilon))
    law = np.array([delta, keep, 1 - delta - keep, 0.0])
    chance = np.maximum(law, law[::-1]).sum() / 2
    assert chance_of_telling(Release(epsilon, delta)) == pytest.approx(chance, rel=1e-14)
    expected = (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1)
    assert chance == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("mu", [0.01, 0.1, 0.5, 1.0, 2.0, 4.0])
def test_a_gaussian_is_told_apart_less_often_than_its_zcdp_says(mu: float) -> None:
    """Phi(mu / 2) is exact; from rho alone follows up to 5% more, for large mu up to 15%."""
    exact = float(ndtr(mu / 2))
    rho = Release(math.inf, 1.0, mu * mu / 2)
    assert exact < chance_of_telling(rho) < (1.05 if mu < 1 else 1.15) * exact
    assert chance_of_telling(Release(math.inf, 1.0, mu * mu / 2, 0.1)) > exact + 0.1 * (1 - exact)


def test_nothing_is_told_by_nothing_and_all_by_all() -> None:
    assert chance_of_telling(EXACT) == 0.5
    assert chance_of_telling(Release(math.inf)) == chance_of_telling(Release(1.0, 2.0)) == 1.0
