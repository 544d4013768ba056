"""Parts of the experiment on users with different numbers of samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulations.experiments.ragged_users import (
    FEW_SYMBOLS,
    Crowd,
    lemma_10_holds,
    lemma_10_users,
)


@pytest.mark.parametrize("k", [3, FEW_SYMBOLS + 1])
def test_crowds_have_the_sizes_that_are_said(k: int) -> None:
    """Both ways of drawing; the median, and all of them alike."""
    crowd = Crowd(3000, 20, 200, k)
    users, sizes = crowd.draw(5)
    v = users.counts
    owner = np.repeat(np.arange(3000), np.diff(v.indptr))
    assert np.bincount(owner, v.count, 3000) == pytest.approx(sizes)
    assert sizes.min() >= 1
    assert sizes.max() == 200
    # a log-normal's median: its standard error is 1.25 / sqrt(3000) of it, 4.5 of them
    assert np.median(sizes) == pytest.approx(20, rel=0.11)
    assert set(crowd.draw(5, alike=True)[1]) == {20}


def test_lemma_10_is_four_conditions() -> None:
    """Each of them broken by itself."""
    sizes = np.repeat([4, 16, 64], 1000)

    def holds(size: int, users: float, epsilon: float = 0.5) -> bool:
        return lemma_10_holds(sizes, size, users, 64, epsilon, 0.05)

    room = 2 * math.log(64 / 0.05) ** 2 / 0.5
    assert lemma_10_users(64, 0.5, 0.05) == pytest.approx(8 * room)
    assert holds(16, 2000)
    assert holds(16, 2000 + 0.99 * room)
    assert not holds(16, 2000 + 1.01 * room)
    assert not holds(4, 3000)  # below half the median
    assert not holds(65, 0.0)  # nobody has as many
    assert not holds(64, 1000, 0.001)  # s-hat below 3 s / 8
    assert holds(64, 1200)
