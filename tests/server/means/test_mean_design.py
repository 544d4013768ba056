"""The public plan of a mean's rounds, and how the server reads checks, signs and stages."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtr

from server.means.checks import Fit, Shells, plan_check, share_error, shell_edges
from server.means.design import RISKED, WORTH, Design, plan_mean
from server.means.localize import plan_one_round, plan_univariate
from server.means.signs import read_signs, sign_variance, sign_worth, weighted
from server.means.stages import Stage, clipped_normal, plan_stages, stage_risks


def planned(
    n: float, T: float, epsilon: float, *, differ: bool = True, refine: bool = True
) -> Design:
    return plan_mean(n, T**-0.5, 1.0, epsilon, T, "onebit", differ=differ, refine=refine)


# -- which rounds ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "T", "epsilon", "path"),
    [
        (5000, 200, 1.0, "signs"),
        (3000, 1000, 2.0, "signs"),
        (5000, 200, 0.5, "clip"),  # signs would gain nothing
        (5000, 20, 1.0, "clip"),  # too few samples for the normal law of their means
        (20_000, 200, 3.0, "clip"),  # clipped reports are as good at this budget
        (250, 500, 0.7, "stages"),
        (60, 1000, 2.0, "stages"),
        (5000, 1, 1.0, "one round"),
        (200, 2, 1.0, "one round"),
    ],
)
def test_which_path_is_planned(n: int, T: int, epsilon: float, path: str) -> None:
    design = planned(n, T, epsilon)
    if path == "stages":
        assert design.stages is not None
        assert 2 <= design.max_rounds == len(design.stages.stages) <= 6
        assert design.unchecked
    elif path == "one round":
        assert design.plain
        assert design.max_rounds == 1
    else:
        assert design.signs == (path == "signs")
        assert design.check is not None
        assert not design.unchecked
        assert design.max_rounds == 4


def test_users_who_are_the_same_are_not_checked() -> None:
    checked, alike = planned(5000, 200, 1.0), planned(5000, 200, 1.0, differ=False)
    assert alike.check is None
    assert alike.signs
    assert not alike.unchecked
    assert alike.max_rounds == 3
    assert alike.risk < checked.risk
    clip = planned(5000, 200, 1.0, differ=False, refine=False)
    assert clip.plain
    assert clip.risk == clip.vote.risk
    assert planned(250, 500, 0.7, refine=False).stages is None


def test_a_vote_of_small_gain_is_not_worth_users_far_away() -> None:
    def both(n: int, T: int, epsilon: float) -> tuple[Design, Design, float]:
        given = n, T**-0.5, 1.0, epsilon, T, "piecewise"
        differ, same = (plan_mean(*given, differ=x, refine=True) for x in (True, False))
        return differ, same, plan_one_round(*given[:4], "piecewise").risk

    for n in (1000, 5000, 20_000):
        differ, same, alone = both(n, 30, 8.0)
        assert differ.plain
        assert differ.max_rounds == 1
        assert same.vote.n_bins > 1
        assert same.risk < alone == differ.risk < WORTH * same.risk
    for n, T, epsilon in ((1000, 300, 4.0), (5000, 300, 2.0), (20_000, 30, 2.0)):
        differ, _, alone = both(n, T, epsilon)
        assert differ.vote.n_bins > 1
        assert alone >= WORTH * differ.risk


def test_without_noise_there_is_one_round() -> None:
    assert planned(5000, 200, math.inf).plain


def test_a_vote_that_cannot_be_checked_says_so() -> None:
    assert planned(250, 500, 0.7, refine=False).plain  # no vote: nothing to check
    few = plan_mean(800, 500**-0.5, 1.0, 0.7, 500.0, "onebit", differ=True, refine=False)
    assert few.vote.n_bins > 1
    assert few.check is None
    assert few.unchecked


# -- the check -------------------------------------------------------------------------------


def test_the_check_asks_a_fifth_at_most_and_no_more_than_it_needs() -> None:
    gain = math.tanh(0.5)
    for n in (600, 5000, 100_000):
        vote = plan_univariate(n, 200**-0.5, 1.0, 1.0)
        check, rest = plan_check(vote, n, 200**-0.5, 1.0, gain), n * (1 - vote.vote_share)
        asked = min(0.2 * rest, max(0.08 * rest, 70 / gain**2))
        assert check.share * rest == pytest.approx(asked)
        each = asked / (1 if asked < 140 / gain**2 else 2)  # two intervals where many are asked
        assert check.error == pytest.approx(share_error(each, gain))
        assert len(check.half_widths) == (1 if n < 100_000 else 2)
        assert 0.5 < check.expected <= 0.95
    assert share_error(70 / gain**2, gain) == pytest.approx(0.5 / math.sqrt(70))
    assert share_error(0, gain) == math.inf


def test_shells_reach_as_far_as_they_must() -> None:
    for H, reach in ((0.1, 1.3), (0.25, 2.0), (0.3, 0.2), (1e-5, 2.0)):
        edges = shell_edges(H, reach)
        assert edges[0] == H
        assert (edges[1:] == 2 * edges[:-1]).all()
        assert edges[-1] >= reach * (1 - 1e-9)
        assert len(edges) == 1 or edges[-2] < reach


def test_few_users_far_away_alarm_where_many_answer() -> None:
    gain, scale = math.tanh(2.0), 300**-0.5
    vote = plan_univariate(20_000, scale, 1.0, 4.0)
    check = plan_check(vote, 20_000, scale, 1.0, gain)
    near, wide = check.half_widths
    assert near == vote.half_width
    assert wide == pytest.approx(1 / vote.n_bins + 2.5 * scale)
    assert check.expected == 0.95
    for x, sure in zip((near, wide), check.certain, strict=True):
        agree = np.random.default_rng(1).normal(1 / vote.n_bins, scale, 400_000)
        assert sure <= (np.abs(agree) <= x).mean() + 0.001
    few, many = np.full(2, 70.0), np.full(2, 2000.0)
    assert check.thresholds(few)[0] < 0.95
    for least, sure, errors in zip(check.thresholds(many), check.certain, (3, 2), strict=True):
        assert least == pytest.approx(sure - errors * share_error(2000, gain, sure))
    assert (check.thresholds(np.zeros(2)) == -math.inf).all()  # nobody answered: no alarm
    # two percent beyond the wider interval are noticed nearly always; the same in the first not
    assert check.thresholds(np.full(2, check.n_users))[1] > 0.98
    assert 0.005 < check.unnoticed < 0.02


def test_a_plan_says_which_users_would_be_served_better_otherwise() -> None:
    """By the squared bias of those who pass unnoticed, over one report; words, and the rule."""
    design = planned(20_000, 300, 2.0)
    assert design.check is not None
    one = plan_one_round(20_000, 300**-0.5, 1.0, 2.0, "onebit").risk
    loses = design.check.unnoticed**2 / 2 / one
    assert f"cost {loses:.2g} times the error of one report" in design.close
    assert loses < RISKED * one / design.risk
    # a vote gains a factor of 3 where users agree, and may cost 13 where few do not
    one_report = plan_mean(5000, 300**-0.5, 1.0, 8.0, 300, "piecewise", differ=True, refine=True)
    assert one_report.vote.n_bins == 1
    assert one_report.close.endswith("errs 3.2 times less")
    assert not planned(5000, 200, 1.0, differ=False).close


def test_many_users_whose_interval_is_wide_already_are_noticed_in_it() -> None:
    """One interval, wider than the second would be: who agrees is in it but for the tails."""
    scale, gain = 0.1, math.tanh(1.0)
    vote = plan_univariate(10**7, scale, 1.0, 2.0, "onebit")
    check = plan_check(vote, 10**7, scale, 1.0, gain)
    assert check.half_widths == (vote.half_width,)
    agree = check.certain[0]
    assert agree > check.expected
    assert check.unnoticed == pytest.approx(3 * share_error(check.n_users, gain, agree) / agree)
    many = [planned(n, 100, 2.0).risk for n in (10**5, 10**6, 10**7, 10**8)]
    assert all(more < few / 5 for few, more in pairwise(many))


def fit(
    shares: list[float], *, noise: float = 1e-3, offset: float = 0.0, unit: float = 1e-2
) -> Fit:
    edges = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
    return Shells(edges, noise, 1.0, offset, unit).fit(np.array(shares))


def test_the_width_after_an_alarm() -> None:
    for shares, width, outside in (
        ([0.86, 0.1, 0.04, 0, 0], 0.1, 0.14),  # a false alarm costs no width
        ([0.5, 0.3, 0.15, 0.05, 0], 0.4, 0.05),
        ([0.2, 0.2, 0.2, 0.2, 0.2], 1.0, 0.0),  # the range: nothing is clipped
        ([0.5, 0.2, 0.1, 0.1, 0.1], 0.8, 0.1),
    ):
        found = fit(shares, noise=1e-2)
        assert (found.half_width, found.outside) == (width, pytest.approx(outside, abs=0.03))
        expected = 2 / 3 * width * math.hypot(found.outside, 0.1) if width < 1 else 0.0
        assert found.bias == pytest.approx(expected)


def test_a_wide_interval_where_what_is_clipped_is_surely_worth_it() -> None:
    skewed = [0.6, 0.2, 0.08, 0.06, 0.06]
    assert fit(skewed, noise=1e-2).half_width == 0.4
    assert fit(skewed, noise=1e-6, unit=1e-6).half_width == 1.0
    # far away: what is clipped counts more than two thirds of a half width
    far = fit([0.88, 0.0, 0.0, 0.0, 0.12], noise=1e-6, unit=1.0)
    assert far.half_width == 0.1
    assert far.bias == pytest.approx(0.12 * (0.9 - 0.1), abs=2e-3)


def test_many_rows_of_shares_get_the_widths_of_each() -> None:
    rows = np.random.default_rng(1).dirichlet([3.0, 1.0, 0.5, 0.3, 0.2], 200)
    noisy = rows + np.random.default_rng(2).normal(0, 0.05, rows.shape)
    edges = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
    for offset, unit in ((0.0, 1e-2), (0.5, 1e-4)):
        shells = Shells(edges, 0.05**2, 1.0, offset, unit)
        one_by_one = [shells.fit(row).half_width for row in noisy]
        assert shells.half_widths(noisy).tolist() == one_by_one
        assert len(set(one_by_one)) > 2


def test_an_interval_that_is_shifted_into_the_range_reaches_farther() -> None:
    # 0.3 of 0.8 lies beyond the end; the other side then reaches to 1.1 of 1.5
    shifted = fit([0.5, 0.2, 0.1, 0.1, 0.1], noise=1e-2, offset=0.5)
    assert shifted.half_width == 0.8
    assert shifted.outside == pytest.approx(0.1 * (1.6 - 1.1) / 0.8, abs=0.03)


# -- signs -----------------------------------------------------------------------------------


def test_signs_of_a_normal_law_tell_its_mean_and_scale() -> None:
    for theta, scale in ((0.05, 0.08), (-0.03, 0.12), (0.0, 0.1)):
        shares = ndtr((theta - np.array([-0.075, 0.075])) / scale)
        found = read_signs(shares, np.full(2, 1e12), 0.0, 0.075, 0.1, 0.5)
        assert (found.mean, found.scale) == (pytest.approx(theta), pytest.approx(scale))
        assert found.variance < 1e-10


@pytest.mark.parametrize("theta", [0.0, 0.06])
def test_the_variance_of_signs(theta: float) -> None:
    gain, sizes, step, scale = math.tanh(0.5), np.array([3000.0, 3000.0]), 0.075, 0.1
    rng = np.random.default_rng(1)
    up = ndtr((theta - np.array([-step, step])) / scale)
    ones = rng.binomial(3000, (1 - gain) / 2 + gain * up, (4000, 2)) / 3000
    told = [read_signs((s - (1 - gain) / 2) / gain, sizes, 0.0, step, scale, gain) for s in ones]
    errors = np.array([t.mean - theta for t in told])
    # 4,000 runs: 2.2 % is one standard error of a variance
    assert np.mean([t.variance for t in told]) == pytest.approx((errors**2).mean(), rel=0.12)


def test_the_planned_variance_is_that_of_both_rounds() -> None:
    gain, n, scale = math.tanh(0.5), 8000.0, 0.1
    halves = [n * share / 2 for share in (0.25, 0.75)]
    pairs = [
        read_signs(ndtr(np.array([b, -b])), np.full(2, h), 0.0, b * scale, scale, gain)
        for b, h in zip((0.75, 0.6), halves, strict=True)
    ]
    assert sign_variance(n, scale, gain) == pytest.approx(weighted(*pairs)[1])
    # (pi / 2) s^2 e^(b^2 / s^2) / (gain^2 n), but for the square of a share's distance from 1/2
    page = math.pi / 2 * scale**2 * math.exp(0.36) / gain**2 / n
    assert sign_variance(n, scale, gain) == pytest.approx(page, rel=0.06)


def test_the_gates_of_signs() -> None:
    assert sign_worth(3100, 30, 1.0)
    assert not sign_worth(3000, 30, 1.0)  # the error of a share in half a quarter: 0.056
    assert not sign_worth(1e9, 29, 1.0)
    assert not sign_worth(1e9, 30, 3.0)
    assert not sign_worth(0.0, 30, 1.0)


def test_hopeless_shares_are_kept_in_bounds() -> None:
    for shares in ([0.2, 0.9], [2.0, -3.0], [0.5, 0.5]):
        found = read_signs(np.array(shares), np.ones(2), 0.0, 0.075, 0.1, 0.5)
        assert 0.025 <= found.scale <= 0.13
        assert math.isfinite(found.mean)
        assert math.isfinite(found.variance)


# -- stages ----------------------------------------------------------------------------------


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


@pytest.mark.parametrize("mean", [None, 0.2, 0.85])
def test_the_risk_of_stages_is_that_of_runs(mean: float | None) -> None:
    """Against the recursion drawn 20,000 times: 1 % is one standard error of a mean square."""
    n, sigma, own = 300.0, 0.06, 0.06**2
    stages = tuple(Stage(f, h, 8.0 * h * h + own) for f, h in ((0.3, 1.0), (0.3, 0.4), (0.4, 0.2)))
    rng = np.random.default_rng(2)
    theta, ends = (0.0, math.inf) if mean is None else (mean, 1.0)
    value, precision = np.zeros(20_000), 0.0
    for s in stages:
        noise = s.user_variance / (s.share * n)
        centre = np.clip(value, -(ends - s.half_width), ends - s.half_width)
        if precision == 0:
            told = np.full(20_000, theta)
        else:
            told = centre + clipped_normal(theta - centre, sigma, s.half_width)
        told = told + math.sqrt(noise) * rng.normal(size=20_000)
        if precision == 0:
            told = np.clip(told, -ends, ends)
        value = (precision * value + told / noise) / (precision + 1 / noise)
        precision += 1 / noise
    found = stage_risks(stages, n, sigma, 1.0, mean)
    assert len(found) == 3
    assert found[-1] == pytest.approx(((value - theta) ** 2).mean(), rel=0.06)
