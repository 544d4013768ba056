"""Exact two-sided privacy of the two frequency oracles, by enumeration in integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fedhist.channels.hadamard import hadamard_entry
from fedhist.channels.votes import MAX_BITS, MAX_SYMBOLS, HadamardChannel, OptimalUnaryChannel

Channel = OptimalUnaryChannel | HadamardChannel
BOTH = [OptimalUnaryChannel, HadamardChannel]


def exp_from_below(x: float) -> Fraction:
    total = term = Fraction(1)
    for k in range(1, 150):
        term = term * Fraction(x) / k
        total += term
    return total


def worst_ratio(channel: Channel) -> Fraction:
    weights = channel.weights()
    return max(Fraction(int(max(column)), int(min(column))) for column in weights.T)


@pytest.mark.parametrize("cls", BOTH)
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, math.log(2), 1.0, 3.0, 12.0])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_exact_ratio(cls: type[Channel], epsilon: float, k: int) -> None:
    """Over all votes, none included, and all outputs: at most e^epsilon, and nearly attained.

    With one symbol there is only itself or nothing, which costs less.
    """
    channel = cls(epsilon, k)
    weights = channel.weights()
    whole = 1 << (64 * k) if cls is OptimalUnaryChannel else (1 << 63) * channel.size
    assert all(sum(map(int, row)) == whole for row in weights)
    worst = worst_ratio(channel)
    assert worst <= exp_from_below(epsilon)
    if k > 1:
        assert worst > exp_from_below(epsilon * (1 - 1e-9))


def test_a_single_symbol_costs_less() -> None:
    """2 (1 - q) for the bits (from none to the symbol), and as much for the index."""
    q = Fraction(OptimalUnaryChannel(1.0, 1).flip_threshold, 1 << 64)
    assert worst_ratio(OptimalUnaryChannel(1.0, 1)) == max(1 / (2 * q), 2 * (1 - q))
    f = Fraction(HadamardChannel(1.0, 1).flip_threshold, 1 << 64)
    # K = 2: an index of the complement, against the uniform law
    assert worst_ratio(HadamardChannel(1.0, 1)) == max(1 / (2 * f), 2 * (1 - f))


@pytest.mark.parametrize("k", [1, 2, 3, 6, 7, 8])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, math.inf])
def test_debiasing_inverts_the_law(k: int, epsilon: float) -> None:
    """The expected counts of any votes, debiased, are the shares of the symbols; none counts 0."""
    votes = np.arange(k + 1) + 1.0
    n = votes.sum()
    unary = OptimalUnaryChannel(epsilon, k)
    ones = votes[1:] * unary.keep + (n - votes[1:]) * unary.flip
    assert unary.debias(ones, int(n)) == pytest.approx(votes[1:] / n, abs=1e-12)
    hadamard = HadamardChannel(epsilon, k)
    assert hadamard.size > k
    assert hadamard.size <= 2 * k
    if math.isinf(epsilon):
        counts = np.concatenate((votes, np.zeros(hadamard.size - k - 1)))
    else:
        law = hadamard.weights().astype(np.float64) / (2.0**63 * hadamard.size)
        counts = votes @ law
    assert hadamard.debias(counts, int(n)) == pytest.approx(votes[1:] / n, abs=1e-12)


def test_halves() -> None:
    """Every symbol's half has K / 2 elements, and two symbols share K / 4; row 0 is everything."""
    channel = HadamardChannel(1.0, 6)
    inside = hadamard_entry(np.arange(7)[:, None], np.arange(channel.size)) > 0
    assert inside.sum(axis=1).tolist() == [8, 4, 4, 4, 4, 4, 4]
    common = inside[1:].astype(int) @ inside[1:].T.astype(int)
    assert (common == 2 + 2 * np.eye(6, dtype=int)).all()


@pytest.mark.parametrize(
    ("cls", "most"), [(OptimalUnaryChannel, MAX_BITS), (HadamardChannel, MAX_SYMBOLS)]
)
def test_bad_parameters(cls: type[Channel], most: int) -> None:
    cls(1.0, most)
    for fields in ((1.0, 0), (1.0, most + 1), (0.0, 2), (-1.0, 2)):
        with pytest.raises(ValueError, match=r"symbols|epsilon"):
            cls(*fields)
    with pytest.raises(ValueError, match="without noise"):
        HadamardChannel(math.inf, 2).weights()
