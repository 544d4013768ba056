import math
from itertools import product

import numpy as np
import pytest

from fedhist.channels.scalar import scalar_channel
from server.means.sparse_mean import VoteLaw, keep_largest, pick_support, vote_gain, vote_threshold
from server.printed.means import paper_threshold


@pytest.mark.parametrize("s", range(1, 10))
def test_gains_by_enumerating_all_signs(s: int) -> None:
    """An even number of votes has the gain of one vote MORE (not one less)."""
    patterns = np.array(list(product((-1, 1), repeat=s)))
    total = patterns.sum(axis=1)
    assert vote_gain(s) == pytest.approx((patterns[:, 0] * np.sign(total)).mean(), abs=1e-15)
    for reach in (0.5, 1.0, 2.0, 2 * math.sqrt(s)):
        clipped = np.clip(total, -reach, reach)
        assert vote_gain(s, reach) == pytest.approx((patterns[:, 0] * clipped).mean(), abs=1e-14)
    if s % 2 == 0:
        assert vote_gain(s) == pytest.approx(vote_gain(s + 1))
        assert vote_gain(s) < vote_gain(s - 1)


def test_gain_for_many_votes() -> None:
    assert vote_gain(10**6) == pytest.approx(math.sqrt(2 / math.pi / 10**6), rel=1e-3)
    assert vote_gain(10**4, 1e9) == pytest.approx(1.0)
    assert vote_gain(0) == vote_gain(0, 1.0) == 0.0


def test_deviation_of_a_score_of_no_vote() -> None:
    """Sums of four votes with Laplace noise, 100,000 users: 2 percent are eight deviations."""
    rng, law = np.random.default_rng(3), VoteLaw(scalar_channel("laplace", 4.0), 4, 4.0)
    total = rng.choice([-1, 1], (100_000, 4)).sum(axis=1)
    noise = 4.0 * rng.laplace(0, 2 / 4.0, 100_000)
    assert (total + noise).std() == pytest.approx(law.deviation, rel=0.02)


def test_sign_needs_fewer_users_than_clipped_sums() -> None:
    """Erratum 5: 2 to 5 times fewer for epsilon up to 2 (more still for an odd s)."""
    for epsilon in (0.5, 1.0, 2.0):
        for s in (2, 4, 8):
            sign = VoteLaw(scalar_channel("onebit", epsilon), s)
            clipped = VoteLaw(scalar_channel("laplace", epsilon), s, 2 * math.sqrt(s))
            assert 2 < (sign.lead(1.0) / clipped.lead(1.0)) ** 2 < 5


def test_pick_support() -> None:
    scores = np.array([3.0, 0.5, 7.0, 3.0, -9.0, 5.0])
    assert pick_support(scores, 2, 1.0).tolist() == [2, 5]
    assert pick_support(scores, 3, 1.0).tolist() == [0, 2, 5]  # of equal ones the lowest
    assert pick_support(scores, 2, 1.0, first=True).tolist() == [0, 2]
    assert pick_support(scores, 9, 4.0).tolist() == [2, 5]
    assert pick_support(scores, 2, 8.0).tolist() == []


def test_keep_largest() -> None:
    stderr = np.full(5, 0.1)
    level = 0.1 * math.sqrt(2 * math.log(10))
    value = np.array([0.9, level * 0.99, -0.8, level * 1.01, 0.7])
    assert keep_largest(value, stderr, 5).tolist() == [0.9, 0.0, -0.8, value[3], 0.7]
    assert keep_largest(value, stderr, 2).tolist() == [0.9, 0.0, -0.8, 0.0, 0.0]
    # a fold without reports has an infinite standard error
    assert keep_largest(value, np.array([np.inf] * 5), 5).tolist() == [0.0] * 5
    # other evidence counts as well
    sure = np.array([False, True, False, False, False])
    assert keep_largest(value, stderr, 5, sure)[1] == value[1]


def test_thresholds() -> None:
    expected = 0.5 * math.sqrt(2 * math.log(1000) / 200)
    assert vote_threshold(200**-0.5, 1000, 4) == pytest.approx(expected)
    assert vote_threshold(3 * 200**-0.5, 1000, 4) == pytest.approx(3 * expected)
    assert vote_threshold(1.0, 5, 9) == vote_threshold(1.0, 5, 5)
    least, items = paper_threshold(400, 10**6, 50, 2, 1.0, 1.0)
    assert items == math.floor(math.exp(0.01 * 400 / 2))  # T* below T
    assert least == pytest.approx(math.sqrt(2 * math.log(100) / items))
    assert paper_threshold(10**6, 64, 50, 2, 2.0, math.inf)[1] == 64
