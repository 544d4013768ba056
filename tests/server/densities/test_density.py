"""Densities by centred reports under local privacy, against the density that samples are from."""

import math
from typing import Any

import numpy as np
import pytest

from clients.densities.queries import BinReports
from fedhist.base.arrays import Floats
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from server.densities.density import Density
from simulations.populations.density_samples import DensitySamples
from tests.running import drawn as run
from tests.running import streams


def sample(n: int, T: Any, seed: int = 1, **how: Any) -> tuple[Users, Floats]:
    """Users, and the average density of theirs on the grid."""
    given = {"density": "beta", "beta": (2.0, 5.0), **how}
    spec = DensitySamples(n_users=n, samples_per_user=T, seed=seed, **given)
    return spec.load().users, spec.on_grid(1024)


@pytest.mark.parametrize("given", [{"level": 1}, {"n_users": 20, "epsilon": 0.1}])
def test_the_uniform_density_costs_nothing(given: dict[str, Any]) -> None:
    users, _ = sample(300, 10)
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
    users, _ = sample(4000, 300, **way)
    queries = run(Density(4.0, 4000, 300), users)[1]
    assert sum(isinstance(q, BinReports) for q in queries) >= 2
    alike, _ = sample(4000, 300)
    assert [type(q) for q in run(Density(4.0, 4000, 300), alike)[1]].count(BinReports) == 1


def test_a_prediction_where_rounding_leaves_no_variance() -> None:
    users, _ = sample(300, 1)
    assert math.isfinite(Density(30.0, 300, 1).error(users).expected)


def test_bins_without_noise() -> None:
    """Ends of the range count; samples outside are clipped, unusable records say so."""
    records = [[0.0], [0.249], [0.25], [1.0], [7.0], [-3.0], [], [0.3, math.nan], [math.inf]]
    sizes = np.cumsum([0, *map(len, records)])
    values = np.array([x for r in records for x in r])
    users = Users.from_samples(user_ids(Keys.range(len(records))), sizes, values, unusable=True)
    query = BinReports(4, math.inf)
    summary = query.fold(query.answer(users, streams(users)))
    assert query.masses(summary) * 9 == pytest.approx([3, 1, 0, 3])
    drawn = query.draw_summary(users, np.random.default_rng(0))
    assert query.masses(drawn) == pytest.approx(query.masses(summary))
