"""Curves over bins: trees of counts and inversion against slow versions."""

from typing import Any

import numpy as np
import pytest

from clients.quantiles.queries import PER_USER
from fedhist.privacy.guarantee import Adjacency
from server.quantiles.quantiles import NoisyCurve, fitted_bins, quantile_bins
from tests.running import Recorder


@pytest.mark.parametrize("widths", [(1,), (4, 1), (8, 4, 1), (16, 2, 1)])
@pytest.mark.parametrize("n_bins", [5, 16, 31])
def test_a_tree_is_fitted_by_least_squares(widths: tuple[int, ...], n_bins: int) -> None:
    rng = np.random.default_rng(n_bins)
    nodes = [rng.normal(size=-(-n_bins // w)) for w in widths]
    design = np.vstack([
        np.equal.outer(np.arange(len(y)), np.arange(n_bins) // w)
        for y, w in zip(nodes, widths, strict=True)
    ])  # fmt: skip
    slow = np.linalg.lstsq(design, np.concatenate(nodes), rcond=None)[0]
    assert fitted_bins(nodes, widths) == pytest.approx(slow)


def test_inversion_is_that_of_a_slow_search() -> None:
    rng = np.random.default_rng(4)
    levels = np.array([0.1, 0.5, 0.8])
    for _ in range(50):
        curve = np.cumsum(rng.random(12)) + rng.normal(0, 0.5, 12)
        fit = [  # the min-max formula of isotonic regression
            max(min(float(np.mean(curve[i : j + 1])) for j in range(k, 12)) for i in range(k + 1))
            for k in range(12)
        ]
        slow = [next(j for j in range(12) if fit[j] >= q * fit[-1] - 1e-9) for q in levels]
        assert quantile_bins(curve, levels).tolist() == slow


def test_a_curve_that_says_nothing_has_quantiles() -> None:
    assert quantile_bins(np.array([-3.0, -2.0, -1.0]), np.array([0.5])).tolist() == [2]
    assert quantile_bins(np.zeros(3), np.array([0.5, 0.9])).tolist() == [0, 0]


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER])
def test_a_curve_moves_under_each_adjacency_as_its_noise_is_sized(adjacency: Adjacency) -> None:
    """The ledger converts by ratios of moves; they are those of the sensitivities."""
    server: Any = Recorder()
    NoisyCurve(1.0, np.array([0.5]), 16, adjacency).released(np.full(16, PER_USER), server)
    ((_, _, way),) = server.calls
    moves = way["moves"]
    assert moves.under(Adjacency.ADD_REMOVE_USER) == pytest.approx(1.0)
    assert moves.under(Adjacency.ZERO_OUT_USER) == pytest.approx(1.0)
    assert moves.under(Adjacency.REPLACE_USER) == pytest.approx(2.0)
