"""The plans of a vote and of stages, and how a vote is read."""

import math

import numpy as np
import pytest

from server.localize.choice import (
    Stage,
    best_window,
    clipped_normal,
    keep_inside,
    least_users,
    plan_paper,
    plan_stages,
    plan_univariate,
    stages_risk,
)


def first_voting_n(epsilon: float, most_failure: float = 1.0) -> int:
    low, high = 2, 1 << 20
    while high - low > 1:
        n = (low + high) // 2
        plan = plan_univariate(n, 2**-5, 1.0, epsilon)
        if plan.feasible and plan.n_bins > 1 and plan.failure < most_failure:
            high = n
        else:
            low = n
    return high


@pytest.mark.parametrize("n", [1, 100, 10_000, 1_000_000])
def test_one_sample_a_user_needs_no_vote(n: int) -> None:
    plan = plan_univariate(n, 1.0, 1.0, 1.0)
    assert (plan.n_bins, plan.vote_share, plan.half_width) == (1, 0.0, 1.0)


@pytest.mark.parametrize(("epsilon", "n"), [(0.25, 7000), (0.5, 1750), (1.0, 450), (2.0, 110)])
def test_feasibility_of_the_vote(epsilon: float, n: int) -> None:
    signal = 16 * math.tanh(epsilon / 4) ** 2
    assert 150 < first_voting_n(epsilon) * signal < 250
    assert 0.7 * n < first_voting_n(epsilon, 1e-3) < 1.3 * n


def test_risk_falls_with_users_and_scales_with_the_range() -> None:
    risks = [plan_univariate(n, 1 / 32, 1.0, 1.0).risk for n in (10, 100, 400, 1000, 4000)]
    assert risks == sorted(risks, reverse=True)
    unit, wide = plan_univariate(2000, 1 / 32, 1, 1), plan_univariate(2000, 10 / 32, 10, 1)
    assert wide.n_bins == unit.n_bins
    assert wide.half_width == pytest.approx(10 * unit.half_width)
    assert wide.risk == pytest.approx(100 * unit.risk)


@pytest.mark.parametrize(("scale", "epsilon"), [(1.0, 1.0), (1 / 32, 0.1), (1e-4, 2.0)])
def test_least_users_is_least(scale: float, epsilon: float) -> None:
    n = least_users(scale, 1.0, epsilon)
    assert plan_univariate(n, scale, 1.0, epsilon).feasible
    assert n == 1 or not plan_univariate(n - 1, scale, 1.0, epsilon).feasible


def test_bad_plan_parameters() -> None:
    with pytest.raises(ValueError, match="0, 1 and 1"):
        plan_univariate(0, 1, 1, 1.0)


def test_paper_plan() -> None:
    plan = plan_paper(1500, 1024, 1 / 32, 1.0, 1.0)
    delta = math.sqrt(0.25 * math.log(1500 * 1024) / 1024)
    assert plan.half_width == 3.5 * delta
    assert plan.n_bins == math.ceil(2 / delta)
    assert plan.failure < 0.05
    assert plan.max_items == 1024
    capped = plan_paper(1500, 10**9, 10**-4.5, 1.0, 1.0)
    assert capped.max_items == math.floor(math.exp(15))
    with pytest.raises(ValueError, match="epsilon"):
        plan_paper(2, 1, 1.0, 1.0, 0.1)


def test_window_and_centroid_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    for n_bins in (2, 3, 4, 17):
        h = rng.normal(0.1, 0.3, (50, n_bins))
        places, masses = best_window(h, -1.0, 3.0)
        for k in range(50):
            sums = [h[k, j] + h[k, j + 1] for j in range(n_bins - 1)]
            best = int(np.argmax(sums))
            width = 4.0 / n_bins
            middle = -1.0 + (best + 1) * width
            centres = -1.0 + (np.arange(n_bins) + 0.5) * width
            use = [j for j in range(best - 1, best + 3) if 0 <= j < n_bins]
            shift = sum(h[k, j] * (centres[j] - middle) for j in use) / max(0.5, sums[best])
            want = middle + np.clip(shift, -0.75 * width, 0.75 * width)
            assert places[k] == pytest.approx(want)
            assert masses[k] == pytest.approx(sums[best])


def test_ties_go_to_the_lowest_window_and_intervals_stay_inside() -> None:
    place, _ = best_window(np.array([[0.1, 0.4, 0.1, 0.4, 0.1]]), 0.0, 5.0)
    assert place[0] < 2  # of bins 0 to 4
    moved = keep_inside(np.array([-0.95, 0.0, 0.95]), 0.2, -1.0, 1.0)
    assert moved == pytest.approx([-0.8, 0.0, 0.8])
    assert keep_inside(np.array([0.3]), 1.5, -1.0, 1.0).tolist() == [0.0]


def test_stages_narrow_and_their_shares_add_up() -> None:
    plan = plan_stages(250.0, 500**-0.5, 1.0, 2.0)
    widths = [s.half_width for s in plan.stages]
    assert widths[0] == 1.0
    assert widths == sorted(widths, reverse=True)
    assert sum(s.share for s in plan.stages) == pytest.approx(1)
    assert len(plan_stages(250.0, 1.0, 1.0, 2.0).stages) == 1  # one sample a user


def test_the_clipped_mean_of_a_normal() -> None:
    x = np.linspace(-9, 9, 200_001)
    density = np.exp(-((x - 0.3) ** 2) / (2 * 0.49))
    slow = (np.clip(x, -0.5, 0.5) * density).sum() / density.sum()
    assert clipped_normal(np.array([0.3]), 0.7, 0.5)[0] == pytest.approx(slow, abs=1e-6)


def test_the_risk_of_stages_is_that_of_runs() -> None:
    """Against the recursion drawn 20,000 times: 1 % is one standard error of a mean square."""
    n, sigma, own = 300.0, 0.06, 0.06**2
    stages = tuple(Stage(f, h, 8.0 * h * h + own) for f, h in ((0.3, 1.0), (0.3, 0.4), (0.4, 0.2)))
    rng = np.random.default_rng(2)
    value, precision = np.zeros(20_000), 0.0
    for s in stages:
        noise = s.user_variance / (s.share * n)
        told = value + clipped_normal(-value, sigma, s.half_width) if precision else value
        told = told + math.sqrt(noise) * rng.normal(size=20_000)
        value = (precision * value + told / noise) / (precision + 1 / noise)
        precision += 1 / noise
    assert stages_risk(stages, n, sigma) == pytest.approx((value**2).mean(), rel=0.06)
