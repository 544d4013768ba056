from __future__ import annotations

import math

import numpy as np
import pytest

from fedhist.channels.catalogue import scalar_channel
from fedhist.channels.sphere import SphereChannel
from fedhist.protocols.shared.noninteractive_error import (
    fold_mse,
    naive_mse,
    oracle_stderr,
    scalar_noise,
    sphere_length,
    sphere_mse,
)


@pytest.mark.parametrize("kind", ["laplace", "onebit", "piecewise"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("u", [0.0, 0.5, -1.0])
def test_closed_forms_and_channels(kind: str, epsilon: float, u: float) -> None:
    """The channels' variances differ by the lattice only: less than 1 percent."""
    found = float(scalar_channel(kind, epsilon).variance(u))
    assert scalar_noise(kind, epsilon, u) == pytest.approx(found, rel=0.01)


def test_spec_table() -> None:
    """Variance over squared width at epsilon = 1 and 4, as the specification has them."""
    for epsilon, expected in ((1.0, (2.0, 1.17, 1.02)), (4.0, (0.125, 0.27, 0.031))):
        at = (("laplace", 0.0), ("onebit", 0.0), ("piecewise", 0.5))
        found = [scalar_noise(kind, epsilon, u) / 4 for kind, u in at]
        assert found == pytest.approx(expected, rel=0.02)
    assert scalar_noise("piecewise", math.inf) == scalar_noise("laplace", math.inf) == 0.0
    with pytest.raises(ValueError, match="got 'gauss'"):
        scalar_noise("gauss", 1.0)


def test_sphere_length() -> None:
    for d in (1, 2, 3, 17, 200):
        found = SphereChannel(d, 1.0, 0.7).length
        assert sphere_length(d, 0.7) == pytest.approx(found, rel=1e-11)
    assert sphere_length(1, 1.0) == pytest.approx(1 / math.tanh(0.5))
    large = math.sqrt(math.pi * 1000 / 2) / math.tanh(0.5)
    assert sphere_length(1000, 1.0) == pytest.approx(large, rel=1e-3)
    mse = naive_mse(geometry="l2", kind="", epsilon=1.0, dimension=3, scale=2.0, n_reports=10)
    assert mse == pytest.approx(4 * sphere_length(3, 1.0) ** 2 / 10)


def test_fold_mse_by_hand() -> None:
    """Two reports of coordinate 0, one of coordinate 2, none of coordinate 1."""
    found = fold_mse(
        np.array([2, 0, 1]),
        np.array([1.0 + 2.0, 0.0, 5.0]),
        np.array([0.5 + 0.1, 0.0, 0.2]),
        np.array([1.0, 1.0, 5.0]),
        empty=3.0,
    )
    assert found == pytest.approx((0.5 + 0.1) / 4 + 0.2 + 0.5**2 + 2.0**2)


def test_sphere_mse_by_enumeration() -> None:
    """In one dimension a report is +-B with mean x: enumerate the four outcomes of two users."""
    x, B = np.array([0.3, -0.8]), 2.5
    mse = 0.0
    for a in (-1, 1):
        for b in (-1, 1):
            p = (1 + a * x[0] / B) / 2 * (1 + b * x[1] / B) / 2
            mse += p * (B * (a + b) / 2 - 0.1) ** 2
    found = sphere_mse(2, x.sum(keepdims=True), float(x @ x), B, np.array([0.1]))
    assert found == pytest.approx(mse)


def test_stderr_of_shares() -> None:
    """Shares outside [0, 1] count as its ends."""
    found = oracle_stderr((0.5, 2.0), 100, [-0.2, 0.0, 0.5, 1.0, 1.4])
    expected = np.sqrt(np.array([0.5, 0.5, 1.25, 1.5, 1.5]) / 100)
    assert found == pytest.approx(expected)
