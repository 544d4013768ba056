"""Shards: what is walked by blocks is what is in memory, cut as nodes are."""

from __future__ import annotations

import numpy as np
import pytest
from walked_users import Walked, same_users

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users


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
