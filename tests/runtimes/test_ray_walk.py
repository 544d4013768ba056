"""Passes over users that a prediction takes, as tasks: the driver's sums, to the bit."""

from __future__ import annotations

import numpy as np

from fedhist.model.measures import walked
from fedhist.model.query import Summary
from fedhist.model.trees import Tree
from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK
from simulations.populations import population
from simulations.runtimes.ray_walk import GROUP, WalkedOnRay, _part


def of(users: Users) -> Summary:
    """Add up reals of many sizes: their order shows in the last bits."""
    x = users.ids * 2.0**-64
    return Summary(len(users), {"x": np.array([(x**3).sum(), np.exp(20 * x).sum()])})


def test_groups_of_blocks_add_up_as_the_whole_walk_does() -> None:
    plan = population("zipf", n_users=(2 * GROUP + 1) * BLOCK + 7, d=2, mean_items=1).plan()
    wanted = walked(of, plan.users)
    tree = Tree()
    for first in (2 * GROUP, 0, GROUP):
        tree.join(_part(of, plan.users, first))
    found = tree.total()
    assert found.n_users == wanted.n_users == len(plan.users)
    assert found.sums["x"].tobytes() == wanted.sums["x"].tobytes()


def test_without_ray_users_are_walked_here() -> None:
    plan = population("zipf", n_users=100, d=2, mean_items=1).plan()
    users = WalkedOnRay(plan.users)
    assert len(users) == 100
    assert users.digest == plan.users.digest
    assert walked(of, users).sums["x"].tobytes() == walked(of, plan.users).sums["x"].tobytes()
