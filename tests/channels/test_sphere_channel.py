from __future__ import annotations

import math
from fractions import Fraction

import pytest
from scipy.special import gammaln

from fedhist.channels.sphere import MAX_DIMENSION, SphereChannel


@pytest.mark.parametrize("d", [1, 2, 3, 5, 63, 64, 65, 1000, MAX_DIMENSION])
def test_the_constant_of_the_sphere(d: int) -> None:
    """c_d against the gamma function; lgamma itself loses digits for the largest d."""
    log = gammaln(d / 2) - gammaln((d + 1) / 2) - math.log(math.pi) / 2
    result = SphereChannel(d, 1.0, 1.0).mean_height
    assert result == pytest.approx(math.exp(log), rel=1e-13 * max(1, d) if d > 100 else 1e-13)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0])
def test_the_odds_never_exceed_epsilon(epsilon: float) -> None:
    """In exact arithmetic: (1 - f) / f with f = t / 2^64; and they are nearly attained."""
    t = SphereChannel(4, 1.0, epsilon).flip_threshold
    odds = Fraction((1 << 64) - t, t)
    log = math.log(odds)
    # e^epsilon by its Taylor series, from below, in fractions
    exact = term = Fraction(1)
    for k in range(1, 120):
        term = term * Fraction(epsilon) / k
        exact += term
    assert odds <= exact
    assert log == pytest.approx(epsilon, rel=1e-9)
