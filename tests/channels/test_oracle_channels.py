"""The frequency oracles: exact laws, the sets behind them, variances, and what "auto" takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracle_laws import sets_of, unary_weights
from scipy.linalg import hadamard

from clients.randomizers.oracle_reports import draw_counts
from fedhist.channels import oracles
from fedhist.channels.hadamard import fwht
from fedhist.channels.layers import WORD_VALUES
from fedhist.channels.projective import ProjectiveSpace

SYMBOL_KINDS = ["krr", "hadamard", "projective"]
KINDS = [*SYMBOL_KINDS, "subset", "unary"]


def symbol_channel(kind: str, epsilon: float, k: int) -> oracles.SymbolOracle:
    channel = oracles.oracle_channel(kind, epsilon, k)
    return channel


def vectors(space: ProjectiveSpace) -> np.ndarray:
    q, t = space.q, space.t
    numbers = np.arange(q**t)
    digits = numbers[:, None] // q ** np.arange(t) % q
    nonzero = digits != 0
    lead = t - 1 - nonzero[:, ::-1].argmax(axis=1)
    return digits[(numbers > 0) & (digits[numbers, lead] == 1)]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 30.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda e: oracles.oracle_channel("krr", e, 9),
        lambda e: oracles.oracle_channel("hadamard", e, 6),
        lambda e: oracles.ProjectiveOracle(e, 12, ProjectiveSpace(3, 3)),
        lambda e: oracles.ProjectiveOracle(e, 38, ProjectiveSpace(3, 4)),
    ],
)
def test_laws_of_symbols_in_fractions(
    make: Callable[[float], oracles.SymbolOracle], epsilon: float
) -> None:
    channel = make(epsilon)
    k = channel.n_symbols
    law, sets = channel.layers, sets_of(channel)
    assert law.size <= 64
    assert all(len(set(row)) == law.chosen for row in sets.tolist())
    weights = law.weights(sets)
    assert all(sum(row) == WORD_VALUES for row in weights.tolist())
    odds = max(Fraction(max(z), min(z)) for z in weights.T.tolist())
    with mpmath.workdps(60):
        assert mpmath.mpf(odds.numerator) / odds.denominator <= mpmath.exp(mpmath.mpf(epsilon))
    assert math.log(odds) == pytest.approx(epsilon, rel=1e-9)
    for x in range(k + 1):
        for y in range(k + 1):
            hit = sum(int(w) for w in weights[y][sets[x]]) / WORD_VALUES
            assert hit == pytest.approx(channel.p if x == y else channel.q, rel=1e-12)


@pytest.mark.parametrize(("q", "t"), [(2, 3), (2, 5), (3, 3), (3, 4), (5, 3), (7, 3)])
def test_projective_sets_and_counts_by_their_definition(q: int, t: int) -> None:
    space = ProjectiveSpace(q, t)
    points = vectors(space)
    assert len(points) == space.size
    orthogonal = points @ points.T % q == 0
    c = space.chosen
    for x in range(space.size):
        members = space.members(np.full(c, x), np.arange(c))
        assert sorted(members.tolist()) == np.flatnonzero(orthogonal[x]).tolist()
    few = np.random.default_rng(q).integers(0, 9, space.size)
    for counts in (few, few << 16):  # in single and in double precision
        assert space.set_counts(counts).tolist() == (orthogonal @ counts).tolist()
    assert (orthogonal[:, 0] & orthogonal[:, -1]).sum() == space.overlap


def test_hadamard_sets_by_their_definition() -> None:
    channel = symbol_channel("hadamard", 1.0, 12)
    rows = np.arange(1, 14)[:, None]
    positive = np.bitwise_count(rows & np.arange(16)) % 2 == 0
    for row, members in zip(positive, sets_of(channel), strict=True):
        assert sorted(members.tolist()) == np.flatnonzero(row).tolist()
    counts = np.random.default_rng(0).integers(0, 9, 17)
    assert channel.set_counts(counts).tolist() == (positive @ counts[:-1]).tolist()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0, 30.0])
@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_law_of_a_subset_in_fractions(k: int, epsilon: float) -> None:
    """The exact probability of a subset with and without the symbol, and the classes of the law."""
    channel = oracles.oracle_channel("subset", epsilon, k)
    w, t = channel.chosen, channel.threshold
    held = Fraction(t, WORD_VALUES) / math.comb(k, w - 1)
    other = (1 - Fraction(t, WORD_VALUES)) / math.comb(k, w)
    odds = held / other
    with mpmath.workdps(60):
        assert mpmath.mpf(odds.numerator) / odds.denominator >= 1
        assert mpmath.mpf(odds.numerator) / odds.denominator <= mpmath.exp(mpmath.mpf(epsilon))
    assert math.log(odds) == pytest.approx(epsilon, rel=1e-6)
    law = channel.law()
    worst = law.worst()
    assert Fraction(worst.more, worst.less) == odds
    q = held * math.comb(k - 1, w - 2) if w > 1 else Fraction(0)
    q += other * math.comb(k - 1, w - 1)
    assert channel.q == pytest.approx(float(q), rel=1e-12)


TABLE = {  # k, epsilon: kind -> v, as published on the specification's page
    (100, 1.0): {"unary": 368, "hadamard": 467, "krr": 3468, "projective": 369, "subset": 360},
    (100, 6.0): {"unary": 1.00, "hadamard": 100, "krr": 0.553, "projective": 1.6, "subset": 0.553},
    (65536, 4.0): {"unary": 4982, "hadamard": 70520, "krr": 1.5e6, "projective": 4985},
    (10**6, 2.0): {"hadamard": 1.72e6, "krr": 2.5e10, "projective": 7.32e5},
}
CASES = [(k, e, kind, v) for (k, e), row in TABLE.items() for kind, v in row.items()]


@pytest.mark.parametrize(("k", "epsilon", "kind", "v"), CASES)
def test_variances_of_the_page(k: int, epsilon: float, kind: str, v: float) -> None:
    """The page counts k points without the null symbol, which takes the place of the last."""
    channel = oracles.oracle_channel(kind, epsilon, k - 1)
    p, q = channel.p, channel.q
    result = (p * (1 - p) + (k - 1) * q * (1 - q)) / (p - q) ** 2
    if kind == "unary":  # the page leaves out the term of the user's own symbol
        result = k * q * (1 - q) / (p - q) ** 2
    assert result == pytest.approx(v, rel=0.03)  # the page has two digits in places


def test_the_space_of_least_variance() -> None:
    for k, epsilon, q, t in [(100, 1.0, 3, 5), (65536, 4.0, 53, 4), (10**6, 2.0, 7, 9)]:
        space = oracles.best_projective(epsilon, k - 1).space
        assert (space.q, space.t) == (q, t)
    tall = oracles.ProjectiveOracle(1.0, 99, ProjectiveSpace(3, 6))
    assert tall.v > 0.99 * oracles.best_projective(1.0, 99).v


@pytest.mark.parametrize("k", [1, 2, 30, 1000, 5000, 1 << 22])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0, 4.0, 8.0])
def test_auto_is_the_best_within_its_limits(k: int, epsilon: float) -> None:
    best = oracles.oracle_channel("auto", epsilon, k)
    kinds = KINDS if k <= 1 << 16 else SYMBOL_KINDS
    able = [
        c for c in (oracles.oracle_channel(kind, epsilon, k) for kind in kinds) if c.bits <= 4096
    ]
    assert best in able
    least = min(c.v for c in able)
    assert best.v <= 1.03 * least
    assert all(c.bits >= best.bits for c in able if c.v <= 1.03 * least)


def test_what_auto_takes_and_refuses() -> None:
    assert oracles.oracle_channel("auto", 2.0, (1 << 22) + 1).kind == "krr"
    assert oracles.oracle_channel("auto", math.inf, 10).kind == "krr"
    assert oracles.oracle_channel("auto", 0.5, 90, max_bits=8).bits <= 8
    with pytest.raises(ValueError, match="do not fit into messages of 3 bits"):
        oracles.oracle_channel("auto", 1.0, 90, max_bits=3)
    with pytest.raises(ValueError, match="kind must be"):
        oracles.oracle_channel("best", 1.0, 90)
    for kind, k in (("subset", 65537), ("unary", 65537), ("projective", (1 << 22) + 1)):
        with pytest.raises(ValueError, match="n_symbols"):
            oracles.oracle_channel(kind, 1.0, k)
    with pytest.raises(ValueError, match="too small"):
        oracles.oracle_channel("subset", 1e-300, 5)
    assert [s.t for s in oracles.spaces(3)][:2] == [3, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_summed_law_has_the_moments_of_the_reports(kind: str) -> None:
    """Means and covariances of debiased shares; subset's counts add up to w n.

    Means of 3,000 draws within 4.5 standard errors, 8 shares a kind: 6e-5 in all; variances
    within 12 percent, 4.6 of their standard errors.
    """
    k, n_draws = 7, 3000
    channel = oracles.oracle_channel(kind, 1.3, k)
    true = np.array([30, 5, 0, 12, 1, 1, 1, 10])
    n = int(true.sum())
    generator = np.random.default_rng(8)
    rows = np.array([draw_counts(true, channel, generator) for _ in range(n_draws)])
    shares = np.array([channel.debias(row, n) for row in rows])
    expected = channel.variance(true / n) / n
    if kind == "unary":
        shares, true, expected = shares[:, :-1], true[:-1], expected[:-1]
    z = (shares.mean(axis=0) - true / n) / np.sqrt(expected / n_draws)
    assert np.abs(z).max() < 4.5
    assert np.abs(shares.var(axis=0) / expected - 1).max() < 0.12
    if kind == "subset":
        assert (rows.sum(axis=1) == channel.chosen * n).all()
    elif kind != "unary":
        assert (rows.sum(axis=1) == n).all()


def exp_from_below(x: float) -> Fraction:
    total = term = Fraction(1)
    for k in range(1, 150):
        term = term * Fraction(x) / k
        total += term
    return total


def worst_ratio(channel: oracles.UnaryOracle) -> Fraction:
    weights = unary_weights(channel)
    return max(Fraction(int(max(column)), int(min(column))) for column in weights.T)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, math.log(2), 1.0, 3.0, 12.0])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_exact_ratio(epsilon: float, k: int) -> None:
    """Over all votes, none included, and all outputs: at most e^epsilon, and nearly attained."""
    channel = oracles.UnaryOracle(epsilon, k)
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
    unary = oracles.UnaryOracle(epsilon, k)
    ones = votes[1:] * unary.p + (n - votes[1:]) * unary.flip
    shares = np.append(votes[1:], votes[0]) / n
    assert unary.debias(ones, int(n)) == pytest.approx(shares, abs=1e-12)


@pytest.mark.parametrize("d", [1, 2, 4, 8, 16, 32, 512, 1024])
def test_equals_the_dense_product(d: int) -> None:
    rng = np.random.default_rng(d)
    x = rng.integers(-1000, 1000, (3, 2, d)).astype(np.float64)
    before = x.copy()
    assert np.array_equal(fwht(x), x @ hadamard(d))
    assert np.array_equal(x, before)
    assert np.array_equal(fwht(fwht(x)), d * x)


def test_long_rows() -> None:
    """H of 2^13 as two smaller ones: H_{ab} = H_a (x) H_b; integers, hence exact."""
    x = np.random.default_rng(5).integers(-1000, 1000, (1, 1 << 13)).astype(np.float64)
    square = hadamard(128) @ x.reshape(128, 64) @ hadamard(64)
    assert np.array_equal(fwht(x)[0], square.reshape(-1))


@pytest.mark.parametrize("bad", [[], [1, 2, 3], 5, np.zeros((2, 0)), np.zeros((4, 6))])
def test_lengths_that_are_no_power_of_two(bad: object) -> None:
    with pytest.raises(ValueError, match="power of two"):
        fwht(bad)
