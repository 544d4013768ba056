"""Samples of a density: the named ones by their definition, and the draws by their distribution.

A Kolmogorov-Smirnov distance over 1.95 / sqrt(n) has probability below 1e-3; the seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulations.populations import population
from simulations.populations.density_samples import BUMPS, DensitySamples


@pytest.mark.parametrize("density", ["uniform", *BUMPS, [0.4, -0.3, 0.0, 0.2]])
def test_draws_follow_the_density(density: str | list[float]) -> None:
    spec = population("density", n_users=400, samples_per_user=[10, 90], density=density, seed=3)
    assert isinstance(spec, DensitySamples)
    loaded = spec.load()
    sizes = loaded.users.n_items()
    assert 10 <= sizes.min() < 15 < 80 < sizes.max() <= 90
    x = np.sort(loaded.users.reals.values[:, 0])
    assert loaded.value_range == (0.0, 1.0)
    assert 0 <= x[0] < x[-1] <= 1
    at = x[:: len(x) // 200]
    below = np.interp(
        at, np.arange(4097) / 4096, np.append(0, np.cumsum(spec.exact.on_grid(4096))) / 4096
    )
    assert np.abs(np.searchsorted(x, at) / len(x) - below).max() < 1.95 / math.sqrt(len(x))
    assert spec.exact.on_grid().mean() == pytest.approx(1)
    assert spec.exact.on_grid().min() >= 0
