"""Private hypothesis selection: the definition of Algorithm 1, exact privacy, what is pruned."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import binom

from fedhist.base.arrays import Floats
from server.distributions.binomial_scores import BinomialGrid, PHSPlan


def brute_force(grid: BinomialGrid, c: float, held: list[int] | Floats) -> Floats:
    """S_j of Algorithm 1, pair by pair, from probability mass functions over 0, ..., m."""
    m, s, x = grid.m, len(held), np.arange(grid.m + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.stack(
            [
                binom.logpmf(x, m, p) if p <= 0.5 else binom.logpmf(x, m, q)[::-1]
                for p, q in zip(grid.p, grid.q, strict=True)
            ]
        )
    mass = np.exp(log)
    users = np.bincount(held, minlength=m + 1)
    scores = np.full(len(grid), float(s))
    for j, k in itertools.permutations(range(len(grid)), 2):
        room = 1e-10 * np.maximum(1, np.abs(np.where(np.isfinite(log[k]), log[k], 0)))
        w = log[j] > log[k] + room  # ties, at integer crossings, are in neither set
        if (mass[j][w] - mass[k][w]).sum() > 2 * c:
            scores[j] = min(scores[j], max(0.0, users[w].sum() - s * (mass[k][w].sum() + c)))
    return scores


def below(plan: PHSPlan, held: list[int] | Floats) -> Floats:
    return np.array([[(np.asarray(held) <= t).sum() for t in plan.thresholds]])


@pytest.mark.parametrize(
    ("m", "eta", "c"),
    [
        (1, 0.05, 0.1),
        (1, 0.3, 0.4),
        (2, 0.11, 0.25),
        (2, 0.3, 0.25),
        (3, 0.05, 0.4),
        (5, 0.11, 0.1),
        (8, 0.3, 0.4),
        (13, 0.11, 0.4),
        (40, 0.3, 0.25),
    ],
)
def test_equal_to_the_definition(m: int, eta: float, c: float) -> None:
    plan = PHSPlan.of(m, eta, c)
    rng = np.random.default_rng(1)
    for p in (0.0, 0.03, 0.3, 0.5, 0.97, 1.0):
        held = rng.binomial(m, p, 53)
        found = plan.scores(below(plan, held), 53)[0]
        np.testing.assert_allclose(found, brute_force(plan.grid, c, held), rtol=0, atol=2e-13)


def test_only_record_maxima_are_kept() -> None:
    plan = PHSPlan.of(1000, 0.02)
    assert len(plan.p) == 1244
    assert 2.1 < len(plan.place) / len(plan.p) < 2.8
    # further out, a competitor has a wider event, and more mass in it than any before
    for j in (0, 40, 600, 1243):
        own = slice(plan.start[j], plan.start[j + 1])
        for side in (False, True):
            mine = plan.upper[own] == side
            t, mass = plan.place[own][mine], plan.mass[own][mine]
            assert (np.diff(mass) > 0).all()
            assert (np.diff(t) <= 0 if side else np.diff(t) >= 0).all()
    assert PHSPlan.of(1000, 0.02) is plan


def test_the_printed_weight_is_private_at_one_over_epsilon_only() -> None:
    """exp(S / (2 epsilon)) at epsilon = 0.1 with four users: log-ratios above 9.0, not 0.1."""
    plan, epsilon, worst = PHSPlan.of(1, 0.2, 0.2), 0.1, 0.0
    for ones in range(4):
        a, b = (plan.scores(below(plan, [1] * n + [0] * (4 - n)), 4)[0] for n in (ones, ones + 1))
        ratio = log_softmax(a / (2 * epsilon)) - log_softmax(b / (2 * epsilon))
        worst = max(worst, float(np.abs(ratio).max()))
    assert 9.0 < worst <= 1 / epsilon + 1e-9


@pytest.mark.parametrize(("m", "p"), [(300, 0.01), (300, 0.5), (1000, 0.1)])
def test_without_noise_it_finds_the_hypothesis(m: int, p: float) -> None:
    """Within 6 deviations of the mean of 4,000 users (false alarm below 1e-6)."""
    plan = PHSPlan.of(m, 0.02)
    held = np.random.default_rng(8).binomial(m, p, 4000)
    found = plan.p[plan.scores(below(plan, held), 4000)[0].argmax()]
    assert abs(found - p) < (6 * 1.3 / np.sqrt(4000) + 2 * 0.02) * np.sqrt(p * (1 - p) / m)


def test_scores_rise_away_from_a_rare_symbol() -> None:
    """The known defect: no competitor below it is 2 c away; the best score is some 1 / m off."""
    plan = PHSPlan.of(300, 0.02)
    held = np.random.default_rng(9).binomial(300, 3e-4, 10_000)
    scores = plan.scores(below(plan, held), 10_000)[0]
    assert 0.5 / 300 < plan.p[scores.argmax()] - 3e-4 < 1.5 / 300


def test_bad_constants_are_refused() -> None:
    with pytest.raises(ValueError, match=r"c must lie in \(0, 0.5\), got 0.5"):
        PHSPlan.of(10, 0.1, 0.5)
    plan = PHSPlan.of(10, 0.1)
    with pytest.raises(ValueError, match="counts must be"):
        plan.scores(np.zeros((1, len(plan.thresholds) + 1)), 3)
