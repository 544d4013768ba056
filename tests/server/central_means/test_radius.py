"""The draw of a radius, the scores of medians and the noise of sums: exact on tiny cases."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.guarantee import Adjacency, gaussian_multiplier, zcdp_rho
from fedhist.protocols.central_means.bin_queries import AwayBins
from fedhist.users.batch import Users
from server.central_means.medians import median_scores, plan_interval
from server.central_means.noise import SumNoise, sum_noise
from server.central_means.radius import DECAY, RadiusChoice
from server.central_means.two_looks import TwoLooks, averaged

CHOICE = RadiusChoice(1.0, 0.2, 0.8)
K = len(CHOICE.radii)


def law(inside: Integers) -> Floats:
    """Weights exp(epsilon score), as the Curator draws them at sensitivity 1/2."""
    log = CHOICE.epsilon * CHOICE.scores(inside)
    weight = np.exp(log - log.max())
    return np.asarray(weight / weight.sum())


def counts_of(places: tuple[int, ...]) -> Integers:
    return np.bincount(np.array(places, dtype=np.int64), minlength=K)


def test_radii_halve_in_two_steps_and_end_at_the_largest() -> None:
    assert CHOICE.radii[-1] == 1.0
    assert CHOICE.radii[0] >= 0.2
    assert CHOICE.radii[1:] / CHOICE.radii[:-1] == pytest.approx(math.sqrt(2))


def test_epsilon_suffices_for_every_neighbour_and_less_does_not() -> None:
    """Every count of up to 9 users in K bins, one added, removed or moved: all log-ratios."""
    worst = 0.0
    every = [c for c in itertools.product(range(10), repeat=K) if sum(c) == 9]
    assert K == 5
    for c in every[::3]:
        base = np.array(c)
        p = np.log(law(base))
        for j in range(K):
            more = base.copy()
            more[j] += 1
            worst = max(worst, float(np.abs(np.log(law(more)) - p).max()))
            if base[j]:
                for k in range(K):
                    moved = base.copy()
                    moved[j] -= 1
                    moved[k] += 1
                    worst = max(worst, float(np.abs(np.log(law(moved)) - p).max()))
    assert worst <= CHOICE.epsilon + 1e-12
    assert worst > 0.7 * CHOICE.epsilon


def test_the_law_of_the_prediction_is_that_of_the_counts() -> None:
    distance = np.random.default_rng(3).uniform(0, 1.2, 40)
    at = np.minimum(np.searchsorted(CHOICE.radii, distance), K - 1)
    assert CHOICE.law(distance) == pytest.approx(law(np.bincount(at, minlength=K)), rel=1e-9)


def test_weights_in_fractions() -> None:
    """Two users beyond the smallest radius cost nothing below 3 / epsilon = 3.75 of them.

    Squares of weights are r^-10, r = 2^(j/2); the mean square of r under r^-5 on an endless grid is
    (1 - 2^-2.5) / (1 - 2^-1.5), 27 % more than that of the smallest.
    """
    p = law(counts_of((0, 0, 0, 4, 4)))
    squares = [Fraction(1, 2 ** (5 * j)) for j in range(K)]
    assert DECAY == 5.0
    assert (p / p[0]) ** 2 == pytest.approx([float(x) for x in squares], rel=1e-9)
    r = 2 ** (np.arange(200) / 2)
    assert (r**-3).sum() / (r**-5).sum() == pytest.approx((1 - 2**-2.5) / (1 - 2**-1.5))
    assert round((1 - 2**-2.5) / (1 - 2**-1.5), 2) == 1.27


@pytest.mark.parametrize("k", [10, 20, 40, 80])
def test_far_users_are_seen_from_the_stated_number_on(k: int) -> None:
    """k users at 1, the others within 2^-8: drawn as epsilon k passes 5 ln(D / r) + 3, not before.

    No mechanism draws 1 there with more than exp(epsilon k) times its probability without them.
    """
    choice = RadiusChoice(1.0, 2.0**-8, 0.5)
    near = np.full(400, 2.0**-9)
    without, found = choice.law(near), choice.law(np.append(near, np.ones(k)))
    assert found[-1] <= math.exp(choice.epsilon * k) * without[-1] * (1 + 1e-9)
    least = DECAY * math.log(2.0**8) + choice.epsilon * choice.free
    assert (found[-1] > 0.5) == (choice.epsilon * k > least)


def test_with_enough_users_an_empty_radius_is_next_to_never_drawn() -> None:
    n = math.ceil(CHOICE.least_users)
    p = law(counts_of((K - 1,) * n))
    assert p[:-1].sum() < 2 * math.exp(-5)


def test_scores_of_medians_move_by_one_at_most() -> None:
    """All counts of up to 4 users in 4 bins."""
    for c in itertools.product(range(5), repeat=4):
        base = np.array([c])
        score = median_scores(base)
        for j, k in itertools.product(range(4), repeat=2):
            more = base.copy()
            more[0, j] += 1
            assert np.abs(median_scores(more) - score).max() <= 1
            if base[0, j]:
                more[0, j] -= 1
                more[0, j] -= 1
                more[0, k] += 1
                assert np.abs(median_scores(more) - score).max() <= 1
    assert median_scores(np.array([[1, 2, 1]])).tolist() == [[-3, -1, -3]]


@pytest.mark.parametrize(
    ("adjacency", "l2"),
    [
        (Adjacency.REPLACE_USER, 2.0),
        (Adjacency.ZERO_OUT_USER, 1.0),
        (Adjacency.ADD_REMOVE_USER, math.sqrt(1.04)),
    ],
)
def test_noise_is_calibrated_to_the_sensitivity(adjacency: Adjacency, l2: float) -> None:
    wide = sum_noise(1.0, 1e-6, 100, adjacency)
    assert wide.kind == "gaussian"
    assert wide.std() == pytest.approx(l2 * gaussian_multiplier(1.0, 1e-6), rel=1e-6)
    assert wide.std(0.25) == pytest.approx(2 * wide.std(), rel=1e-12)
    line = sum_noise(1.0, 1e-6, 1, adjacency)
    l1 = 1.2 if adjacency is Adjacency.ADD_REMOVE_USER else l2
    assert line.kind == "laplace"
    assert line.std(0.5) == pytest.approx(2 * math.sqrt(2) * l1, rel=1e-6)
    assert sum_noise(1.0, 0.0, 9, adjacency).kind == "laplace"


def test_the_plan_spends_its_budget() -> None:
    """By basic composition in one dimension, by zCDP in fifty; users make the shares fall."""

    def cost(d: int, n: int) -> tuple[float, float, SumNoise]:
        p = plan_interval(
            1.0, 1e-6, n, d, 4096, Adjacency.REPLACE_USER, scale_known=False, discrete=False
        )
        em = d * p.median_epsilon + p.radius_epsilon
        rho = (d * p.median_epsilon**2 + p.radius_epsilon**2) / 8
        return em + p.noise.epsilon, rho + p.noise.rho, p.noise

    basic, _, noise = cost(1, 500)
    assert basic == pytest.approx(1.0)
    assert noise.rho == 0
    assert cost(1, 100_000)[2].epsilon == pytest.approx(0.91)  # .01 and .08 for the choices
    _, rho, noise = cost(50, 5000)
    assert rho == pytest.approx(zcdp_rho(1.0, 1e-6))
    assert noise.rho > 0


@pytest.mark.parametrize("adjacency", [a for a in Adjacency if a is not Adjacency.REPLACE_ITEM])
@pytest.mark.parametrize(("n", "d", "delta"), [(300, 1, 0.0), (3000, 1, 1e-6), (5000, 64, 1e-6)])
def test_two_looks_and_the_draw_spend_the_budget(
    adjacency: Adjacency, n: int, d: int, delta: float
) -> None:
    two = TwoLooks(n, d, 32.0, 1.0, delta, adjacency)
    assert two.choice.epsilon + two.noise.epsilon == pytest.approx(1.0, rel=1e-12)
    assert two.noise.delta <= delta
    assert sum(two.shares) == pytest.approx(1.0, rel=1e-12)
    assert two.worthwhile
    first, second = (two.noise.std(s) for s in two.shares)
    for r in (32.0, 1.0):
        w, std = averaged(32 * first, r * second)  # what makes the variance of the average least
        assert w == pytest.approx((32 * first) ** 2 / ((32 * first) ** 2 + (r * second) ** 2))
        assert std**2 == pytest.approx((w * r * second) ** 2 + ((1 - w) * 32 * first) ** 2)


@pytest.mark.parametrize("adjacency", [a for a in Adjacency if a is not Adjacency.REPLACE_ITEM])
@pytest.mark.parametrize(
    ("n", "epsilon", "delta"), [(2000, 1.0, 1e-6), (300, 8.0, 1e-6), (2000, 1.0, 0.0)]
)
def test_three_looks_and_both_draws_spend_the_budget(
    adjacency: Adjacency, n: int, epsilon: float, delta: float
) -> None:
    """By zCDP, without delta by basic composition; the last draw costs the same always."""
    looks = TwoLooks(n, 16, 32.0, epsilon, delta, adjacency, near=0.4)
    radii = 32.0, looks.reach(looks.first_error), 1.0
    draws = [looks.choice, *(looks.next_choice(r, 0.01) for r in radii)]
    assert len({c.epsilon for c in draws[1:]}) == 1
    spent = [draws[0].epsilon, draws[1].epsilon]
    assert sum(looks.shares) == pytest.approx(1.0, rel=1e-12)
    assert looks.noise.delta <= delta
    assert (looks.noise.rho > 0) == (delta > 0)
    if looks.noise.rho:
        rho = sum(e**2 for e in spent) / 8 + looks.noise.rho
        assert rho == pytest.approx(zcdp_rho(epsilon, delta), rel=1e-12)
    else:
        assert sum(spent) + looks.noise.epsilon == pytest.approx(epsilon, rel=1e-12)


def test_the_last_radius_goes_down_to_what_is_said_unless_the_second_is_much_larger() -> None:
    looks = TwoLooks(2000, 16, 32.0, 1.0, 1e-6, Adjacency.REPLACE_USER, near=0.4)
    near = looks.reach(looks.first_error)
    last = looks.next_choice(near, 0.01).radii
    assert last[0] == pytest.approx(looks.reach(0.04))
    assert near <= last[-1] < near * math.sqrt(2)
    assert looks.next_choice(4.01 * near, 0.01).radii.tolist() == [4.01 * near]
    assert looks.next_choice(0.1, 0.01).radii.tolist() == [0.1]


def test_one_record_moves_one_count_between_radii() -> None:
    """A place for every distance, zero and beyond all too: those of the bins that users send."""
    distance = np.array([0.0, 0.2, 0.25, 0.5, 1.0, 7.0])
    counts = CHOICE.counts(distance)
    assert counts.sum() == len(distance)
    assert counts[-1] == 2
    rest = CHOICE.counts(distance[1:])
    assert np.abs(counts - rest).sum() == 1
    bins = AwayBins(np.zeros(1), CHOICE.radii).bins(
        Users.from_samples(np.arange(6), np.arange(7), distance)
    )
    assert np.bincount(bins[:, 0], minlength=K).tolist() == counts.tolist()


def test_what_a_draw_leaves_unseen_is_told_from_one_user_in_twenty_on() -> None:
    """(5 ln(D / r) + 3) / epsilon users: with half as many the draw misses most of them."""
    choice = RadiusChoice(1.0, 2.0**-8, 0.5)
    radius = float(choice.radii[0])
    assert choice.unseen(radius) == pytest.approx((5 * math.log(2.0**8) + 3) / 0.5)
    near = np.full(1000, radius / 2)
    some = np.append(near, np.ones(int(choice.unseen(radius) / 2)))
    assert choice.law(some)[-1] < 1e-3
    assert "6% of them" in choice.told(radius, 1000)[0]
    assert not choice.told(radius, 2000)
    assert not choice.told(1.0, 100)
