"""Densities by folds under local privacy, against the density that samples were drawn from."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from server.densities.density import Density
from simulations.populations.density_samples import DensitySamples
from tests.running import drawn as run


def sample(n: int, T: Any, density: Any, seed: int = 1) -> tuple[fh.Users, fh.Floats]:
    """Users, and the density itself on the grid."""
    spec = DensitySamples(n_users=n, samples_per_user=T, density=density, seed=seed)
    return spec.load().users, spec.exact.on_grid()


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
