"""Experiments on learning distributions and means: quick runs, and the parts they are made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from small_requests import result_of, small

from fedhist.users.keys import Keys
from server.distributions.distribution import MECHANISMS
from simulations.experiments import binomial_distance as binomial
from simulations.experiments import few_users_error as few
from simulations.experiments import user_complexity as complexity
from simulations.experiments.experiment import Findings

# -- Figure 1 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "p", "q"), [(1, 0.3, 0.45), (7, 0.01, 0.011), (20, 0.9, 0.2)])
def test_distances_are_sums_of_probabilities(m: int, p: float, q: float) -> None:
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
    r, m = regime(), 5
    n = int(r.needed(mechanism, m))
    chosen = MECHANISMS[mechanism]

    def enough(n: int) -> bool:
        task = r.protocol(mechanism, m, n).task
        return chosen.error(task) <= r.alpha and n >= chosen.floor(task)

    assert enough(n)
    assert not enough(n - 1)


# -- few users -----------------------------------------------------------------------------------


def task(**wishes: Any) -> few.Task:
    return few.Task.of(Findings(small("few-users-error")).settings, **wishes)


def test_the_term_in_one_over_d_is_that_of_the_geometry() -> None:
    """Walk from mu in random directions until a share kappa of 4,000 users is farther than R."""
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


# -- the map -------------------------------------------------------------------------------------
