"""Experiments on learning distributions and means: quick runs, and the parts they are made of."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_requests import result_of, small

from fedhist.users.keys import Keys
from server.distributions.distribution import MECHANISMS
from simulations.experiments import binomial_distance as binomial
from simulations.experiments import few_users_error as few
from simulations.experiments import user_complexity as complexity
from simulations.experiments.experiment import Findings, experiment

# -- Figure 1 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "p", "q"), [(1, 0.3, 0.45), (7, 0.01, 0.011), (20, 0.9, 0.2)])
def test_distances_are_sums_of_probabilities(m: int, p: float, q: float) -> None:
    """Against integer binomial coefficients."""
    laws = [[math.comb(m, x) * a**x * (1 - a) ** (m - x) for x in range(m + 1)] for a in (p, q)]
    slow = math.fsum(abs(a - b) for a, b in zip(*laws, strict=True))
    assert binomial.l1_distance(m, p, q) == pytest.approx(slow, rel=1e-12)


def test_figure_1_bends_as_the_paper_says() -> None:
    """Slope near 1 for small m, 1/2 for large m, though the quick grid is coarse."""
    ours = {(c.setting, c.quantity): c.ours for c in result_of("binomial-distance").checks}
    assert ours[binomial.SMALL, "log-log slope"] == pytest.approx(0.93, abs=0.01)
    assert ours[binomial.LARGE, "log-log slope"] == pytest.approx(0.5, abs=0.01)


# -- users needed --------------------------------------------------------------------------------


def regime(k: int = 6, alpha: float = 0.05) -> complexity.Regime:
    """A small regime at (1, 1e-6)."""
    return complexity.Regime("test", Keys.of(f"{j}" for j in range(k)), alpha, 1.0, 1e-6)


@pytest.mark.parametrize("mechanism", ["laplace", "presence"])
def test_needed_is_the_least_number(mechanism: str) -> None:
    """One user fewer misses the target or the floor."""
    r, m = regime(), 5
    n = int(r.needed(mechanism, m))
    chosen = MECHANISMS[mechanism]

    def enough(n: int) -> bool:
        task = r.protocol(mechanism, m, n).task
        return chosen.error(task) <= r.alpha and n >= chosen.floor(task)

    assert enough(n)
    assert not enough(n - 1)


def test_needed_says_where_no_number_suffices() -> None:
    """Presence cannot tell a symbol that everybody has."""
    assert math.isinf(regime(k=2).needed("presence", 500))


def test_users_are_interpolated_to_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of 7 / n meets 0.05 at n = 140."""
    monkeypatch.setattr(complexity.Regime, "losses", lambda self, _, m, n, *__: np.full(2, 7 / n))
    assert complexity.measure(regime(), "laplace", 3, 200, 2, 0) == pytest.approx(140, rel=1e-6)


def test_crossings_are_the_last_ones() -> None:
    """Of noisy curves; NaN where there is none, or nothing was measured."""
    at, one = (1, 2, 4, 8), np.ones(4)
    assert complexity.crossing(at, np.array([2, 0.5, 2, 0.5]), one) == pytest.approx(math.sqrt(32))
    assert math.isnan(complexity.crossing(at, 2 * one, one))
    assert math.isnan(complexity.crossing(at, one / 2, one))
    assert math.isnan(complexity.crossing(at, np.full(4, np.nan), one))
    # a missing point is bridged
    bridged = complexity.crossing((1, 2, 4), np.array([4.0, np.nan, 0.25]), np.ones(3))
    assert bridged == pytest.approx(2.0)


# -- few users -----------------------------------------------------------------------------------


def task(**wishes: Any) -> few.Task:
    """The budget of the configuration."""
    return few.Task.of(Findings(small("few-users-error")).settings, **wishes)


def test_the_term_in_one_over_d_is_that_of_the_geometry() -> None:
    """Walk from mu in random directions until a share kappa of 4,000 users is farther than R.

    The released points' median then lies a share ln 2 / d below, their mean a share 1 / d. The
    formula is of order 1 / d: what is left at d = 1,000 is below 0.1 %.
    """
    d, n = 1000, 4000
    plan = task(method="ball").plan(100, d)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)) / math.sqrt(d)
    u = rng.normal(size=(20, d))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    radius = plan.part_radius
    # |v u - x|^2 <= R^2 up to the larger root; the kappa-th largest of the users' roots
    b, c = u @ x.T, (x**2).sum(axis=1) - radius**2
    roots = np.sort(b + np.sqrt(b**2 - c), axis=1)[:, ::-1]
    border = roots[:, math.ceil(plan.kappa * n) - 1].mean()
    assert few.finite_dimension(plan) == pytest.approx(border * (1 - 1 / d), rel=1e-3)
    assert plan.error == pytest.approx(0.5 * math.sqrt(d))


def test_corrupted_users_move_the_average_and_not_the_estimate() -> None:
    """30 % at 90 r: the average moves by 0.3 times 95 r, exactly up to r / sqrt(n) = 0.04 r."""
    found = Findings(small("few-users-error"))
    one = few.Task.of(found.settings, method="ball", kappa=0.51, lam=1.0, corrupted=0.3)
    errors = few.measure(found, one, 600, 64, far=90.0)
    assert errors.ordinary == pytest.approx(0.3 * 95, abs=0.2)
    assert errors.worst <= 1.1


def test_too_few_users_are_an_error_of_the_settings() -> None:
    """A point that is refused cannot be measured: it says how many users would do."""
    found = Findings(small("few-users-error"))
    with pytest.raises(ValueError, match=r"n = 20, d = 64: .*at least"):
        few.measure(found, few.Task.of(found.settings, method="ball"), 20, 64)


def test_runs_without_a_value_are_counted() -> None:
    """With a single round nearly every draw ends in a garbage bucket; no error is made up."""
    found = Findings(small("few-users-error", repeats=4))
    errors = few.measure(found, few.Task.of(found.settings, method="ball", n_rounds=1), 80, 64)
    assert errors.failed >= 3  # a value has probability below 2 %, two of four below 3e-3
    assert len(errors.measured) == 4 - errors.failed
    assert math.isnan(replace(errors, measured=np.zeros(0)).worst)


# -- the map -------------------------------------------------------------------------------------


def test_needed_agrees_with_a_linear_search() -> None:
    """At several dimensions and methods."""
    for d, method in ((4, "ball"), (16, "auto"), (4, "large-n")):
        asking = few.Task(1.0, 1e-6, 0.25, 1.0, {"method": method})
        slow = next(n for n in range(1, 2000) if asking.plan(n, d).feasible)
        assert asking.needed(d) == slow


def test_users_needed_hold_what_is_expected_of_them() -> None:
    """At full sizes, which the rows are named by; nothing is measured on users."""
    found = Findings(experiment("few-users-error").request())
    few._needed(found)
    claimed = [c for c in found.checks if c.claim]
    assert len(claimed) == 8
    assert [c.quantity for c in claimed if c.verdict == "FAIL"] == []


def test_theorems_have_their_regimes() -> None:
    """Outside of them there is no number."""
    assert math.isnan(few.lemma_9_users(0.001, 1e-5))
    assert math.isnan(few.lemma_9_users(1.0, 0.0))
    lemma, sharp = few.lemma_9_users(0.5, 1e-6), few.least_users_of_any(0.5, 1e-6)
    assert 2.5 * lemma < sharp < 3 * lemma
    assert few.least_users_of_any(1.0, 0.0) == math.inf
