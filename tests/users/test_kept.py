"""Users kept for many rounds, and walked by blocks: those that are in memory, cut alike."""

from __future__ import annotations

import numpy as np
import pytest
from walked_users import Walked, same_users

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.kept import PROBED, FirstInMemory, keep_first, size_of
from simulations.populations import population

N = 300


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0, 2.0])
def test_blocks_and_slices_are_those_of_the_users(share: float) -> None:
    plan = population("zipf", n_users=N, d=30, mean_items=6, tail=3.0, seed=3).plan()
    whole = plan.users.in_memory()
    result, taken = keep_first(plan.users, int(share * size_of(whole)))
    assert isinstance(result, FirstInMemory)
    assert taken == sum(map(size_of, result.parts)) <= 1.3 * share * size_of(whole)
    assert min(1.0, share) * N * 0.7 <= sum(map(len, result.parts)) <= N
    assert (result.digest, list(result.public_ids())) == (plan.users.digest, list(whole.ids))
    for start, stop in ((0, N), (0, 7), (60, 290), (299, 300), (80, 80)):
        some = result.slice(start, stop)
        same_users(some.in_memory(), whole.slice(start, stop))
        for size in (1, 64, 70, N, 1000):
            blocks = list(some.blocks(size))
            want = list(whole.slice(start, stop).blocks(size))
            for a, b in zip(blocks, want, strict=True):
                same_users(a, b)
    assert keep_first(result, 10**9) == (result, 0)


def test_nobody_fits() -> None:
    plan = population("zipf", n_users=N, d=30, mean_items=6, seed=3).plan()
    some = size_of(plan.users.slice(0, PROBED).in_memory())
    assert keep_first(plan.users, some - 1) == (plan.users, some - 1)
    for users, room in ((plan.users, 0), (plan.users.in_memory(), 10**9)):
        assert keep_first(users, room) == (users, 0)
    nobody = plan.users.slice(0, 0)
    assert keep_first(nobody, 10**9) == (nobody, 0)


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
