"""Experiments on means and densities under local privacy."""

from __future__ import annotations

import math

import pytest

from simulations.experiments import rate_tables as tables


def test_rates_by_hand() -> None:
    """n = 1000, T = 10, epsilon = 1/2: n epsilon^2 = 250."""
    assert tables.rate_box(1000, 10, 0.5, 4) == pytest.approx(16 / 2500)
    assert tables.rate_box(10, 10, 0.5, 4) == 4 * math.exp(-2.5 / 4)  # the plateau
    assert tables.rate_ball(1000, 10, 0.5, 4) == pytest.approx(4 / 2500)
    assert tables.rate_ball(1, 1, 0.01, 4) == 4.0  # the squared diameter
    assert tables.rate_sparse(1000, 10, 0.5, 100, 3) == pytest.approx(0.3 * math.log(1.4))
    assert tables.rate_density(1000, 10, 0.5, 1.0) == pytest.approx(2500**-0.5)
    assert tables.rate_density(1000, 10**9, 0.5, 1.0) == pytest.approx(250.0**-2)
