"""Enumerated noise of shares against closed forms, slow sums and the values of the literature."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from fedhist.privacy.guarantee import gaussian_multiplier
from fedhist.privacy.shares import ShareNoise
from tests.audit.trust.sum_laws import (
    Move,
    delta_of_shares,
    epsilon_of_shares,
    law_of_shares,
    move_of,
)


def negative_binomials(noise: ShareNoise, shares: int, reach: int) -> np.ndarray:
    """Law of X - Y at 0 ... reach, by the sum over Y in its definition."""
    a, p = shares / noise.honest, math.exp(-1 / noise.size)
    k = np.arange(60 * math.ceil(noise.size))
    log = np.array([math.lgamma(j + a) - math.lgamma(j + 1) - math.lgamma(a) for j in k])
    law = np.exp(log + a * math.log1p(-p) + k * math.log(p))
    return np.array([law[d:] @ law[: len(law) - d] for d in range(reach)])


@pytest.mark.parametrize("shares", [1, 7, 8, 10])
def test_laplace_shares_against_their_definition(shares: int) -> None:
    """X - Y, both negative binomial."""
    noise = ShareNoise("laplace", 4.0, 8)
    law = law_of_shares(noise, shares)
    middle = len(law) // 2
    assert law.sum() == pytest.approx(1.0, abs=1e-9)
    found = law[middle : middle + 40]
    np.testing.assert_allclose(found, negative_binomials(noise, shares, 40), atol=1e-12)


def test_few_shares_break_epsilon_and_more_do_not() -> None:
    """M shares keep it, and no less; the peak of fewer is too sharp."""
    noise = ShareNoise("laplace", 4.0, 10)
    kept = [epsilon_of_shares(noise, m, (4,), 0.0) for m in (8, 9, 10, 11, 13)]
    assert kept[0] == pytest.approx(1.33, abs=0.01)
    assert kept[0] > kept[1] > 1 >= kept[2]
    assert all(e == pytest.approx(1.0, rel=1e-5) and e <= 1 for e in kept[2:])


def slow_delta(std: float, move: Move, epsilon: float) -> float:
    """Hockey-stick divergence of N_Z in every dimension at once."""
    k = np.arange(-int(8 * std), int(8 * std) + 1)
    p = np.exp(-0.5 * (k / std) ** 2)
    p /= p.sum()
    total = 0.0
    laws = [np.stack([p, np.interp(k - m, k, p, left=0, right=0)]) for m in move]
    for places in product(range(len(k)), repeat=len(move) - 1):
        one, other = (math.prod(laws[i][j][x] for i, x in enumerate(places)) for j in (0, 1))
        gain = one * laws[-1][0] - math.exp(epsilon) * other * laws[-1][1]
        total += gain[gain > 0].sum()
    return total


@pytest.mark.parametrize("move", [(2,), (1, 1), (2, 1)])
def test_gaussian_losses_against_the_joint_law(move: Move) -> None:
    """Losses of several integers, rounded down, lose next to nothing."""
    noise = ShareNoise("gaussian", 3.5, 1)
    exact = slow_delta(3.5, move, 0.5)
    found = delta_of_shares(noise, 1, move, 0.5)
    assert exact * (1 - 2e-3) < found <= exact * (1 + 1e-9)


@pytest.mark.parametrize(
    ("move", "extra", "expected"),
    [((1, 1), 0, 1.008), ((4,), 0, 1.002), ((3, 4), 4, 0.912), ((2, 2, 1), 4, 0.774)],
)
def test_enumerated_deltas_of_the_specification(move: Move, extra: int, expected: float) -> None:
    """In units of 1e-6, at (1, 1e-6)."""
    size = math.sqrt((gaussian_multiplier(1.0, 1e-6) * math.hypot(*move)) ** 2 + extra)
    found = delta_of_shares(ShareNoise("gaussian", size, 1), 1, move, 1.0) / 1e-6
    assert found == pytest.approx(expected, abs=2e-3)
    assert (epsilon_of_shares(ShareNoise("gaussian", size, 1), 1, move, 1e-6) > 1) == (extra == 0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("move", [(3,), (300,), (2, 2), (50, 7, 7), (1,) * 9])
def test_what_is_calibrated_is_never_flagged(epsilon: float, move: Move) -> None:
    """Of either kind, for M shares: at most the claim, and close to it in one direction."""
    for kind, delta, norm in (("laplace", 0.0, sum(move)), ("gaussian", 1e-6, math.hypot(*move))):
        noise = ShareNoise.calibrated(
            kind,  # type: ignore[arg-type]
            sensitivity=norm,
            epsilon=epsilon,
            delta=delta,
            honest=1,
        )
        found = epsilon_of_shares(noise, 1, move, delta)
        assert found <= epsilon
        assert found > (0.6 if max(move) < 8 else 0.98) * epsilon


def test_no_noise_keeps_nothing() -> None:
    """And no move needs none."""
    noise = ShareNoise("laplace", 0.0, 8)
    assert epsilon_of_shares(noise, 8, (1,), 0.0) == math.inf
    assert epsilon_of_shares(noise, 8, move_of(np.zeros(3, dtype=np.int64)), 0.0) == 0
