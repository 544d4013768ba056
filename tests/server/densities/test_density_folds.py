"""Densities under local privacy, by folds and by centred reports."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from clients.densities.queries import BinReports
from fedhist.base.arrays import Floats
from fedhist.users.batch import Users
from server.densities.density import Density
from simulations.populations.density_samples import DensitySamples
from tests.running import drawn as run
from tests.running import one_each, streams


def sample(n: int, T: Any, density: Any, seed: int = 1) -> tuple[fh.Users, fh.Floats]:
    """Users, and the density itself on the grid."""
    spec = DensitySamples(n_users=n, samples_per_user=T, density=density, seed=seed)
    return spec.load().users, spec.at_middles()


def folds(*args: Any, **how: Any) -> Density:
    """Build the procedure by folds, on the Fourier basis."""
    return Density(*args, **({"basis": "fourier", "method": "folds"} | how))


def phi(j: int, x: fh.Floats) -> fh.Floats:
    if j == 1:
        return np.ones_like(x)
    return math.sqrt(2) * (np.sin if j % 2 else np.cos)(2 * math.pi * (j // 2) * x)


def test_a_function_comes_out() -> None:
    users, _ = sample(4000, 100, "one-bump")
    estimate, _, _ = run(folds(2.0, 4000, 100), users)
    f = fh.density_of(estimate)
    assert f([0.0, 0.4, 1.0]).tolist() == estimate.value[[0, int(0.4 * 1024), -1]].tolist()
    assert f([-0.01, 1.01, math.nan]).tolist() == [0, 0, 0]
    x = np.linspace(0.0, 1.0, 4097)
    assert f(x[:-1]).mean() == pytest.approx(1)
    # one-bump holds 91 percent of its mass here; the ISE of 0.01 allows an error of 0.07
    assert (f(x) * ((x > 0.15) & (x < 0.65))).mean() == pytest.approx(0.924, abs=0.07)
    with pytest.raises(ValueError, match="refused"):
        fh.density_of(fh.Estimate.refused("no"))


def test_truth_by_hand() -> None:
    """Averages of the users' own means; the unusable ones are left out, the others clipped."""
    records: dict[str, list[float]] = {
        "a": [0.1, 0.4],
        "b": [0.9],
        "empty": [],
        "broken": [0.3, math.nan],
        "outside": [-3.0, 1e300, 0.25],
        "infinite": [math.inf, 0.5],
    }
    users = fh.Users.from_records(records, unusable=True)
    protocol = folds(1.0, 6, 2, level=3, grid=16, truth_level=5)
    clipped = [[0.1, 0.4], [0.9], [0.0, 1.0, 0.25], [1.0, 0.5]]
    x = (np.arange(16) + 0.5) / 16
    theta = [np.mean([np.mean(phi(j, np.array(u))) for u in clipped]) for j in range(1, 6)]
    slow = sum(t * phi(j, x) for j, t in enumerate(theta, start=1))
    assert protocol.truth(users) == pytest.approx(slow)
    higher = dataclasses.replace(protocol, level=7)
    assert np.mean(higher.truth(users) * phi(7, x)) != pytest.approx(0)
    with pytest.raises(fh.PopulationError, match="usable"):
        protocol.truth(fh.Users.from_records({"a": [math.nan], "b": []}, unusable=True))
    with pytest.raises(fh.PopulationError, match="dimension"):
        protocol.truth(fh.Users.from_samples([1], [0, 1], np.zeros((1, 2)), unusable=True))


def test_scale_and_level() -> None:
    protocol = folds(1.0, 20_000, 100)
    assert protocol.scale == pytest.approx(1 / math.sqrt(200))
    wide = dataclasses.replace(protocol, mean_scale=1.0)
    assert wide.plan.n_bins == 1
    assert 1 < wide.terms < protocol.terms
    assert dataclasses.replace(protocol, smoothness=3.0, radius=100.0).terms < 15
    assert dataclasses.replace(protocol, mode="paper").terms == 20  # 10,000 log: 2e4 / (100 * 9.9)
    assert dataclasses.replace(protocol, level=6).terms == 6
    assert dataclasses.replace(protocol, epsilon=math.inf).terms > protocol.terms


def average_of(n: int, T: Any, seed: int = 1, **how: Any) -> tuple[Users, Floats]:
    """Users, and the average density of theirs on the grid."""
    given = {"density": "beta", "beta": (2.0, 5.0), **how}
    spec = DensitySamples(n_users=n, samples_per_user=T, seed=seed, **given)
    return spec.load().users, spec.on_grid(1024)


@pytest.mark.parametrize("given", [{"level": 1}, {"n_users": 20, "epsilon": 0.1}])
def test_the_uniform_density_costs_nothing(given: dict[str, Any]) -> None:
    users, _ = average_of(300, 10)
    protocol = Density(**({"epsilon": 0.5, "n_users": 300, "samples_per_user": 10} | given))
    estimate, queries, _ = run(protocol, users)
    assert (protocol.terms, protocol.max_rounds, queries) == (1, 0, [])
    assert estimate.value.tolist() == [1.0] * 1024
    assert protocol.error(users).stderr == pytest.approx(0, abs=1e-12)


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
    """Where the radius stays large a bin says more than the vector; this is learned."""
    way = {"users": "dirichlet", "concentration": 1.0}
    users, _ = average_of(4000, 300, **way)
    queries = run(Density(4.0, 4000, 300), users)[1]
    assert sum(isinstance(q, BinReports) for q in queries) >= 2
    alike, _ = average_of(4000, 300)
    assert [type(q) for q in run(Density(4.0, 4000, 300), alike)[1]].count(BinReports) == 1


def test_a_prediction_where_rounding_leaves_no_variance() -> None:
    users, _ = average_of(300, 1)
    assert math.isfinite(Density(30.0, 300, 1).error(users).expected)


def test_bins_without_noise() -> None:
    """Ends of the range count; samples outside are clipped, unusable records say so."""
    records = [[0.0], [0.249], [0.25], [1.0], [7.0], [-3.0], [], [0.3, math.nan], [math.inf]]
    users = one_each(*records)
    query = BinReports(4, math.inf)
    summary = query.fold(query.answer(users, streams(users)))
    assert query.masses(summary) * 9 == pytest.approx([3, 1, 0, 3])
    drawn = query.draw_summary(users, np.random.default_rng(0))
    assert query.masses(drawn) == pytest.approx(query.masses(summary))
