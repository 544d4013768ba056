"""Roots and minima are those of SciPy, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.optimize

from fedhist.base.roots import bounded_minimum, brentq

CURVES: list[tuple[Callable[[float], float], float, float]] = [
    (lambda x: x * x - 2, 0.0, 2.0),
    (lambda x: 2 - x * x, 0.0, 2.0),
    (lambda x: math.cos(x) - x, 0.0, 1.5),
    (lambda x: x**3 - 1e-3, -1.0, 4.0),
    (lambda x: math.expm1(40 * x) - 1e-6, -1.0, 1.0),
    (lambda x: math.atan(1e4 * (x - 0.3)), -50.0, 60.0),
    (lambda x: math.copysign(1.0, x - 1 / 3), 0.0, 1.0),  # no slope anywhere
    (lambda x: max(x - 5, 0.0) - 1e-9, 0.0, 10.0),  # flat on one side
    (lambda x: x - 1, 1.0, 2.0),
    (lambda x: x - 2, 1.0, 2.0),
    (lambda x: 1e-300 * (x - 0.7), 0.0, 1.0),  # products underflow
]


@pytest.mark.parametrize(("f", "low", "high"), CURVES)
@pytest.mark.parametrize("xtol", [1e-14, 1e-12, 1e-3])
def test_to_the_last_bit(f: Callable[[float], float], low: float, high: float, xtol: float) -> None:
    rtol = 4 * np.finfo(float).eps
    assert brentq(f, low, high, xtol=xtol) == scipy.optimize.brentq(f, low, high, xtol=xtol)
    for r in (rtol, 1e-12, 1e-4):
        expected = scipy.optimize.brentq(f, low, high, xtol=xtol, rtol=r)
        assert brentq(f, low, high, xtol=xtol, rtol=r) == expected


def test_random_cubics() -> None:
    rng = np.random.default_rng(3)
    seen = 0
    for a, b, c, d in rng.normal(size=(400, 4)).tolist():

        def f(x: float, a: float = a, b: float = b, c: float = c, d: float = d) -> float:
            return ((a * x + b) * x + c) * x + d

        if f(-3.0) * f(2.0) < 0:
            seen += 1
            assert brentq(f, -3.0, 2.0, xtol=1e-12) == scipy.optimize.brentq(
                f, -3.0, 2.0, xtol=1e-12
            )
    assert seen > 100


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="different signs"):
        brentq(lambda x: x, 1.0, 2.0, xtol=1e-9)
    with pytest.raises(ValueError, match="NaN"):
        brentq(lambda _: math.nan, 1.0, 2.0, xtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_minima(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for low, width, at, power in rng.uniform(0, 1, size=(200, 4)).tolist():

        def f(x: float, at: float = at, power: float = power) -> float:
            return abs(x - 3 * at) ** (1 + 2 * power) + 0.1 * math.exp(-x)

        low, high = 4 * low - 4, 5 * width
        found = scipy.optimize.minimize_scalar(f, bounds=(low, high), method="bounded")
        assert bounded_minimum(f, low, high) == found.fun


def test_minima_of_privacy_curves() -> None:
    for rho, epsilon in np.exp(np.random.default_rng(4).uniform(-9, 4, (200, 2))).tolist():

        def log_delta(y: float, rho: float = rho, epsilon: float = epsilon) -> float:
            a = 1 + math.exp(y)
            return (a - 1) * (a * rho - epsilon) + a * math.log1p(-1 / a) - math.log(a - 1)

        found = scipy.optimize.minimize_scalar(log_delta, bounds=(-9.0, 9.0), method="bounded")
        assert bounded_minimum(log_delta, -9.0, 9.0) == found.fun
