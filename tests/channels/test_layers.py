"""The integer law of finite reports, against its definition in fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, islice

import mpmath
import numpy as np
import pytest

from fedhist.channels.layers import WORD_VALUES, Layers, draw_layers, odds_less_one

SIZES = [(2, 1), (3, 1), (4, 2), (13, 4), (40, 13), (64, 32), (64, 1), (64, 63)]


def odds_of(law: Layers) -> Fraction:
    return Fraction(law.lower + law.upper, law.lower)


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 8.0, 30.0, 100.0, 1e9])
@pytest.mark.parametrize(("size", "chosen"), SIZES)
def test_the_law_adds_up_and_its_odds_are_at_most_e_to_the_epsilon(
    epsilon: float, size: int, chosen: int
) -> None:
    law = Layers(epsilon, size, chosen)
    sets = np.array(list(islice(combinations(range(size), chosen), 50)))
    weights = law.weights(sets)
    assert all(sum(row) == WORD_VALUES for row in weights.tolist())
    assert (weights >= 0).all()
    odds = odds_of(law)
    with mpmath.workdps(60):
        assert mpmath.mpf(odds.numerator) / odds.denominator <= mpmath.exp(mpmath.mpf(epsilon))
    ratios = [Fraction(a, b) for a, b in zip(weights.max(axis=0), weights.min(axis=0), strict=True)]
    assert max(ratios) <= odds
    exact = law.law()
    worst = exact.worst()
    assert Fraction(worst.more, worst.less) == odds


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 30.0])
@pytest.mark.parametrize(("size", "chosen"), SIZES)
def test_the_lower_level_is_the_largest_and_the_erasure_is_rare(
    epsilon: float, size: int, chosen: int
) -> None:
    law = Layers(epsilon, size, chosen)
    assert law.erased * WORD_VALUES <= size + chosen * math.exp(epsilon) + 1
    assert math.isclose(
        law.hit(chosen) + (size - chosen) * law.lower / WORD_VALUES + law.erased, 1.0, rel_tol=1e-12
    )
    assert math.log(odds_of(law)) == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize(("size", "chosen"), [*SIZES, (1 << 30, 5), (1 << 30, 1 << 29)])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 8.0, 40.0, math.inf])
def test_words_are_divided_exactly(size: int, chosen: int, epsilon: float) -> None:
    """At random words and beside every kind of boundary, against Python's integers."""
    law = Layers(epsilon, size, chosen)
    low, high = law.lower, law.upper
    floor = size * low
    near = [k * low for k in (1, 2, size // 3, size - 1, size)]
    near += [floor + k * high for k in (0, 1, chosen // 2, chosen - 1, chosen)]
    words = [w + d for w in near for d in (-1, 0, 1) if 0 <= w + d < WORD_VALUES]
    words += np.random.default_rng(size).integers(1 << 64, size=300, dtype=np.uint64).tolist()

    def said(word: int) -> int:
        if word < floor:
            return word // low
        rank = (word - floor) // high
        return -1 - rank if rank < chosen else size

    assert draw_layers(np.array(words, dtype=np.uint64), law).tolist() == [said(w) for w in words]


@pytest.mark.parametrize("epsilon", [20.0, 30.0, 40.0, 43.9, 44.2, 44.4, 64.0, 700.0])
@pytest.mark.parametrize("c", [1, 3, 127])
def test_hardly_any_report_is_erased_at_large_budgets(epsilon: float, c: int) -> None:
    """Few levels fit into the words there; the rest of these is not left unused."""
    for n in (128, 1 << 20):
        law = Layers(epsilon, n, c)
        assert 0 < law.erased <= 2**-10
        # e^64 is 2^92.3: the promise in exact integers
        assert law.upper <= law.lower * odds_less_one(epsilon)
