"""The curve of quantiles: sensitivities on tiny populations, exactness, and predicted errors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from clients.quantiles.queries import OF, PER_USER
from fedhist.protocols import Quantiles
from server.quantiles.quantiles import ADJACENCIES, ExponentialLevels, NoisyCurve
from tests.server.quantiles.test_quantiles import neighbours, one_each

LEVELS = tuple((np.arange(9) + 1) / 10)


def protocol(**more: Any) -> Quantiles:
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "levels": LEVELS, "kind": "tree"}
    return Quantiles(**(given | {"low": 0.0, "high": 1.0, "n_users": 10**6} | more))


class Watching:
    """A Curator that keeps what is asked of it, and adds nothing."""

    def __init__(self, grade: str = "secure") -> None:
        self.grade, self.released = grade, np.zeros(0)

    def _keep(self, value: fh.Array, **how: Any) -> fh.Array:
        self.released, self.how = np.asarray(value).copy(), how
        return self.released

    discrete_laplace = _keep


def released(curve: NoisyCurve, shares: fh.Array) -> Watching:
    server = Watching()
    curve.draw(shares, server)
    return server


@pytest.mark.parametrize("of", OF)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_neighbours_of_tiny_populations_differ_by_more(of: str, adjacency: str) -> None:
    """All pairs of neighbouring sums of up to four users on three bins; the bound is attained."""
    curve = NoisyCurve(1.0, np.array(LEVELS), 3, fh.Adjacency(adjacency))
    most, known = 0.0, dict[bytes, fh.Array]()
    for a, b in neighbours(of, adjacency):
        for shares in (a, b):
            if shares.tobytes() not in known:
                server = released(curve, shares)
                assert server.released.dtype == np.int64
                known[shares.tobytes()] = server.released
        step = (known[a.tobytes()] - known[b.tobytes()]).astype(float)
        most = max(most, float(np.linalg.norm(step, ord=1)))
    declared = server.how["l1_sensitivity"]
    assert most <= declared * (1 + 1e-12)
    assert most == pytest.approx(declared)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_noise_on_the_curve_is_as_planned(adjacency: str) -> None:
    """Standard deviation of the last running sum over 4,000 draws; false alarm below 1e-6."""
    curve = NoisyCurve(0.7, np.array(LEVELS), 64, fh.Adjacency(adjacency))
    server, rng = Watching("simulated"), np.random.default_rng(1)

    def noisy(value: fh.Array, **how: Any) -> fh.Array:
        return np.asarray(value + rng.laplace(0, how["l1_sensitivity"] / 0.7, len(value)))

    server.discrete_laplace = noisy
    none: Any = np.zeros(64, dtype=np.int64)
    ends = [curve.released(none, server)[-1] / PER_USER for _ in range(4000)]
    assert float(np.std(ends)) == pytest.approx(curve.end_std, rel=0.07)


def test_too_few_users_and_tiny_budgets_are_refused() -> None:
    ours = protocol(n_users=40)
    assert fh.run(ours, one_each([0.5]), seed=1).status == "refused"
    for delta in (0.0, 1e-6):
        tiny = replace(ours, epsilon=1e-9, delta=delta)
        assert fh.run(tiny, one_each([0.5]), seed=1).status == "refused"


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_few_levels_are_drawn_and_many_read_off_a_curve(delta: float) -> None:
    for J, made in ((4, ExponentialLevels), (5, NoisyCurve)):
        levels = tuple(np.arange(1, J + 1) / (J + 1))
        ours = protocol(kind="auto", n_users=2000, levels=levels, delta=delta)
        assert isinstance(ours.mechanism, made)
