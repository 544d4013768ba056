"""The paper's printed calibrations against their stated guarantees, and ours beside them.

Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram estimation
under user-level privacy", ICML 2023. Each test takes one statement of the paper, evaluates it
exactly on the neighbours that break it (or show its slack), and does the same with what fedhist
runs. No noise is drawn where the laws are known in closed form.
"""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from scipy.special import log_ndtr, ndtr
from scipy.stats import poisson

from clients.histograms.queries import ClippedCounts
from fedhist.privacy.guarantee import gaussian_multiplier, zcdp_rho
from fedhist.protocols import BoundedHistogram
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.clip_choice.rule import safe_rank
from server.histograms.reference_clips import c_star_gaussian, c_star_laplace
from simulations.populations.papers import PaperNonIid
from simulations.runtimes.inline import InlinePopulation

DOMAIN = Keys.of(["tea", "rye", "maté"])
N_SENTIMENT = 600_000
DELTA = 1 / (2 * N_SENTIMENT)


def clipped(rows, query):
    """The exact sum that the server holds, computed by the real client half."""
    users = Users.from_records({f"u{i}": row for i, row in enumerate(rows)})
    return InlinePopulation([users], 1).ask(query, 0).sums["counts"]


def gaussian_delta(distance, std, epsilon):
    """Smallest delta of two Gaussians so far apart (Balle & Wang 2018, Theorem 8)."""
    a, b = distance / (2 * std), epsilon * std / distance
    return float(ndtr(a - b) - math.exp(epsilon + log_ndtr(-a - b)))


def gaussian_epsilon(distance, std, delta):
    low, high = 0.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        if gaussian_delta(distance, std, middle) > delta:
            low = middle
        else:
            high = middle
    return high


OTHERS = [{"tea": 2, "rye": 1}, {"maté": 7}]
REPLACED = {"tea": 40}, {"rye": 25}  # both beyond the clip, on disjoint items


# -- erratum 1: the adjacency that is declared and the noise that is calibrated --------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_laplace_noise_of_scale_c_over_epsilon_gives_twice_epsilon_under_replacement(epsilon):
    clip = 8.0
    query = ClippedCounts(DOMAIN, clip, 1)
    a, b = (clipped([*OTHERS, row], query) for row in REPLACED)
    distance = np.abs(a - b).sum()
    # the largest log-ratio of two Laplace densities is the l1 distance over the scale
    assert distance / (clip / epsilon) == pytest.approx(2 * epsilon)
    ours = BoundedHistogram(DOMAIN, epsilon, clip, adjacency="replace-user")
    assert distance / ours.noise.scale == pytest.approx(epsilon)
    zero = BoundedHistogram(DOMAIN, epsilon, clip)
    gone = clipped([*OTHERS, {}], query)
    assert np.abs(a - gone).sum() / zero.noise.scale == pytest.approx(epsilon)


def test_gaussian_noise_calibrated_to_c_gives_more_than_epsilon_under_replacement():
    clip = 8.0
    query = ClippedCounts(DOMAIN, clip, 2)
    a, b = (clipped([*OTHERS, row], query) for row in REPLACED)
    distance = float(np.linalg.norm(a - b))
    printed = clip * gaussian_multiplier(1.0, DELTA)
    assert gaussian_epsilon(distance, printed, DELTA) == pytest.approx(1.454, abs=0.001)
    assert gaussian_delta(distance, printed, 1.0) == pytest.approx(2.0e-4, rel=0.03)
    ours = BoundedHistogram(DOMAIN, 1.0, clip, DELTA, adjacency="replace-user").noise.scale
    assert gaussian_delta(distance, ours, 1.0) == pytest.approx(DELTA, rel=1e-6)
    # an independent accountant agrees about what the printed calibration costs
    oracle = pld_privacy_accountant.PLDAccountant()
    oracle.compose(dp_event.GaussianDpEvent(printed / distance))
    assert oracle.get_epsilon(DELTA) == pytest.approx(1.454, abs=0.002)


def test_thresholds_change_with_the_adjacency():
    # the optimal ranks move with the noise: M by sqrt 2, ceil(d / epsilon) by 2
    rng = np.random.default_rng(5)
    norms = rng.pareto(1.2, 4000) + 1
    d, epsilon = 50, 1.0
    zero, replace = (c_star_laplace(norms, d, epsilon, k1) for k1 in (1.0, 2.0))
    ordered = np.sort(norms)[::-1]
    assert (zero, replace) == (ordered[d - 1], ordered[2 * d - 1])
    mass = d * gaussian_multiplier(epsilon, DELTA) * math.sqrt(2 / math.pi)
    tails = [
        norms[norms > c_star_gaussian(norms, norms, k2 * mass)].size for k2 in (1.0, math.sqrt(2))
    ]
    assert tails == [math.floor(mass), math.floor(mass * math.sqrt(2))]


# -- erratum 3: Lemma 4.1 --------------------------------------------------------------------------


def test_the_closed_form_of_the_gaussian_is_a_quarter_too_loud():
    printed = math.sqrt(2 * math.log(1.32 / DELTA)) / 1.0
    exact = gaussian_multiplier(1.0, DELTA)
    assert (printed, exact) == pytest.approx((5.343, 4.262), abs=0.001)
    assert gaussian_delta(1.0, printed, 1.0) < DELTA / 100  # valid, far from needed
    assert gaussian_delta(1.0, exact, 1.0) == pytest.approx(DELTA, rel=1e-6)
    # the analytic form needs no epsilon <= 1
    for epsilon in (2.0, 8.0):
        s = gaussian_multiplier(epsilon, DELTA)
        assert gaussian_delta(1.0, s, epsilon) == pytest.approx(DELTA, rel=1e-6)
    discrete = math.sqrt(0.5 / zcdp_rho(1.0, DELTA))
    assert discrete == pytest.approx(4.568, abs=0.001)


# -- erratum 4: Theorem 4.3's formula, and what its proof leaves out -------------------------------


def test_the_optimal_threshold_is_a_minimum_over_c_and_not_an_arg_min_of_the_sum():
    # "arg min {sum <= M}" would be met by every C above the largest norm, where the sum is 0
    l1, l2 = np.array([9.0, 4.0, 3.0, 1.0]), np.array([7.0, 4.0, 3.0, 1.0])
    mass = 2.5
    best = c_star_gaussian(l1, l2, mass)
    slope = l1 / l2

    def bound(c):
        return float((np.maximum(1 - c / l2, 0) * l1).sum() + c * mass)

    fine = np.linspace(0, 10, 100_001)
    assert bound(best) == pytest.approx(min(bound(c) for c in fine), rel=1e-4)
    assert bound(best) < bound(8.0) / 1.3  # where the printed sum has its arg min
    assert slope[l2 > best].sum() <= mass < slope[l2 >= best].sum()


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_factor_two_of_theorem_4_3_needs_no_small_epsilon(epsilon):
    rng = np.random.default_rng(8)
    rows = [
        {f"i{j}": int(k) for j, k in enumerate(rng.pareto(1.0, 6) * 3) if k >= 1}
        for _ in range(200)
    ]
    users = Users.from_records({f"u{i}": r for i, r in enumerate(rows)})
    domain = Keys.of([f"i{j}" for j in range(6)])
    for clip in (0.5, 2.0, 10.0, 80.0):
        protocol = BoundedHistogram(domain, epsilon, clip, delta=1e-4, nonneg=False)
        exact = protocol.error(users).expected
        kept = clipped(rows, protocol.query)
        bias = protocol.truth(users) - kept
        upper = float(bias.sum()) + 6 * protocol.noise.mean_absolute
        assert exact <= upper * (1 + 1e-9)
        assert upper <= 2 * exact * (1 + 1e-9)


# -- erratum 5: the threshold of Algorithm 3 -------------------------------------------------------


def leak(counts, threshold, scale):
    """P(some item that one user alone holds is released), continuous Laplace noise."""
    stays = [1 - 0.5 * math.exp((c - threshold) / scale) for c in counts]
    return 1 - math.prod(stays)


def splits(c):
    """All multisets of positive integers with sum at most c."""
    for length in range(1, c + 1):
        for parts in itertools.combinations_with_replacement(range(1, c + 1), length):
            if sum(parts) <= c:
                yield parts


@pytest.mark.parametrize("c", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_the_printed_threshold_is_valid_but_loose(c, epsilon):
    delta, scale = 1e-3, c / epsilon
    printed = c + scale * math.log(c / (2 * delta))
    exact = scale * (max(c / scale, math.log(c) + 1 / scale) - math.log(2 * delta))
    worst_printed = max(leak(s, printed, scale) for s in splits(c))
    worst_exact = max(leak(s, exact, scale) for s in splits(c))
    assert worst_printed <= delta * (1 + 1e-12)
    assert worst_exact <= delta * (1 + 1e-12)
    assert worst_exact > 0.99 * delta
    assert exact <= printed
    if math.exp(epsilon) <= c:  # many items are the worst case: loose by exactly C - 1
        assert printed - exact == pytest.approx(c - 1 if c > 1 else 0.0)


# -- erratum 7: Corollary B.4's threshold ----------------------------------------------------------


@pytest.mark.parametrize(("c", "epsilon"), [(1, 1.0), (4, 1.0), (1, 0.2)])
def test_the_threshold_of_corollary_b4_leaks_more_than_delta(c, epsilon):
    delta, scale = 1e-6, c / epsilon
    dropped = scale * math.log(c / (2 * delta))
    worst = max(leak(s, dropped, scale) for s in ((c,), (1,) * c))
    assert worst > 1.15 * delta
    assert worst == pytest.approx(max(math.exp(epsilon) / c, math.exp(epsilon / c)) * delta, 1e-3)


# -- erratum 9: Theorem C.3 ------------------------------------------------------------------------


def capped_mean(rate, c):
    """h(rate) = E min(Poi(rate), c), by summation."""
    k = np.arange(c)
    return c - float(((c - k) * poisson.pmf(k, rate)).sum())


def bias_of_debiasing(rates, weights, c):
    mean = float(np.dot(rates, weights))
    return abs(float(np.dot([capped_mean(r, c) for r in rates], weights)) - capped_mean(mean, c))


@pytest.mark.parametrize("c", [10, 20, 40])
def test_large_rates_do_not_belong_to_the_fast_group_of_theorem_c3(c):
    rates, weights = np.array([0.0, 2.0 * (c - 1)]), np.array([0.5, 0.5])
    mean = float(np.dot(rates, weights))
    spread = float(np.dot((rates - mean) ** 2, weights))
    printed = 0.83 ** (c - 1) * spread / (2 * math.sqrt(2 * math.pi * (c - 1)))
    result = bias_of_debiasing(rates, weights, c)
    assert result > 2 * printed  # between 0 and 2 (C - 1) lies C - 1, where h'' is largest
    for rate in (mean, *rates, 1.5 * c, 5.0 * c):  # what holds there: concave and increasing
        tangent = capped_mean(mean, c) + poisson.cdf(c - 1, mean) * (rate - mean)
        assert tangent - capped_mean(rate, c) >= -1e-9
        if rate >= mean:
            assert tangent - capped_mean(rate, c) <= rate - mean + 1e-9
    assert result <= 0.5 * (rates[1] - mean) + 1e-9


def test_theorem_c3_and_its_proof_differ_by_a_power_of_c():
    c, share = 101, 0.01
    rates, weights = np.array([0.0, c - 1.0]), np.array([1 - share, share])
    mean = float(np.dot(rates, weights))
    spread = float(np.dot((rates - mean) ** 2, weights))
    stated = (0.83 ** (c - 1) * spread + share) / math.sqrt(8 * math.pi * (c - 1))
    proved = 0.83 ** (c - 1) * spread + math.sqrt(2 / math.pi) * (c - 1) ** 1.5 * share
    result = bias_of_debiasing(rates, weights, c)
    assert stated * 100 < result <= proved


# -- erratum 10: the generator of Table 1 ----------------------------------------------------------


@pytest.mark.parametrize(
    ("reading", "median_loss", "q90_loss"), [("fitted", 0.705, 0.169), ("as-printed", 0.346, 0.061)]
)
def test_the_printed_dirichlet_does_not_give_table_1(reading, median_loss, q90_loss):
    users = PaperNonIid(n_users=60_000, reading=reading, seed=3).load().users
    c = users.counts
    sizes = np.diff(np.concatenate(([0], np.cumsum(c.count.astype(np.int64))))[c.indptr])
    for quantile, want in ((0.5, median_loss), (0.9, q90_loss)):
        clip = np.quantile(sizes, quantile)
        result = np.maximum(sizes - clip, 0).sum() / sizes.sum()
        # standard error over populations of this size: 0.002 and 0.0015
        assert result == pytest.approx(want, abs=0.009)
    paper = (0.6957 + 0.7016) / 2, (0.1645 + 0.1713) / 2
    assert (abs(median_loss - paper[0]) < 0.01) == (reading == "fitted")


# -- erratum 11: the exponential mechanism at rank 1 / epsilon -------------------------------------


def em_law(tails, rank, epsilon):
    logits = -epsilon / 2 * np.abs(tails - rank)
    p = np.exp(logits - logits.max())
    return p / p.sum()


def test_the_private_quantile_at_rank_one_over_epsilon_falls_into_the_empty_tail():
    rng = np.random.default_rng(4)
    counts = rng.poisson(rng.gamma(1.0, 10.0, 100_000))
    edges = np.unique(np.geomspace(1, 1000, 60).round())
    tails = np.array([(counts > e).sum() for e in edges])
    empty = tails == 0
    assert 10 < empty.sum() < 40
    printed = em_law(tails, 1.0, 0.1)
    ours = em_law(tails, safe_rank(1.0, len(edges), 0.1), 0.1)
    assert printed[empty].sum() > 0.7  # the data say nothing there: any C up to C_m
    assert ours[empty].sum() < 0.02 + 1e-9
