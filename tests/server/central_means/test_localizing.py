"""The draw of a radius, noise of sums and the plan: exact on tiny cases."""

import math
from typing import Any

import numpy as np
import pytest

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.guarantee import Adjacency, gaussian_multiplier
from fedhist.protocols import CentralMean
from server.central_means.localizing import (
    DECAY,
    FAR,
    MISSED,
    Localizing,
    RadiusChoice,
    least_radius,
    left_out,
    median_scores,
    sum_noise,
)

CHOICE = RadiusChoice(1.0, 0.2, 0.8)
K = len(CHOICE.radii)


def law(inside: Integers, choice: RadiusChoice = CHOICE) -> Floats:
    """Weights exp(epsilon score), as the Curator draws them at sensitivity 1/2."""
    log = choice.epsilon * choice.scores(inside)
    weight = np.exp(log - log.max())
    return np.asarray(weight / weight.sum())


def test_one_user_beyond_is_free_and_a_radius_twice_as_large_weighs_a_sixteenth() -> None:
    """1 / epsilon = 1.25 users cost nothing."""
    inside = np.zeros(K, dtype=np.int64)
    inside[0], inside[-1] = 3, 1
    p = law(inside)
    assert p / p[0] == pytest.approx([2.0 ** (-2 * j) for j in range(K)], rel=1e-9)
    inside[-1] = 2
    assert law(inside)[-1] / law(inside)[0] == pytest.approx(2.0**-8 * math.exp(0.8 * 0.75))


@pytest.mark.parametrize("k", [20, 80])
def test_far_users_are_seen_from_the_stated_number_on(k: int) -> None:
    """k users at 1, the others within 2^-8; with MISSED logarithms more they are missed by 5%.

    No mechanism draws 1 there with more than exp(epsilon k) times its probability without them.
    """
    choice = RadiusChoice(1.0, 2.0**-8, 0.5)
    inside = np.zeros(len(choice.radii), dtype=np.int64)
    inside[0] = 400
    without = law(inside, choice)
    inside[-1] = k
    drawn = law(inside, choice)
    assert drawn[-1] <= math.exp(choice.epsilon * k) * without[-1] * (1 + 1e-9)
    least = DECAY * math.log(2.0**8) + 1
    assert (drawn[-1] > 0.35) == (choice.epsilon * k > least)  # r^-3 shares out the rest
    smallest = float(choice.radii[0])
    assert choice.unseen(smallest) == pytest.approx((least + MISSED) / 0.5)
    if k >= choice.unseen(smallest):
        assert drawn[0] < math.exp(-MISSED)


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
    assert wide.delta == 1e-6
    assert wide.std() == pytest.approx(l2 * gaussian_multiplier(1.0, 1e-6), rel=1e-6)
    shared = sum_noise(1.0, 1e-6, 100, adjacency, rho=0.1)
    assert shared.std() == pytest.approx(l2 * math.sqrt(5), rel=1e-6)
    assert shared.std(0.25) == pytest.approx(2 * shared.std(), rel=1e-12)
    line = sum_noise(1.0, 1e-6, 1, adjacency)
    l1 = 1.2 if adjacency is Adjacency.ADD_REMOVE_USER else l2
    assert line.delta == 0
    assert line.std(0.5) == pytest.approx(2 * math.sqrt(2) * l1, rel=1e-6)
    assert sum_noise(1.0, 0.0, 9, adjacency).delta == 0


def test_the_score_of_a_bin_is_the_larger_side_of_it() -> None:
    assert median_scores(np.array([[1, 2, 1]])).tolist() == [[-3, -1, -3]]


def planned(n: int, d: int, delta: float, **given: Any) -> Localizing | None:
    return CentralMean(
        **{"epsilon": 1.0, "delta": delta, "n_users": n, "dimension": d, "box": 1.0} | given
    ).plan


def test_a_radius_leaves_no_more_than_a_fifth_unseen() -> None:
    choice = RadiusChoice(1.0, least_radius(200, 0.3), 0.3)
    assert choice.unseen(choice.smallest) == pytest.approx(FAR * 200)
    assert choice.unseen(float(choice.radii[0])) <= FAR * 200
    assert left_out([], 9.0) == (0.0, 0.0, 0.0)  # a public radius leaves nobody out


def test_looks_that_cannot_be_twice_as_good_are_not_made() -> None:
    assert planned(100, 1, 1e-6) is None
    assert planned(200, 1, 1e-6) is not None
    assert planned(20, 40, 1e-6) is None
