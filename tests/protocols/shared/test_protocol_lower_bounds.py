from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.model.registry import load_builtin, own_protocols, protocol_class
from fedhist.privacy.guarantee import Trust
from fedhist.protocols import Mean, MeanLinf, NaiveMean
from fedhist.protocols.means.sparse.sparse_mean import SparseMean
from fedhist.protocols.shared.lower_bounds import sizes_of
from fedhist.users.batch import Users
from server.means.lower_bounds import Sizes, coins, rate_box, rate_sparse, two_point_bound
from simulations.experiments.predicted.rows import Setting

load_builtin()
LOCAL = [
    name
    for name in sorted(own_protocols())
    if protocol_class(name).example().guarantee.trust is Trust.LOCAL
]


@pytest.mark.parametrize("name", LOCAL)
def test_results_settings_err_more_than_the_explicit_bound(name: str) -> None:
    """The lower end of what validation allows to be measured is above what cannot be beaten.

    Without bounds: totals of a histogram, whose users may hold any number of items; quantiles.
    """
    cls = protocol_class(name)
    seen = 0
    for row in cls.results():
        if row.population.get("n_users", 0) > 30_000:
            continue
        users, protocol, _ = Setting(cls, row).fixed
        for bound in protocol.lower_bounds(users):
            seen += 1
            predicted = protocol.error(users)
            assert bound.loss == predicted.loss
            assert bound.value >= 0
            if bound.explicit:
                assert bound.value <= row.band[0] * predicted.expected, row.label
    assert seen or name in ("local-histogram", "quantiles"), name


def people(sizes: list[int], n: int = 1000) -> Users:
    held = np.resize(sizes, n)
    indptr = np.concatenate(([0], np.cumsum(held)))
    return Users.from_samples(np.arange(n, dtype=np.uint64), indptr, np.zeros(indptr[-1]))


def test_sizes_are_those_held_or_planned() -> None:
    found = sizes_of(people([1, 3, 0]), 0.0)
    assert (found.items.tolist(), found.users.tolist()) == ([1.0, 3.0], [334.0, 333.0])
    stand_in = sizes_of(people([1]), 63.2)  # one sample stands for the mean of 63.2
    assert (stand_in.items.tolist(), stand_in.users.tolist()) == ([64.0], [1000.0])


def test_the_bounds_of_means() -> None:
    """The range scales them by its square; in more than one dimension an order stands beside."""
    users = people([20])
    one = Mean(0.5, 1000, 20.0, low=-1.0, high=1.0)
    (bound,) = one.lower_bounds(users)
    sizes = Sizes(np.array([20.0]), np.array([1000.0]))
    assert bound.explicit
    assert bound.value == two_point_bound(sizes, 0.5, coins())
    wide = replace(one, low=0.0, high=6.0).lower_bounds(users)[0]
    assert wide.value == pytest.approx(9 * bound.value)
    # users who are known to be nearer than their samples say are worth more samples
    near = replace(one, mean_scale=0.01).lower_bounds(users)[0]
    assert near.value == two_point_bound(Sizes(np.array([1e4]), sizes.users), 0.5, coins())

    explicit, order = MeanLinf(0.5, 1000, 4, 20.0, low=-1.0, high=1.0).lower_bounds(users)
    assert explicit == bound
    assert not order.explicit
    assert order.value == rate_box(1000, 20, 0.5, 4)
    assert "Theorem 6" in order.source
    assert "epsilon <= 1" not in order.source
    late = SparseMean(2.0, 1000, 40, 20.0, sparsity=3).lower_bounds(users)[1]
    assert late.value == rate_sparse(1000, 20, 2.0, 40, 3)
    assert late.source.endswith("stated for epsilon <= 1")


def test_what_no_bound_is_about() -> None:
    """Item-level privacy and trusting the server; without noise there is an explicit one only."""
    users = people([20])
    item = NaiveMean(0.5, 1000, method="item-level", samples_per_user=20)
    assert item.lower_bounds(users) == ()
    assert protocol_class("few-users-mean").example().lower_bounds(users) == ()
    (free,) = MeanLinf(math.inf, 1000, 4, 20.0).lower_bounds(users)
    assert free.value == 0.0
