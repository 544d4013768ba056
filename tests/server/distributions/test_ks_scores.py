"""KS scores: the definition, sensitivity and exact privacy on all tiny data sets, the error."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from fedhist.base.arrays import Floats
from server.distributions.binomial_scores import KSPlan, arcsine_thresholds, oversized
from server.distributions.selection import KS, selection_error


def below(plan: KSPlan, held: list[int] | Floats) -> Floats:
    """C(t) of one symbol, from what each user holds."""
    return np.array([[(np.asarray(held) <= t).sum() for t in plan.thresholds]])


@pytest.mark.parametrize("m", [1, 4, 60, 300])
def test_scores_are_the_definition(m: int) -> None:
    plan = KSPlan.of(m, 0.1)
    rng = np.random.default_rng(m)
    held = rng.binomial(m, [[0.02], [0.4], [1.0]], (3, 37))
    counts = np.concatenate([below(plan, row) for row in held])
    expected = np.empty((3, len(plan.p)))
    for i, j in itertools.product(range(3), range(len(plan.p))):
        f = binom.cdf(plan.thresholds, m, plan.p[j])
        expected[i, j] = -np.abs(counts[i] - 37 * f).max()
    np.testing.assert_allclose(plan.scores(counts, 37), expected, atol=1e-10)
    with pytest.raises(ValueError, match="counts must be"):
        plan.scores(counts[:, :-1], 37)


@pytest.mark.parametrize(("m", "held"), [(1, 1), (20, 0), (1000, 1000)])
def test_all_users_equal(m: int, held: int) -> None:
    plan = KSPlan.of(m, 0.05)
    scores = plan.scores(below(plan, [held] * 30), 30)[0]
    assert plan.p[scores.argmax()] == (held > 0)
    assert scores.max() == 0.0


def gap(plan: KSPlan) -> float:
    """Largest mass of a hypothesis between neighbouring thresholds; 0 if none is left out."""
    wide = np.diff([-1, *plan.thresholds, plan.grid.m]) > 1
    ends = np.vstack((np.zeros(len(plan.grid)), plan.table, np.ones(len(plan.grid))))
    return float(np.diff(ends, axis=0)[wide].max(initial=0.0))


def test_thresholds_are_half_a_deviation_apart() -> None:
    for m in (1, 12, 39):
        assert arcsine_thresholds(m) == tuple(range(m))
        assert gap(KSPlan.of(m, 0.2)) == 0.0
    t = np.array(arcsine_thresholds(1000))
    assert t[:16].tolist() == list(range(16))
    assert t[-16:].tolist() == list(range(984, 1000))
    assert 190 < len(t) < 232
    steps = np.diff(np.arcsin(np.sqrt((t + 0.5) / 1000))) * 2 * math.sqrt(1000)  # in deviations
    assert steps[20:-20].max() < 0.75
    plan = KSPlan.of(1000, 0.02)
    masses = [
        binom.cdf(b - 1, 1000, p) - binom.cdf(a, 1000, p)
        for p in (0.02, 0.1, 0.5)
        for a, b in itertools.pairwise(plan.thresholds)
    ]
    assert max(masses) <= gap(plan) < 0.3


def select(m: int, p: float, s: int, epsilon: float, n: int, eta: float, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    plan = KSPlan.of(m, eta)
    held = np.stack([np.bincount(rng.binomial(m, p, s), minlength=m + 1) for _ in range(n)])
    scores = plan.scores(np.cumsum(held, axis=1)[:, list(plan.thresholds)], s)
    return np.asarray(
        plan.p[(scores * (epsilon / 2) + rng.gumbel(size=scores.shape)).argmax(axis=1)]
    )


@pytest.mark.parametrize(("p", "epsilon"), [(0.1, 0.05), (3e-4, 0.05)])
def test_the_error_of_a_selection_is_as_predicted(p: float, epsilon: float) -> None:
    """Within 20 %; of a rare symbol, m p = .09, as well.

    The mean of 400 errors has a deviation of at most 5 %; the truth lies within 13 % of the
    formula, so that a fresh seed fails with probability below 3 %.
    """
    drawn = np.abs(select(300, p, 10_000, epsilon, 400, 0.00125, 5) - p).mean()
    assert drawn == pytest.approx(selection_error(KS, p, 300, 10_000, epsilon), rel=0.2)


def test_tables_that_do_not_fit_are_refused() -> None:
    assert oversized(1_000_000, 50_000)
    assert not oversized(1000, 6000)
    with pytest.raises(ValueError, match="eta"):
        KSPlan.of(1_000_000, 0.01)
