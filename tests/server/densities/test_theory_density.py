"""Sensitivities of trigonometric means against points of the curve, and the level they lead to."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import ArrayLike

import fedhist as fh
from clients.densities.queries import curve_diameter, row_sensitivity
from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Adjacency, gaussian_multiplier
from fedhist.protocols import CentralDensity
from server.densities.plan import best_level, tail_energy

REPLACE, ZERO = Adjacency.REPLACE_USER, Adjacency.ZERO_OUT_USER


def points(x: ArrayLike, k: int) -> Floats:
    """The curve, one coordinate after the other: (m, 2 k)."""
    turns = 2 * math.pi * np.multiply.outer(np.asarray(x), np.arange(1, k + 1))
    return np.stack((np.cos(turns), np.sin(turns)), axis=-1).reshape(-1, 2 * k)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 24, 60])
def test_the_diameter_is_attained_and_never_passed(k: int) -> None:
    """Against all differences of parameters on a fine grid: from above, within 1e-6."""
    x = np.arange(1 << 16) / (1 << 17)
    result = np.linalg.norm(points(x, k) - points(0.0, k), axis=1).max()
    assert result <= curve_diameter(k) <= result * (1 + 1e-6)


def test_items_have_no_such_sensitivity() -> None:
    with pytest.raises(ValueError, match="replace-item"):
        row_sensitivity(3, 2, Adjacency.REPLACE_ITEM)


def variance(level: int, n: int, T: float, epsilon: float, delta: float) -> float:
    """Of J terms by hand: noise on sums, and which samples are drawn."""
    one = gaussian_multiplier(epsilon, delta) if delta else math.sqrt(2) / epsilon
    std = one * row_sensitivity(max(1, level // 2), 2 if delta else 1, REPLACE)
    return (level - 1) * (2 * std**2 / n**2 + 1 / (n * T))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_predicted_error_by_hand(delta: float) -> None:
    protocol = CentralDensity(0.5, 800, 20, delta, level=9, smoothness=1.5)
    users = CentralDensity.example_users()
    stated = fh.run(protocol, users, seed=1).public["predicted_ise"]
    expected = variance(9, 800, 20, 0.5, delta) + tail_energy(9, 1.5, 1.5)
    assert stated == pytest.approx(expected, rel=1e-5)  # sums are rounded to steps


@pytest.mark.parametrize(("n", "delta"), [(300, 0.0), (300, 1e-6), (20_000, 1e-6)])
def test_the_level_is_the_best_of_all(n: int, delta: float) -> None:
    def total(level: int) -> float:
        return variance(level, n, 30, 1.0, delta) + tail_energy(level, 1.5, 3.0)

    chosen = CentralDensity(1.0, n, 30, delta, smoothness=1.5, radius=3.0, grid=200)
    assert chosen.terms == min(range(1, 200, 2), key=total) > 1
    assert replace(chosen, grid=5, truth_level=3).terms == 3
    assert replace(chosen, discrete=True).terms == chosen.terms


def test_a_level_that_costs_too_much_ends_the_search() -> None:
    assert best_level(lambda level: math.inf, 1.0, 1.0, 99) == 1
    assert best_level(lambda level: 0.0, 1.0, 1.0, 99) == 99
