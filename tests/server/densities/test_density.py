"""Densities by centred reports under local privacy, against the density that samples are from.

Runs over many seeds draw the summaries from their exact law; one test here and the contract tests
go through every user's report.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clients.densities.queries import BinReports
from fedhist.base.arrays import Floats
from fedhist.users.batch import Users
from server.densities.density import Density
from server.densities.series import project_density, shrink_by_decay
from simulations.populations.density_samples import DensitySamples
from tests.running import drawn as run


def sample(n: int, T: Any, seed: int = 1, **how: Any) -> tuple[Users, Floats]:
    """Users, and the average density of theirs on the grid."""
    given = {"density": "beta", "beta": (2.0, 5.0), **how}
    spec = DensitySamples(n_users=n, samples_per_user=T, seed=seed, **given)
    return spec.load().users, spec.on_grid(1024)


# -- the script ------------------------------------------------------------------------------------


def test_the_value_is_made_of_the_bins() -> None:
    """One sample a user: coefficients of the bins' shares, shrunk and projected by hand."""
    users, _ = sample(9000, 1)
    protocol = Density(2.0, 9000, 1)
    estimate, (query,), (summary,) = run(protocol, users)
    assert query.cohort is None
    B, J = query.n_bins, protocol.terms - 1
    shares = query.masses(summary)
    middle, x = (np.arange(B) + 0.5) / B, (np.arange(1024) + 0.5) / 1024
    theta, spread = np.empty(J), np.empty(J)
    for j in range(1, J + 1):
        kept = math.sin(math.pi * j / (2 * B)) / (math.pi * j / (2 * B))
        theta[j - 1] = math.sqrt(2) * (np.cos(math.pi * j * middle) * shares).sum() / kept
        spread[j - 1] = 1 / kept
    stderr = spread * math.sqrt(protocol.series_plan.stages.risk / np.square(spread).sum())
    waves = np.stack([math.sqrt(2) * np.cos(math.pi * j * x) for j in range(1, J + 1)])
    series = 1 + shrink_by_decay(theta, stderr) @ waves
    assert estimate.value == pytest.approx(project_density(series), abs=1e-9)
    assert estimate.stderr == pytest.approx(np.sqrt(np.square(stderr) @ np.square(waves)))
    plain = run(replace(protocol, shrink=False, project=False), users)[0]
    assert plain.value == pytest.approx(1 + theta @ waves, abs=1e-9)


@pytest.mark.parametrize("given", [{"level": 1}, {"n_users": 20, "epsilon": 0.1}])
def test_the_uniform_density_costs_nothing(given: dict[str, Any]) -> None:
    users, _ = sample(300, 10)
    protocol = Density(**({"epsilon": 0.5, "n_users": 300, "samples_per_user": 10} | given))
    estimate, queries, _ = run(protocol, users)
    assert (protocol.terms, protocol.max_rounds, queries) == (1, 0, [])
    assert estimate.value.tolist() == [1.0] * 1024
    assert protocol.error(users).stderr == pytest.approx(0, abs=1e-12)


# -- its error -------------------------------------------------------------------------------------


def test_stderr_is_calibrated() -> None:
    """Of a density that the projection leaves alone, and within its level.

    A run's average of z^2 over the grid deviates by .7 or less, that of 24 runs by .15.
    """
    spec = DensitySamples(n_users=4000, samples_per_user=30, density="beta", beta=(1.0, 2.0))
    exact = spec.on_grid(1024)  # 2 - 2 x: theta_j = 0 for even j, and 4 sqrt(2) / (pi j)^2
    z2 = []
    for seed in range(24):
        users = replace(spec, seed=seed).load().users
        protocol = Density(3.0, 4000, 30, level=6, shrink=False, project=False)
        estimate = run(protocol, users, seed)[0]
        z2.append(np.mean(np.square((estimate.value - exact) / estimate.stderr)))
    assert 0.4 < np.mean(z2) < 1.8


# -- plan, records, parameters ---------------------------------------------------------------------


def test_the_plan_follows_the_public_numbers() -> None:
    plan = Density(1.0, 20_000, 100).series_plan
    few, one = Density(1.0, 2000, 100).series_plan, Density(1.0, 20_000, 1).series_plan
    assert few.n_coefficients < plan.n_coefficients
    assert one.n_coefficients < plan.n_coefficients
    assert (one.stages.n_stages, one.n_bins > one.n_coefficients) == (1, True)
    assert plan.stages.n_stages > 1
    wide = Density(1.0, 20_000, 100, mean_scale=1.0).series_plan
    assert wide.stages.sigma > plan.stages.sigma
    smooth = Density(1.0, 20_000, 100, smoothness=3.0).series_plan
    assert smooth.n_coefficients < plan.n_coefficients
    assert Density(1.0, 20_000, 100, basis="fourier").terms % 2 == 1
    assert Density(1.0, 20_000, 100, level=6).series_plan.n_coefficients == 5
    assert Density(1.0, 20_000, 100, grid=8, truth_level=5).terms < 8


def test_users_who_differ_are_asked_for_bins_again() -> None:
    """Where the radius stays large a bin says more than the vector; it is found out, not declared.

    One in two samples of a user is the same atom, so that 300 of them are worth two.
    """
    way = {"users": "dirichlet", "concentration": 1.0}
    users, _ = sample(4000, 300, **way)
    queries = run(Density(4.0, 4000, 300), users)[1]
    assert sum(isinstance(q, BinReports) for q in queries) >= 2
    alike, _ = sample(4000, 300)
    assert [type(q) for q in run(Density(4.0, 4000, 300), alike)[1]].count(BinReports) == 1


def test_a_prediction_where_rounding_leaves_no_variance() -> None:
    users, _ = sample(300, 1)
    assert math.isfinite(Density(30.0, 300, 1).error(users).expected)
