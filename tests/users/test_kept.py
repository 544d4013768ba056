"""Users kept for many rounds, and walked by blocks: those that are in memory, cut alike."""

from __future__ import annotations

import numpy as np
import pytest
from walked_users import Walked, same_users

from fedhist.base.errors import PopulationError
from fedhist.users.batch import InMemory, Users, keep, size_of
from simulations.populations import population

N = 300


def test_users_who_fit_are_in_memory() -> None:
    plan = population("zipf", n_users=N, d=30, mean_items=6, seed=3).plan()
    whole = plan.users.in_memory()
    result, taken = keep(plan.users, 2 * size_of(whole))
    assert isinstance(result, InMemory)
    assert taken == size_of(whole)
    assert (result.digest, list(result.public_ids())) == (plan.users.digest, list(whole.ids))
    same_users(result.slice(60, 290), whole.slice(60, 290))
    for a, b in zip(result.blocks(70), whole.blocks(70), strict=True):
        same_users(a, b)
    assert keep(result, 10**9) == (result, 0)


def test_users_who_do_not_fit_are_made_again() -> None:
    plan = population("zipf", n_users=N, d=30, mean_items=6, seed=3).plan()
    nobody = plan.users.slice(0, 0)
    tight = size_of(plan.users.in_memory()) // 2
    for users, room in ((plan.users, tight), (plan.users.in_memory(), 10**9), (nobody, 10**9)):
        assert keep(users, room) == (users, 0)


@pytest.fixture(params=["items", "samples"])
def users(request: pytest.FixtureRequest) -> Users:
    if request.param == "samples":
        return Users.from_samples([9, 2, 5, 7], [0, 2, 2, 3, 6], np.arange(12.0).reshape(6, 2))
    names = "abcdefgh"
    return Users.from_records({n: {m: i + 1 for m in names[i:]} for i, n in enumerate(names)})


def test_blocks_put_together_are_the_users(users: Users) -> None:
    walked = Walked(users, 3)
    same_users(walked.in_memory(), users)
    assert np.array_equal(walked.public_ids(), users.ids)
    assert len(walked.none) == 0
    assert walked.slice(0, 0).in_memory().n_items().size == 0


@pytest.mark.parametrize("n_nodes", [1, 2, 3, 4])
def test_nodes_are_cut_alike(users: Users, n_nodes: int) -> None:
    for mine, theirs in zip(Walked(users, 3).split(n_nodes), users.split(n_nodes), strict=True):
        same_users(mine.in_memory(), theirs)


def test_no_node_without_users(users: Users) -> None:
    for n_nodes, told in ((0, "positive, got 0"), (99, "99 nodes need")):
        with pytest.raises(PopulationError, match=told):
            Walked(users, 3).split(n_nodes)
