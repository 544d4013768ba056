"""Scores of binomials: the grid, KS and tents, exact privacy on tiny data sets, the error."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import binom

from fedhist.base.arrays import Floats
from server.distributions.binomial_scores import (
    BinomialGrid,
    KSPlan,
    PHSPlan,
    SelectionPlan,
    arcsine_thresholds,
    doubles,
    dyadic,
    oversized,
    pick_eta,
)


def below(plan: SelectionPlan, held: list[int] | Floats) -> Floats:
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


def test_tables_that_do_not_fit_are_refused() -> None:
    assert oversized(1_000_000, 50_000)
    assert not oversized(1000, 6000)
    with pytest.raises(ValueError, match="eta"):
        KSPlan.of(1_000_000, 0.01)


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


@pytest.mark.parametrize(
    ("m", "eta", "c"),
    [(1, 0.3, 0.4), (2, 0.11, 0.25), (5, 0.11, 0.1), (13, 0.11, 0.4), (40, 0.3, 0.25)],
)
def test_equal_to_the_definition(m: int, eta: float, c: float) -> None:
    plan = PHSPlan.of(m, eta, c)
    rng = np.random.default_rng(1)
    for p in (0.0, 0.03, 0.3, 0.5, 0.97, 1.0):
        held = rng.binomial(m, p, 53)
        result = plan.scores(below(plan, held), 53)[0]
        np.testing.assert_allclose(result, brute_force(plan.grid, c, held), rtol=0, atol=2e-13)


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
    """Sensitivity 1, never passed by a single bit; log-ratios within epsilon."""
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


SIZES = [1, 2, 7, 1000]


def slow_tv(m: int, p: float, q: float) -> float:
    x = np.arange(m + 1)
    return 0.5 * float(np.abs(binom.pmf(x, m, p) - binom.pmf(x, m, q)).sum())


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("eta", [0.02, 0.3])
def test_every_binomial_is_within_eta(m: int, eta: float) -> None:
    grid = BinomialGrid.of(m, eta)
    assert len(grid) == math.ceil(math.pi * math.sqrt(m) / (4 * eta)) + 2
    probes = np.sin(np.random.default_rng(1).uniform(0, math.pi / 2, 40)) ** 2
    for p in (*probes, 0.0, 1.0, 1e-7, 0.3 / m):
        near = np.argsort(np.abs(grid.angle - math.asin(math.sqrt(p))))[:3]
        assert min(slow_tv(m, p, grid.p[j]) for j in near) <= eta


@pytest.mark.parametrize("m", SIZES)
def test_the_grid_is_symmetric_and_holds_the_ends(m: int) -> None:
    grid = BinomialGrid.of(m, 0.07)
    assert (grid.p[0], grid.p[-1]) == (0.0, 1.0)
    assert (np.diff(grid.p) > 0).all()
    assert (grid.q == grid.p[::-1]).all()
    np.testing.assert_allclose(grid.p + grid.q, 1, atol=3e-16)
    np.testing.assert_allclose(np.sin(grid.angle) ** 2, grid.p, atol=3e-16)
    assert np.diff(grid.angle).max() <= 2 * 0.07 / math.sqrt(m) * (1 + 1e-12)


def test_the_width_follows_the_error_to_be_expected() -> None:
    assert pick_eta(10_000, math.inf) == 0.004
    assert pick_eta(100, math.inf) == pytest.approx(0.0125)
    assert pick_eta(1000, 0.05) == pytest.approx(0.0125)
    assert pick_eta(3, 0.1) == 0.05


def test_differences_with_dyadic_targets_are_exact() -> None:
    rng = np.random.default_rng(3)
    for n in (1, 53, 10_000, 3_000_000):
        f = rng.uniform(0, 1, 50)
        targets = dyadic(f * n, n)
        np.testing.assert_allclose(targets, f * n, atol=n * 2.0**-48)
        for x in targets.tolist():
            for c in (0, 1, n // 2, n):
                assert Fraction(c - x) == Fraction(c) - Fraction(x)
            for c in doubles(np.array([-n, -5 * n, 2 * n, 900 * n]), n).tolist():
                assert Fraction(c - x) == Fraction(c) - Fraction(x)
    assert doubles(np.array([[3, -900, 7]]), 5).tolist() == [[3.0, -5.0, 7.0]]


@pytest.mark.parametrize(
    ("m", "eta", "words"),
    [(0, 0.1, "m must be"), (3, 0.0, "eta must"), (3, 1.0, "eta"), (1 << 40, 1e-3, "too many")],
)
def test_bad_grids_are_refused(m: int, eta: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BinomialGrid.of(m, eta)
