"""Users who differ: the moments that each kind claims, and what it refuses.

Every statistical check compares with a band of six standard errors or more: a false alarm has
probability below 2e-9 each. The seeds are fixed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedhist.users.batch import Users
from simulations.populations import population
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


def item_counts(users: Users, d: int) -> np.ndarray:
    """Every user's counts: (n, d)."""
    items = users.counts
    out = np.zeros((len(users), d))
    np.add.at(
        out, (np.repeat(np.arange(len(users)), np.diff(items.indptr)), items.item), items.count
    )
    return out


@pytest.mark.parametrize("users", ["dirichlet", "two-clusters", "outliers"])
def test_items_of_differing_users(users: str) -> None:
    """Moments of Dirichlet(5 p) with T items: p (1 - p) (1 / 6 + 5 / 6 / T)."""
    d, T = 6, 30
    given: dict[str, Any] = {"n_users": 6000, "d": d, "mean_items": T, "tail": math.inf}
    loaded = population("zipf", **given, users=users).load()
    counts = item_counts(loaded.users, d)
    assert (counts.sum(axis=1) == T).all()
    shares = counts / T
    p = 1 / np.arange(1, d + 1)
    p /= p.sum()
    far = {"dirichlet": 0.0, "two-clusters": 0.5, "outliers": 0.05}[users]
    expected = (1 - far) * p + far * p[::-1]
    variance = {
        "dirichlet": p * (1 - p) * (1 / 6 + 5 / 6 / T),
        "two-clusters": expected,
        "outliers": expected,
    }[users]
    assert (np.abs(shares.mean(axis=0) - expected) < 6 * np.sqrt(variance / 6000)).all()
    if users == "dirichlet":
        assert shares.var(axis=0) == pytest.approx(variance, rel=0.12)
    else:
        like = shares @ np.log(p) > shares @ np.log(p[::-1])
        assert (~like).mean() == pytest.approx(far, abs=0.03)
    assert f"users {users}" in loaded.title
