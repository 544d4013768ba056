"""Numbers under keys against a dictionary: overlaps, any order of keys, bytes above ASCII."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from fedhist.model.query import Keyed
from fedhist.users.keys import Keys, add_up, union

RNG = np.random.default_rng(5)
NAMES = ["", "a", "aa", "aä", "b", "z", "é", "éa", "€", "😀", "\x00", "a\x00"]
NAMES += [f"key {i}" for i in range(40)]


def drawn(n: int, ordered: bool) -> Keys:
    names = [NAMES[i] for i in RNG.choice(len(NAMES), n, replace=False)]
    return Keys.of(sorted(names, key=str.encode) if ordered else names)


@pytest.mark.parametrize("ordered", [True, False])
def test_the_union_of_two_is_that_of_sets(ordered: bool) -> None:
    for n_a, n_b in [(0, 0), (0, 5), (5, 0), (1, 1), (20, 30), (len(NAMES), 12), (9, len(NAMES))]:
        a, b = drawn(n_a, ordered), drawn(n_b, ordered)
        keys, at_a, at_b = union(a, b)
        assert list(keys) == sorted({*a, *b}, key=str.encode)
        assert [keys[i] for i in at_a.tolist()] == list(a)
        assert [keys[i] for i in at_b.tolist()] == list(b)
        assert keys == Keys.of(list(keys))
        assert all(keys.position(name) == i for i, name in enumerate(keys))
        same, here, there = union(keys, keys)
        assert same == keys
        assert here.tolist() == there.tolist() == list(range(len(keys)))
        with pytest.raises(ValueError, match="read-only"):
            keys.data[:] = 0


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_sums_under_keys_are_those_of_a_dictionary(n: int, shape: tuple[int, ...]) -> None:
    parts = []
    for i in range(n):
        keys = drawn(int(RNG.integers(0, 30)), ordered=bool(i % 2))
        parts.append(Keyed(keys, RNG.integers(-5, 9, (len(keys), *shape))))
    want: dict[str, np.ndarray] = {}
    for part in parts:
        for key, value in zip(part.keys, part.values, strict=True):
            want[key] = want.get(key, 0) + value
    for order in (parts, parts[::-1]):
        got = Keyed.merge(order)
        assert list(got.keys) == sorted(want, key=str.encode)
        assert all((v == want[k]).all() for k, v in zip(got.keys, got.values, strict=True))
        assert not any(np.shares_memory(got.values, p.values) for p in parts)


def test_reals_under_a_key_add_in_the_shape_of_the_tree() -> None:
    values = np.array([1.0, 2.0**-53, 2.0**-53, 2.0**-53] * 4)
    key = Keys.of(["x"])
    want = values
    while len(want) > 1:
        want = want[::2] + want[1::2]
    got = add_up([(key, values[i : i + 1]) for i in range(16)])[1]
    assert got[0] == want[0]
    assert got[0] != list(accumulate(values))[-1]  # the values tell the two apart
