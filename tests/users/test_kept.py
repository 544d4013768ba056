"""Users kept for many rounds: the same users and blocks as made anew, within a budget."""

from __future__ import annotations

import pytest
from walked_users import same_users

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
