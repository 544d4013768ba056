"""Users who differ: the moments that each kind claims, and what it refuses.

Every statistical check compares with a band of six standard errors or more: a false alarm has
probability below 2e-9 each. The seeds are fixed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from simulations.populations.synthetic import OUTLIERS, own_means

N = 20_000


@pytest.mark.parametrize("users", ["normal", "two-clusters", "outliers"])
def test_own_means_have_the_moments(users: Any) -> None:
    mean = np.array([0.2, -0.1])
    own = own_means(users, mean, 0.15, -1, 1, np.uint64(1), 0, N)
    assert own.shape == (N, 2)
    assert np.abs(own).max() <= 1
    # the square of an outlier has the largest variance: kurtosis 19
    assert own.mean(axis=0) == pytest.approx(mean, abs=6 * 0.15 / math.sqrt(N))
    assert own.std(axis=0) == pytest.approx([0.15, 0.15], rel=6 * math.sqrt(19 / 4 / N))
    if users in ("two-clusters", "outliers"):
        assert len(np.unique(own[:, 0])) == 2
        assert np.array_equal(own[:, 0] > 0.2, own[:, 1] > -0.1)  # one side for all coordinates
        share = 0.5 if users == "two-clusters" else OUTLIERS
        error = math.sqrt(share * (1 - share) / N)
        assert (own[:, 0] > 0.2).mean() == pytest.approx(share, abs=6 * error)
