"""Private hypothesis selection: the definition of Algorithm 1, exact privacy, what is pruned."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import binom

from fedhist.base.arrays import Floats
from server.distributions.binomial_scores import BinomialGrid, KSPlan, PHSPlan, SelectionPlan


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
    [(1, 0.3, 0.4), (2, 0.11, 0.25), (5, 0.11, 0.1), (13, 0.11, 0.4), (40, 0.3, 0.25)],
)
def test_equal_to_the_definition(m: int, eta: float, c: float) -> None:
    plan = PHSPlan.of(m, eta, c)
    rng = np.random.default_rng(1)
    for p in (0.0, 0.03, 0.3, 0.5, 0.97, 1.0):
        held = rng.binomial(m, p, 53)
        found = plan.scores(below(plan, held), 53)[0]
        np.testing.assert_allclose(found, brute_force(plan.grid, c, held), rtol=0, atol=2e-13)


def test_the_printed_weight_is_private_at_one_over_epsilon_only() -> None:
    """exp(S / (2 epsilon)) at epsilon = 0.1 with four users: log-ratios above 9.0, not 0.1."""
    plan, epsilon, worst = PHSPlan.of(1, 0.2, 0.2), 0.1, 0.0
    for ones in range(4):
        a, b = (plan.scores(below(plan, [1] * n + [0] * (4 - n)), 4)[0] for n in (ones, ones + 1))
        ratio = log_softmax(a / (2 * epsilon)) - log_softmax(b / (2 * epsilon))
        worst = max(worst, float(np.abs(ratio).max()))
    assert 9.0 < worst <= 1 / epsilon + 1e-9


def test_bad_constants_are_refused() -> None:
    with pytest.raises(ValueError, match=r"c .* 0\.5"):
        PHSPlan.of(10, 0.1, 0.5)
    plan = PHSPlan.of(10, 0.1)
    with pytest.raises(ValueError, match="counts must be"):
        plan.scores(np.zeros((1, len(plan.thresholds) + 1)), 3)


@pytest.mark.parametrize(
    ("plan", "s"),
    [
        *((KSPlan.of(m, 0.15), s) for m, s in [(1, 1), (1, 4), (2, 3), (3, 2), (5, 2)]),
        *((PHSPlan.of(m, 0.1, 0.2), s) for m, s in [(1, 1), (1, 4), (2, 3), (3, 2)]),
    ],
    ids=lambda v: f"{type(v).__name__}-{v.grid.m}" if isinstance(v, SelectionPlan) else str(v),
)
def test_exact_privacy_on_all_data_sets(plan: SelectionPlan, s: int) -> None:
    """Sensitivity 1, never passed by a single bit; log-ratios within epsilon, and so their range.

    By KS scores it is attained, and so is half of the range; a single user's tent is c high.
    """
    m, epsilon, ks = plan.grid.m, 0.7, isinstance(plan, KSPlan)

    def below(held: tuple[int, ...]) -> np.ndarray:
        return np.array([[(np.asarray(held) <= t).sum() for t in plan.thresholds]])

    every = itertools.product(range(m + 1), repeat=s)
    scores = {x: plan.scores(below(x), s)[0] for x in every}
    largest, worst, widest = 0.0, 0.0, 0.0
    for x, score in scores.items():
        for u, other in itertools.product(range(s), range(m + 1)):
            change = scores[(*x[:u], other, *x[u + 1 :])] - score
            ratio = log_softmax(epsilon / 2 * (score + change)) - log_softmax(epsilon / 2 * score)
            largest = max(largest, np.abs(change).max())
            worst, widest = max(worst, np.abs(ratio).max()), max(widest, np.ptp(ratio))
    assert largest == 1.0 or (largest < 1.0 and s == 1 and not ks)
    assert worst <= epsilon + 1e-12
    assert widest <= epsilon + 1e-12
    assert widest > 0.5 * epsilon or not ks
