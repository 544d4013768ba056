"""Predictions after the projection against simulated noise that is really projected."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fedhist.base.arrays import Floats
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.protocols.shared.projected_error import (
    convolved_excess,
    in_shares,
    projected,
    projected_l1,
)
from server.distributions.simplex import project_simplex


def zipf(k: int, exponent: float) -> Floats:
    p = np.arange(1.0, k + 1) ** -exponent
    return np.asarray(p / p.sum())


WIDTHS = {2: 0.02, 4: 0.1, 30: 0.04, 400: 0.02}
AT_ONCE = ((1.0, 2), (0.0, 4), (1.0, 4), (2.0, 30), (0.0, 400), (2.0, 400))


def simulated(p: Floats, kind: str, scale: float, std: Floats | float, runs: int) -> Floats:
    rng = np.random.default_rng(1)
    shape = runs, len(p)
    noise = rng.laplace(0, scale, shape) if kind == "laplace" else rng.normal(0, scale, shape)
    noise = noise + std * rng.normal(size=shape)
    return np.array([np.abs(project_simplex(p + row) - p).sum() for row in noise])


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("exponent", "k", "width"),
    [
        pytest.param(x, k, width, marks=() if (x, k) in AT_ONCE else pytest.mark.slow)
        for x, (k, width) in product((0.0, 1.0, 2.0), WIDTHS.items())
    ],
)
def test_noise_of_every_size(kind: str, k: int, width: float, exponent: float) -> None:
    """From a hundredth of the uniform share to 100 times the whole.

    Within the declared width and 4.5 standard errors: false alarm 7e-6 a case.
    """
    p = zipf(k, exponent)
    for scale in (0.01 / k, 0.3 / k, 3 / k, 0.5, 100.0):
        found = simulated(p, kind, scale, 0.0, max(50, 20_000 // k))
        expected = projected_l1(p, NoiseLaw(kind, scale))  # type: ignore[arg-type]
        off = abs(found.mean() - expected)
        assert off < width * expected + 4.5 * found.std() / len(found) ** 0.5, (scale, off)
        assert expected <= 2


def test_sampling_beside_laplace_noise() -> None:
    """As above, within 5 %."""
    p = zipf(100, 1.0)
    std = 0.05 * np.sqrt(p)
    for scale in (1e-4, 2e-3, 0.05):
        found = simulated(p, "laplace", scale, std, 400)
        expected = projected_l1(p, NoiseLaw("laplace", scale), std=std)
        assert abs(found.mean() - expected) < 0.05 * expected + 4.5 * found.std() / 20


def test_the_published_figures() -> None:
    """k = 200, Zipf(2): .0333 before the projection, .0218 after; k = 1500: .200 and .1712."""
    counts = NoiseLaw("laplace", 2.0)  # one item, epsilon = 1
    for k, exponent, n, raw, found in (
        (200, 2.0, 12_012, 0.0333, 0.0218),
        (1500, 1.0, 15_000, 0.2, 0.1712),
    ):
        law = in_shares(counts, n)
        assert k * law.mean_absolute == pytest.approx(raw, rel=0.01)
        assert projected_l1(zipf(k, exponent), law) == pytest.approx(found, rel=0.01)


def test_excess_of_two_noises_by_quadrature() -> None:
    """E(G + Z - x)^+ against an integral over G, and integers against their continuous law."""
    at, weight = np.polynomial.hermite_e.hermegauss(120)
    weight = weight / weight.sum()
    x = np.array([-3.0, -0.2, 0.0, 0.7, 5.0])
    for law in (NoiseLaw("laplace", 0.8), NoiseLaw("gaussian", 0.8)):
        alone = np.array([convolved_excess(law, 0.0, x - 0.6 * z) for z in at])
        assert convolved_excess(law, 0.6, x) == pytest.approx(weight @ alone, abs=2e-3)
    fine = NoiseLaw("discrete-laplace", 500.0, 0.01)
    assert convolved_excess(fine, 0.0, x) == pytest.approx(
        convolved_excess(NoiseLaw("laplace", 5.0), 0.0, x), rel=1e-4
    )


def test_no_noise_and_one_symbol() -> None:
    p = zipf(5, 1.0)
    assert projected_l1(p, NoiseLaw("laplace", 0.0)) == pytest.approx(0, abs=1e-12)
    assert projected_l1(np.ones(1), NoiseLaw("laplace", 3.0)) == pytest.approx(0, abs=1e-12)
    half = np.array([0.5, 0.5])
    assert projected(half, lambda c: np.maximum(half + 1 - c, 0)) == pytest.approx(0, abs=1e-9)
