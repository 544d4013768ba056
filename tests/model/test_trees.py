"""Sums in the shape of a tree: a slow obvious recursion, any order of arrival, gaps."""

from __future__ import annotations

import numpy as np
import pytest

from fedhist.model.query import Summary, Tree

VALUES = np.random.default_rng(7).standard_cauchy(37)


def leaf(i: int) -> Summary:
    return Summary(1, {"x": VALUES[i : i + 1].copy()})


def slow(indices: list[int], a: int, b: int) -> float | None:
    if b - a == 1:
        return float(VALUES[a]) if a in indices else None
    left, right = slow(indices, a, (a + b) // 2), slow(indices, (a + b) // 2, b)
    return right if left is None else left if right is None else left + right


@pytest.mark.parametrize("n", [1, 2, 3, 8, 37])
@pytest.mark.parametrize("order", ["up", "down", "any"])
def test_any_order_gives_the_sum_of_the_tree(n: int, order: str) -> None:
    there = list(range(n)) if n < 5 else [i for i in range(n) if i % 5 != 2]
    arrival = {"up": there, "down": there[::-1]}.get(order) or list(
        np.random.default_rng(1).permutation(there)
    )
    tree = Tree()
    for i in arrival:
        tree.add(int(i), leaf(i))
    total = tree.total()
    assert total.n_users == len(there)
    assert total.sums["x"][0] == slow(there, 0, 64)
    assert tree.total().sums["x"][0] == total.sums["x"][0]


def test_subtrees_stand_for_their_leaves() -> None:
    whole, parts = Tree(), Tree()
    for i in range(11):
        whole.add(i, leaf(i))
    for group in range(2, -1, -1):  # aligned groups of four, the last one cut
        tree = Tree()
        for i in range(4 * group, min(4 * group + 4, 11)):
            tree.add(i - 4 * group, leaf(i))
        parts.add(group, tree.total(), level=2)
    assert parts.total().sums["x"][0] == whole.total().sums["x"][0]
    assert len(whole) == 3


def test_a_part_comes_once() -> None:
    tree = Tree()
    tree.add(4, leaf(4))
    with pytest.raises(ValueError, match="part 4 of level 0"):
        tree.add(4, leaf(4))
