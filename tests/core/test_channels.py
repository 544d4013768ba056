from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from fedhist.channels import (
    CHANNELS,
    LaplaceChannel,
    OneBitChannel,
    PiecewiseChannel,
    UnaryChannel,
    best_kind,
    scalar_channel,
)

EPSILONS = [1e-9, 1e-3, 0.1, 0.3, 1.0, 2.0, 4.0, 10.0, 37.7]
GRID = np.linspace(-1, 1, 41)


def log_odds(threshold: int) -> Decimal:
    """log((1 - q) / q) of the probability q = threshold / 2^64 that is drawn, to 60 digits."""
    return (Decimal(2**64 - threshold) / Decimal(threshold)).ln()


@pytest.mark.parametrize("ones", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [*EPSILONS, 80.0, 800.0, 1e4])
def test_unary_odds_never_exceed_epsilon_in_exact_arithmetic(epsilon: float, ones: int) -> None:
    with localcontext() as context:
        context.prec = 60
        worst = 2 * ones * log_odds(UnaryChannel(epsilon, ones).flip_threshold)
        assert worst <= Decimal(epsilon)
        if epsilon / (2 * ones) < 43:  # beyond, 2^-64 is the least flip probability
            assert worst >= Decimal("0.99") * Decimal(epsilon)


@pytest.mark.parametrize("epsilon", [*EPSILONS, 80.0, 800.0])
def test_onebit_odds_never_exceed_epsilon_in_exact_arithmetic(epsilon: float) -> None:
    with localcontext() as context:
        context.prec = 60
        worst = log_odds(OneBitChannel(epsilon).flip_threshold)
        assert worst <= Decimal(epsilon)
        if epsilon < 43:
            assert worst >= Decimal("0.99") * Decimal(epsilon)


@pytest.mark.parametrize("ones", [1, 2, 3])
@pytest.mark.parametrize("n_bits", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_unary_privacy_by_enumeration(epsilon: float, n_bits: int, ones: int) -> None:
    channel = UnaryChannel(epsilon, ones)
    law = channel.transition(n_bits)
    assert law.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert channel.inputs(n_bits).sum(axis=1).max() == min(ones, n_bits)
    worst = np.log(law.max(axis=0) / law.min(axis=0)).max()
    # all 2 ones differing positions exist only in long enough vectors
    reachable = min(2 * ones, n_bits) / (2 * ones)
    assert worst <= epsilon + 1e-12
    assert worst >= 0.99 * epsilon * reachable


@pytest.mark.parametrize("kind", list(CHANNELS))
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_scalar_privacy_on_a_grid(kind: str, epsilon: float) -> None:
    channel = scalar_channel(kind, epsilon)
    if kind == "onebit":
        z = np.array([-1.0, 1.0])
    else:
        reach = channel.bound if kind == "piecewise" else 1 + 5 * 2 / epsilon
        z = np.linspace(-reach, reach, 2001)
    density = channel.density(GRID[:, None], z)
    worst = np.log(density.max(axis=0) / density.min(axis=0)).max()
    assert 0.99 * epsilon <= worst <= epsilon + 1e-12


@pytest.mark.parametrize("kind", list(CHANNELS))
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("u", [-1.0, -0.3, 0.0, 0.5, 1.0])
def test_moments_agree_with_the_density(kind: str, epsilon: float, u: float) -> None:
    channel = scalar_channel(kind, epsilon)
    if kind == "onebit":
        z, weight = np.array([-1.0, 1.0]), np.ones(2)
    else:
        reach = channel.bound if kind == "piecewise" else 1 + 40 * 2 / epsilon
        edges = np.linspace(-reach, reach, 400_001)
        z, weight = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    p = channel.density(u, z) * weight
    mean = (p * z).sum()
    assert p.sum() == pytest.approx(1.0, abs=1e-3)
    assert mean == pytest.approx(channel.gain * u, abs=2e-3)
    variance = (p * (z - mean) ** 2).sum() / channel.gain**2
    assert variance == pytest.approx(float(channel.variance(u)), rel=3e-3)
    assert float(channel.variance(u)) <= 4 * channel.worst_v * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "laplace", "onebit", "piecewise"),
    [(0.5, 8, 4.17, 4.64), (1, 2, 1.17, 1.02), (2, 0.5, 0.43, 0.20), (4, 0.125, 0.27, 0.031)],
)
def test_planning_variances(
    epsilon: float, laplace: float, onebit: float, piecewise: float
) -> None:
    found = [scalar_channel(kind, epsilon).v for kind in ("laplace", "onebit", "piecewise")]
    assert found == pytest.approx([laplace, onebit, piecewise], rel=0.02)


def test_unary_debias_and_tau() -> None:
    channel = UnaryChannel(1.3, ones=3)
    assert channel.tau == pytest.approx(1 - 2 * channel.flip, abs=1e-14)
    n = 1000
    true = np.array([0.0, 0.25, 1.0])
    expected = n * (channel.flip + true * (1 - 2 * channel.flip))
    assert channel.debias(expected, n) == pytest.approx(true, abs=1e-12)
    assert channel.bit_variance == pytest.approx(channel.flip * (1 - channel.flip))


def test_best_kind_changes_near_the_documented_epsilon() -> None:
    assert [best_kind(e) for e in (1e-3, 0.6, 0.8, 5.0)] == [
        "onebit",
        "onebit",
        "piecewise",
        "piecewise",
    ]


def test_without_noise() -> None:
    channel = UnaryChannel(math.inf)
    assert (channel.flip, channel.flip_threshold, channel.tau) == (0.0, 0, 1.0)
    for kind in ("laplace", "piecewise"):
        exact = scalar_channel(kind, math.inf)
        assert exact.v == exact.worst_v == 0.0
        with pytest.raises(ValueError, match="epsilon is inf"):
            exact.density(0.0, 0.0)
    assert OneBitChannel(math.inf).density(0.2, 1.0) == pytest.approx(0.6)
    assert best_kind(math.inf) == "laplace"


@pytest.mark.parametrize("epsilon", [1e-200, 1e-12, 1e4])
def test_extreme_budgets_have_constants(epsilon: float) -> None:
    assert 0 < UnaryChannel(epsilon).flip <= 0.5
    for kind in CHANNELS:
        assert scalar_channel(kind, epsilon).v >= 0


def test_bad_parameters() -> None:
    with pytest.raises(ValueError, match="epsilon must be positive, got 0"):
        LaplaceChannel(0.0)
    with pytest.raises(ValueError, match="got nan"):
        PiecewiseChannel(math.nan)
    with pytest.raises(ValueError, match="ones must be positive, got 0"):
        UnaryChannel(1.0, ones=0)
    with pytest.raises(ValueError, match="got 'gauss'"):
        scalar_channel("gauss", 1.0)
