"""The pool of answers, against slow versions; and the variances that it is planned with."""

import math

import numpy as np
import pytest

from server.quantiles.rank_pool import (
    RankPool,
    answer_variances,
    best_groups,
    in_groups,
    level_variances,
)

LEVELS = np.array([0.1, 0.5, 0.8])


def pool(seed: int, K: int = 8, T: int = 5) -> RankPool:
    rng = np.random.default_rng(seed)
    at = rng.integers(0, K - 1, 2 * T)
    return (
        RankPool(K)
        .more(at[:T], rng.normal(0.5, 0.4, T), rng.uniform(1, 50, T))
        .more(at[T:], rng.normal(0.5, 0.4, T), rng.uniform(1, 50, T))
    )


@pytest.mark.parametrize("seed", range(5))
def test_answers_about_one_bin_are_averaged_by_their_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    at, f, w = rng.integers(0, 7, 12), rng.normal(size=12), rng.uniform(0, 5, 12)
    w[3] = 0.0
    result = RankPool(8).more(at[:5], f[:5], w[:5]).more(at[5:], f[5:], w[5:])
    assert (np.diff(result.at) > 0).all()
    for t, share, weight in zip(result.at, result.shares, result.weights, strict=True):
        mine = at == t
        assert share == pytest.approx(np.average(f[mine], weights=w[mine]))
        assert weight == pytest.approx(w[mine].sum())


@pytest.mark.parametrize("seed", range(5))
def test_costs_and_the_next_bins_are_those_of_a_slow_sum(seed: int) -> None:
    p = pool(seed)
    given = list(zip(p.at.tolist(), p.shares.tolist(), p.weights.tolist(), strict=True))
    slow = [
        [
            sum(w * (f - q) ** 2 / 2 for t, f, w in given if (f < q if t >= b else f > q))
            for b in range(8)
        ]
        for q in LEVELS.tolist()
    ]
    assert p.costs(LEVELS) == pytest.approx(np.array(slow))
    chosen = []
    for row in slow:
        weight = np.exp(-np.array(row))
        upto = [weight[: t + 1].sum() / weight.sum() for t in range(7)]
        chosen.append(min(range(7), key=lambda t: abs(upto[t] - 0.5)))
    assert p.next_bins(LEVELS).tolist() == sorted(chosen)


def test_a_curve_is_inverted_at_its_steps_and_in_the_middle_of_its_plateaus() -> None:
    sure = np.full(3, 1e9)
    p = RankPool(10).more(np.array([1, 4, 6]), np.array([0.2, 0.5, 0.5]), sure)
    at = np.array([0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0])
    assert p.positions(at, "left") == pytest.approx([-1, 0, 1, 2.5, 4, 7.5, 9])
    assert p.positions(at, "right") == pytest.approx([-1, 0, 1, 2.5, 6, 7.5, 9])
    exact = np.zeros(4)
    assert p.quantile_bins(np.array([0.05, 0.2, 0.21, 0.5]), exact).tolist() == [0, 1, 2, 5]
    low = RankPool(10).more(np.array([1, 4]), np.array([-0.1, 1.2]), sure[:2])
    ends = np.array([0.0, 1.0])
    assert low.positions(ends, "left").tolist() == [-1, 4]
    assert low.positions(ends, "right").tolist() == [1, 9]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_variances_are_those_of_the_response(epsilon: float) -> None:
    levels = np.array([[0.2, 0.5, 0.7]])
    e, m = math.exp(epsilon), 3
    for j, q in enumerate(levels[0].tolist()):
        cells = np.diff([0.0, *levels[0], 1.0])
        law = (1 + cells * (e - 1)) / (e + m)
        pi = law[: j + 1].sum()
        slope = (e - 1) / (e + m)
        assert (pi - (j + 1) / (e + m)) / slope == pytest.approx(q)
        result = answer_variances(epsilon, levels)[0, j]
        assert result == pytest.approx(pi * (1 - pi) / slope**2)
    alone = level_variances(epsilon, levels[0], 3)
    assert alone[1] == pytest.approx(3 / (4 * math.tanh(epsilon / 2) ** 2))


def test_levels_are_dealt_out_where_epsilon_is_small() -> None:
    assert in_groups(np.arange(5), 2).tolist() == [[0, 2, 4], [1, 3, 3]]
    for J in (1, 7, 31):
        levels = np.arange(1, J + 1) / (J + 1)
        counts = [best_groups(epsilon, levels) for epsilon in (0.05, 1.0, 2.0, math.inf)]
        assert counts[0] == J
        assert counts[-1] == 1
        assert counts == sorted(counts, reverse=True)
        least = [
            min(level_variances(1.0, levels, g).max() for g in range(1, J + 1)),
            level_variances(1.0, levels, counts[1]).max(),
        ]
        assert least[1] == pytest.approx(least[0], rel=1e-12)
