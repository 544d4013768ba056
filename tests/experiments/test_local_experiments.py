"""Experiments on sparse means, densities and distributions under local privacy; real data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulations.experiments import asked_users as asked
from simulations.experiments import density_error as density
from simulations.experiments import rate_tables as tables

# -- users whose records are drawn when they are asked -------------------------------------------


# -- sparse means ---------------------------------------------------------------------------------


# -- densities ------------------------------------------------------------------------------------


def test_the_rough_density_lies_on_the_edge_of_its_ellipsoid() -> None:
    """sum_j j^2 theta_j^2 = energy^2, theta_j^2 falls as j^-3; it is a density."""
    theta = density.rough(48, 1.45)
    j = np.arange(2, len(theta) + 1)
    assert float(np.square(j * theta[1:]).sum()) == pytest.approx(1.45**2)
    power = theta[1::2] ** 2 + theta[2::2] ** 2
    np.testing.assert_allclose(power[1:] / power[0], np.arange(2, 49) ** -3.0)
    assert asked.SeriesUsers(1, 1, theta).density.on_grid(4096).min() > 0


def test_rates_by_hand() -> None:
    """n = 1000, T = 10, epsilon = 1/2: n epsilon^2 = 250."""
    assert tables.rate_box(1000, 10, 0.5, 4) == pytest.approx(16 / 2500)
    assert tables.rate_box(10, 10, 0.5, 4) == 4 * math.exp(-2.5 / 4)  # the plateau
    assert tables.rate_ball(1000, 10, 0.5, 4) == pytest.approx(4 / 2500)
    assert tables.rate_ball(1, 1, 0.01, 4) == 4.0  # the squared diameter
    assert tables.rate_sparse(1000, 10, 0.5, 100, 3) == pytest.approx(0.3 * math.log(1.4))
    assert tables.rate_density(1000, 10, 0.5, 1.0) == pytest.approx(2500**-0.5)
    assert tables.rate_density(1000, 10**9, 0.5, 1.0) == pytest.approx(250.0**-2)
