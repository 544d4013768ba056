"""How far integers are from a Gaussian: the losses of fedhist.privacy.lattice_gaussian."""

from __future__ import annotations

import math

from fedhist.privacy.shares import ShareNoise


def unevenness(variance: float) -> float:
    """S(v): by how much the weights around different centres differ, relative to their sum / 2."""
    rate = 2 * math.pi**2 * variance
    last = 2 + math.isqrt(math.ceil(750 / rate))
    return math.fsum(math.exp(-rate * j * j) for j in range(1, last + 1))


def rounding_loss(variance: float = 4.0) -> float:
    """Largest log-ratio, per entry, between N_Z(0, a + variance) and a rounded Gaussian."""
    uneven = 2 * unevenness(variance)
    return 2 * math.atanh(uneven) if uneven < 1 else math.inf


def sum_loss(draws: int, variance: float) -> float:
    """Largest log-ratio, per entry, between the sum of draws of N_Z(0, variance) and N_Z.

    The terms fall with k, so those behind the first thousand are counted as so many of the last
    one of these.
    """
    each = min(draws - 1, 1000)
    terms = [rounding_loss(variance * k / (k + 1)) for k in range(1, each + 1)]
    return math.fsum(terms) + (draws - 1 - each) * (terms[-1] if terms else 0.0)


def share_loss(noise: ShareNoise, entries: int) -> float:
    """eta: how far M shares are from a rounded Gaussian, in every log-probability.

    A release of so many integers, in all rounds, is (epsilon + 2 eta, exp(eta) delta)-DP; it is 0
    for Laplace noise, which is exact.
    """
    if noise.kind == "laplace" or not noise.size:
        return 0.0
    return entries * (rounding_loss() + sum_loss(noise.honest, noise.share**2))
