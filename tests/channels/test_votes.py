"""Exact two-sided privacy of optimized unary encoding, by enumeration in integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from oracle_laws import unary_weights

from fedhist.channels.oracles import UnaryOracle


def exp_from_below(x: float) -> Fraction:
    total = term = Fraction(1)
    for k in range(1, 150):
        term = term * Fraction(x) / k
        total += term
    return total


def worst_ratio(channel: UnaryOracle) -> Fraction:
    weights = unary_weights(channel)
    return max(Fraction(int(max(column)), int(min(column))) for column in weights.T)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, math.log(2), 1.0, 3.0, 12.0])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_exact_ratio(epsilon: float, k: int) -> None:
    """Over all votes, none included, and all outputs: at most e^epsilon, and nearly attained."""
    channel = UnaryOracle(epsilon, k)
    weights = unary_weights(channel)
    whole = 1 << (64 * k)
    assert all(sum(map(int, row)) == whole for row in weights)
    worst = worst_ratio(channel)
    assert worst <= exp_from_below(epsilon)
    if k > 1:
        assert worst > exp_from_below(epsilon * (1 - 1e-9))


@pytest.mark.parametrize("k", [1, 2, 3, 6, 7, 8])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, math.inf])
def test_debiasing_inverts_the_law(k: int, epsilon: float) -> None:
    """The expected counts of any votes, debiased, are the shares of the symbols; none counts 0."""
    votes = np.arange(k + 1) + 1.0
    n = votes.sum()
    unary = UnaryOracle(epsilon, k)
    ones = votes[1:] * unary.p + (n - votes[1:]) * unary.flip
    shares = np.append(votes[1:], votes[0]) / n
    assert unary.debias(ones, int(n)) == pytest.approx(shares, abs=1e-12)
