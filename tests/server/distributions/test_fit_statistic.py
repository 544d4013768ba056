"""The statistic of fit: brute force, sensitivity by enumeration, what alike users have, speed."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from scipy.stats import betabinom, binom

from server.distributions.binomial_grid import BinomialGrid
from server.distributions.fit_statistic import (
    ETA,
    STEPS,
    FitPlan,
    binomial_below,
    fit_eta,
    fit_limit,
    kappa,
    spread_ratio,
)


def below(table, thresholds):
    """C(t) of an (s, k) table of counts: (k, T)."""
    return np.stack([(table <= t).sum(axis=0) for t in thresholds], axis=1)


def brute(counts, targets):
    """max_i min_j max_t, as it is defined."""
    apart = np.abs(counts[:, None, :] * STEPS - targets[None])
    return int(apart.max(axis=2).min(axis=1).max())


@pytest.mark.parametrize("m", [1, 7, 400])
def test_distribution_functions_are_those_of_scipy(m):
    grid, at = BinomialGrid.of(m, 0.03), np.unique(np.linspace(0, m - 1, 30).astype(int))
    found = binomial_below(m, grid.p, grid.q, at)
    assert np.abs(found - binom.cdf(at[None], m, grid.p[:, None])).max() < 1e-11


def test_a_bisection_finds_the_minimum():
    """Counts of users, and counts that no users have: any integers that fall or not."""
    rng = np.random.default_rng(1)
    for m, s in ((1, 5), (6, 40), (30, 200)):
        plan = FitPlan.of(m, s)
        assert (np.diff(plan.targets, axis=0) <= 0).all()
        for _ in range(20):
            wild = rng.integers(-s, 2 * s, (3, len(plan.thresholds)))
            table = rng.multinomial(m, rng.dirichlet(np.ones(3)), s)
            for counts in (wild, below(table, plan.thresholds)):
                assert plan.statistic(counts) == brute(counts, plan.targets)


@pytest.mark.parametrize(("k", "m", "s"), [(2, 2, 3), (3, 2, 2), (2, 3, 2), (3, 3, 1)])
def test_one_user_moves_it_by_at_most_one(k, m, s):
    """All populations of s records, and all replacements of a record; nearly attained.

    One statistic for each symbol moves by more in all: charged once, it would leak.
    """
    records = [r for r in itertools.product(range(m + 1), repeat=k) if sum(r) <= m]
    plan = FitPlan.of(m, s)
    found, single = {}, {}
    for some in itertools.combinations_with_replacement(records, s):
        counts = below(np.array(some), plan.thresholds)
        found[some] = plan.statistic(counts)
        single[some] = np.array([plan.statistic(c[None]) for c in counts])
    largest = each = 0
    for some, value in found.items():
        for new in records:
            other = tuple(sorted((*some[1:], new)))
            for drop in range(1, s):
                kept = [*some[:drop], *some[drop + 1 :], new]
                largest = max(largest, abs(value - found[tuple(sorted(kept))]))
            largest = max(largest, abs(value - found[other]))
            each = max(each, int(np.abs(single[some] - single[other]).sum()))
    assert 0 < largest <= STEPS
    assert each > largest


def test_alike_users_pass_and_differing_ones_do_not():
    """Without noise, 30 populations: the limit is at 1 %, and met with room; power as kappa."""
    k, m, s = 10, 50, 4000
    plan, rng = FitPlan.of(m, s), np.random.default_rng(2)
    limit = fit_limit(k, s, plan.eta, math.inf)
    for i in range(30):
        p = rng.dirichlet(np.ones(k))
        table = rng.multinomial(m, p, s)
        assert plan.statistic(below(table, plan.thresholds)) <= limit * STEPS, i
    shares = rng.dirichlet(np.full(k, 2.0), s)
    table = rng.multinomial(m, shares)
    assert plan.statistic(below(table, plan.thresholds)) > 3 * limit * STEPS


@pytest.mark.parametrize("c", [200.0, 20.0])
def test_the_ratio_is_read_from_the_statistic(c):
    """Beta-binomial counts around p = 1 / 4, in law: within 10 % of sqrt(1 + (m - 1) / (c + 1))."""
    m, s = 200, 100_000
    plan = FitPlan.of(m, s)
    counts = np.rint(s * betabinom.cdf(plan.thresholds, m, c / 4, 3 * c / 4)).astype(np.int64)
    ratio = math.sqrt(1 + (m - 1) / (c + 1))
    found = plan.statistic(counts[None]) / STEPS
    assert found / s == pytest.approx(kappa(ratio), rel=0.06)
    chance = 0.6 * math.sqrt(s * math.log(2) / 2)
    assert spread_ratio(found + chance, 1, s) == pytest.approx(ratio, rel=0.1)
    assert spread_ratio(0.0, 5, 100) == pytest.approx(1.0)
    assert spread_ratio(1e9, 5, 100) > 100


def test_sizes_that_are_refused():
    assert fit_eta(1000) == ETA
    assert ETA < fit_eta(10**5) < 0.02
    assert math.isinf(fit_eta(1 << 22))
    with pytest.raises(ValueError, match="no test of fit"):
        FitPlan.of(1 << 22, 100)
    with pytest.raises(ValueError, match="shape"):
        FitPlan.of(3, 10).statistic(np.zeros((2, 9), dtype=int))


def test_a_thousand_symbols_of_a_thousand_samples_take_less_than_a_second():
    """The plan, which is public and kept, and the statistic of 10^4 users; in CPU time."""
    k, m, s = 1000, 1000, 10_000
    warm = FitPlan.of(5, 7)
    warm.statistic(np.zeros((1, len(warm.thresholds)), dtype=np.int64))
    counts = np.rint(s * binom.cdf(np.array(FitPlan.of(m, 1).thresholds), m, 1 / k)).astype(int)
    start = time.process_time()
    FitPlan.of(m, s).statistic(np.tile(counts, (k, 1)))
    assert time.process_time() - start < 1.0
