"""Users without data draw no estimate: what a fifth of them make of its bias.

Each protocol's runs on 20,000 users of whom every fifth has no data. The mean
of the runs lies within six of its standard errors of the truth, coordinate by coordinate, and
within 3e-4 for what rounding and projections do. Fixed seeds; under fresh ones a correct protocol
fails once in some 10,000 tests.
"""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from fedhist import protocols as fp
from fedhist.model.evaluation import measured
from simulations.runs.options import Options
from simulations.runs.results import _diagnostics
from simulations.runs.run import execute
from tests.running import sampled, table_users

N, T, RUNS = 20_000, 20, 20
EMPTY = (np.arange(N) % 5 == 0).astype(int)
DOMAIN = fh.Keys.of(["a", "b", "c", "d"])


def items() -> fh.Users:
    """Users of T items each, whose shares differ from even ones."""
    counts = np.random.default_rng(3).multinomial(T, [0.7, 0.2, 0.1, 0.0], N)
    counts[EMPTY > 0] = 0
    return table_users(counts, DOMAIN)


def biases(protocol: fh.Protocol, users: fh.Users) -> tuple[np.ndarray, np.ndarray]:
    """Mean error of RUNS runs, and its standard error."""
    truth, result = protocol.truth(users), []
    for seed in range(RUNS):
        estimate = execute(protocol, users, Options(seed=seed, clients="aggregate")).estimate
        assert estimate.value is not None
        result.append(estimate.value - truth)
    return np.mean(result, axis=0), np.std(result, axis=0, ddof=1) / math.sqrt(RUNS)


def reals(d: int) -> fh.Users:
    """Users of T samples each, all around .6."""
    sizes = np.where(EMPTY, 0, T)
    x = 0.6 + 0.2 * np.random.default_rng(3).standard_normal((sizes.sum(), d))
    return sampled(sizes, np.clip(x, -1, 1))


RANGE: dict[str, Any] = {"n_users": N, "low": -1.0, "high": 1.0}
SHARES: dict[str, Any] = {"samples_per_user": T, "n_users": N}
PLAIN: dict[str, Any] = {"shrink": False, "project": False, "level": 5, "truth_level": 5}
STILL = [
    fp.FrequencyOracle(4.0, DOMAIN, project=True),
    fp.LocalDistribution(DOMAIN, 4.0, N, 1, project=False),
    fp.Distribution(DOMAIN, 4.0, delta=1e-6, **SHARES),
    fp.Distribution(DOMAIN, 4.0, mechanism="laplace", **SHARES),
    fp.Distribution(DOMAIN, 4.0, mechanism="one-item", **SHARES),
    fp.BoxMean(epsilon=1.0, dimension=3, **RANGE),
    fp.BoxMean(epsilon=1.0, delta=0.0, **RANGE),
    fp.CentralMean(epsilon=1.0, **RANGE),
    fp.CentralMean(epsilon=4.0, dimension=3, **RANGE),
    fp.CentralDensity(1.0, N, T, delta=1e-6, grid=16, **PLAIN),
]
DRAWN = [
    fp.NaiveMean(4.0, **RANGE),
    fp.Mean(4.0, samples_per_user=T, users="same", **RANGE),
    fp.MeanLinf(4.0, dimension=3, samples_per_user=T, **RANGE),
    fp.BoxMean(epsilon=4.0, adjacency="zero-out-user", **RANGE),
    fp.FewUsersDistribution(epsilon=2.0, domain=DOMAIN, **SHARES),
    fp.LocalDistribution(DOMAIN, 4.0, method="folds", **SHARES),
]


def users_of(protocol: fh.Protocol) -> fh.Users:
    return items() if hasattr(protocol, "domain") else reals(getattr(protocol, "dimension", 1))


@pytest.mark.parametrize("protocol", STILL, ids=lambda p: p.name)
def test_empty_users_draw_no_estimate(protocol: fh.Protocol) -> None:
    off, stderr = biases(protocol, users_of(protocol))
    assert (np.abs(off) <= 6 * stderr + 3e-4).all()
    assert not protocol.empty_record


@pytest.mark.parametrize("protocol", DRAWN, ids=lambda p: p.name)
def test_what_draws_an_estimate_is_said(protocol: fh.Protocol) -> None:
    """Means towards 0, from .6, the largest share from .7; a run tells how many users do so."""
    users = users_of(protocol)
    off, stderr = biases(protocol, users)
    assert (off < -6 * stderr)[: 1 if hasattr(protocol, "domain") else None].all()
    prepared = SimpleNamespace(protocol=protocol, known=measured(protocol, users))
    (note,) = _diagnostics(SimpleNamespace(prepared=prepared))
    assert "4,000" in note
    assert f"each counted as {protocol.empty_record}" in note
