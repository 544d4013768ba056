"""Plan and radii of centred reports."""

import math
from itertools import pairwise

import numpy as np
import pytest

from fedhist.channels.rank_unit import RankUnit
from server.centred.stages import (
    LAST_SHARE,
    SHARES,
    learned_radius,
    plan_centred,
    radius_edges,
    vote_share,
)
from server.targets.domains import project_simplex

SETTINGS = [
    # d, n, epsilon, T, stages, predicted variance
    (64, 20_000, 1.0, 1, 1, 0.02026),
    (64, 20_000, 1.0, 32, 4, 0.00320),
    (64, 200_000, 1.0, 4, 2, 0.001074),
    (16, 5_000, 2.0, 2, 1, 0.00516),
    (64, 20_000, 4.0, 8, 3, 0.000380),
]


@pytest.mark.parametrize(("d", "n", "epsilon", "T", "stages", "risk"), SETTINGS)
def test_plans(d: int, n: int, epsilon: float, T: int, stages: int, risk: float) -> None:
    plan = plan_centred(n, 1 / math.sqrt(T), 1.0, epsilon, d)
    assert plan.n_stages == stages
    assert plan.n_rounds == 2 * stages - 1
    assert plan.risk == pytest.approx(risk, rel=0.005)
    # the recursion, written out
    v, P = RankUnit(epsilon, d).v, 0.0
    for share in plan.shares:
        rho = min(1.0, 1.35 * math.sqrt(1 / T + 1 / P)) if P else 1.0
        P += share * n / v / rho**2
    assert plan.risk == pytest.approx(1 / P, rel=1e-12)
    assert set(plan.shares[:-1]) <= set(SHARES)
    assert stages == 1 or plan.shares[-1] >= LAST_SHARE
    total = sum(plan.shares) + (stages - 1) * plan.vote_share
    assert total == pytest.approx(1.0, abs=1e-12)


def test_no_more_stages_without_gain_and_none_without_noise() -> None:
    assert plan_centred(10_000, 1.0, 1.0, 1.0, 64).shares == (1.0,)
    free = plan_centred(10_000, 0.1, 1.0, math.inf, 64)
    assert (free.shares, free.risk, free.vote_share) == ((1.0,), 0.0, 0.0)
    few = plan_centred(10, 0.1, 1.0, 0.1, 64)
    assert not few.feasible
    assert few.risk == 1.0


@pytest.mark.parametrize("lo", [0.0, 0.25])
def test_stages_and_votes_divide_the_users(lo: float) -> None:
    plan = plan_centred(20_000, 0.1, 1.0, 1.0, 64)
    parts = plan.intervals(lo)
    assert len(parts) == plan.n_rounds
    assert (parts[0][0], parts[-1][1]) == (lo, 1)
    assert all(a[1] == b[0] for a, b in pairwise(parts))
    sizes = [(b - a) / (1 - lo) for a, b in parts]
    assert sizes[::2] == pytest.approx(plan.shares)
    assert sizes[1::2] == pytest.approx([plan.vote_share] * (plan.n_stages - 1))


def test_the_share_of_the_votes() -> None:
    one = 4 * math.exp(1.0) / (math.exp(1.0) - 1) ** 2  # n times the variance of a share
    assert vote_share(1000, 1.0, 405.0) == 0.08
    assert vote_share(20_000, 1.0, 405.0) == pytest.approx(400 * one / 20_000)
    assert vote_share(1e6, 8.0, 2.0) == 0.02
    assert vote_share(1e6, 1.0, 120.0) == pytest.approx(2 * one / 120)
    assert vote_share(1e6, 1.0, 10.0) == 0.08
    assert vote_share(1e9, 1e-9, 1e20) == 0.08
    assert vote_share(100, math.inf, 0.0) == 0.08


def test_edges_go_down_to_half_of_the_planned_distance() -> None:
    edges = radius_edges(0.5, 1.0, 0.2)
    assert edges[0] == 0.75
    assert edges[:-1] / edges[1:] == pytest.approx(np.full(len(edges) - 1, math.sqrt(2)))
    assert edges[-1] >= 0.1 > edges[-1] / math.sqrt(2)
    assert radius_edges(1.0, 0.6, 0.2)[0] == 1.2
    assert len(radius_edges(1.0, 1.0, 1e-9)) == 15
    assert len(radius_edges(0.01, 1.0, 1.0)) == 2


def brute_force(
    shares: np.ndarray,
    stds: np.ndarray,
    edges: np.ndarray,
    before: float,
    P: float,
    n: float,
    opens: float,
) -> float:
    """The rule of the docstring, bin by bin."""
    mass = project_simplex(shares)
    mass, stds = mass[:-1] / mass[:-1].sum(), stds[:-1] / mass[:-1].sum()
    best = (math.inf, before)
    for i, edge in enumerate(edges):
        if sum(mass[:i]) > 0.3:
            break
        radius, b, s = min(edge, before), 0.0, 0.0
        for j in range(len(edges)):
            low = edges[j + 1] if j + 1 < len(edges) else 0.0
            if low >= radius < opens:
                far = (edges[j] + low) / 2 - radius
                b, s = b + far * mass[j], s + (far * stds[j]) ** 2
        b = max(0.0, b - math.sqrt(s) / 2)
        told = n / min(radius, opens) ** 2
        V = 1 / (P + told)
        risk = V + (told * V * b) ** 2
        best = min(best, (risk, radius))
    return best[1]


def test_the_radius_weighs_bias_against_noise() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        before = rng.uniform(0.1, 1.0)
        edges = radius_edges(before, 1.0, rng.uniform(0.01, 0.5))
        stds = np.full(len(edges) + 1, rng.choice([0.0, 0.01, 0.05]))
        shares = rng.dirichlet(np.full(len(edges) + 1, 0.3)) + stds * rng.standard_normal(
            len(edges) + 1
        )
        P, n, opens = rng.choice([0.0, 50.0]), 10 ** rng.uniform(1, 6), rng.choice([0.3, 1.0])
        learned = learned_radius(
            shares, stds, edges, before, precision=P, reports=n, open_radius=opens
        )
        assert learned.radius == brute_force(shares, stds, edges, before, P, n, opens)
        assert learned.radius <= before
        assert 0 <= learned.outside <= 1


def test_users_far_out_are_left_out_where_noise_is_more_than_they_are() -> None:
    """5 percent at the edge of the ball, the others near: few reports cut them, many do not."""
    edges = radius_edges(1.0, 1.0, 0.05)
    shares = np.zeros(len(edges) + 1)
    shares[1], shares[-2] = 0.05, 0.95
    stds = np.full(len(shares), 0.001)
    few = learned_radius(shares, stds, edges, 1.0, precision=0.0, reports=20)
    many = learned_radius(shares, stds, edges, 1.0, precision=0.0, reports=1e5)
    assert few.radius < 0.1
    assert few.outside == pytest.approx(0.05)
    assert few.bias == pytest.approx(0.05 * 0.83, rel=0.15)
    assert few.unseen == pytest.approx(0.002 * np.sqrt(np.sum(edges[1:] >= few.radius)))
    assert many.radius > 0.7
    # what could be the votes' noise is not stated: of twelve bins, .02 a share
    blurred = learned_radius(shares, 20 * stds, edges, 1.0, precision=0.0, reports=20)
    assert blurred.outside == pytest.approx(0.05)
    beyond = np.sqrt(np.sum(edges[1:] >= blurred.radius))
    assert blurred.unseen == pytest.approx(0.05 + 0.04 * beyond)
    assert blurred.bias == 0.0


def test_users_without_a_vector_count_where_votes_see_them() -> None:
    edges = radius_edges(1.0, 1.0, 0.2)
    shares = np.zeros(len(edges) + 1)
    shares[-2:] = 0.7, 0.3
    for std, usable in ((0.1, 0.7), (0.2, 1.0)):
        stds = np.full(len(shares), std)
        learned = learned_radius(shares, stds, edges, 1.0, precision=0.0, reports=100)
        assert learned.usable == pytest.approx(usable)
        assert learned.usable_error == pytest.approx(std / 0.7 if usable < 1 else 0.0)


def test_a_report_that_cuts_nobody_has_no_bias() -> None:
    """Where the ball around the estimate is as wide as all of it, that is asked for again."""
    edges = radius_edges(1.0, 1.0, 0.2)
    far = np.zeros(len(edges) + 1)
    far[0] = 1.0
    around = learned_radius(far, 0 * far, edges, 1.0, precision=0.0, reports=1e4)
    whole = learned_radius(far, 0 * far, edges, 1.0, precision=0.0, reports=1e4, open_radius=1.0)
    assert (around.radius, around.outside, around.bias > 0.2) == (1.0, 1.0, True)
    assert (whole.radius, whole.outside, whole.bias) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize("d", [1, 2, 8])
def test_what_is_kept_of_the_centres_error_is_the_slope_of_shortened_means(d: int) -> None:
    """Of 200,000 drawn vectors, by differences; a bin of the grid is a factor of sqrt 2 wide."""
    points = np.random.default_rng(62).standard_normal((200_000, d)) * 0.12 / math.sqrt(d)
    size = np.linalg.norm(points, axis=1)
    edges = radius_edges(0.5, 1.0, 0.1)
    shares = np.bincount(len(edges) - 1 - np.searchsorted(edges[:0:-1], size), minlength=len(edges))
    shares = np.append(shares / len(points), 0.0)
    learned = learned_radius(shares, 0 * shares, edges, 0.5, precision=0.0, reports=20, dimension=d)
    assert learned.outside > 0.02

    def shortened(centre: float) -> float:
        left = points - np.eye(d)[0] * centre
        keep = np.minimum(1, learned.radius / np.linalg.norm(left, axis=1))
        return centre + float((keep * left[:, 0]).mean())

    slope = (shortened(0.02) - shortened(-0.02)) / 0.04
    assert learned.kept == pytest.approx(slope, rel=0.35)
