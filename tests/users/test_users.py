"""Users against plain dictionaries, and errors that name the value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedhist as fh
from fedhist.users.batch import join
from fedhist.users.shards import Items

WORDS = ["tea", "äpple", "rye", "日本", "~"]


def as_dicts(users: fh.Users) -> dict[int, dict[str, int]]:
    c = users.counts
    return {
        int(i): {
            c.vocabulary[int(c.item[k])]: int(c.count[k])
            for k in range(c.indptr[u], c.indptr[u + 1])
        }
        for u, i in enumerate(users.ids)
    }


triples = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 9)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(triples, st.permutations(range(6)))
def test_from_counts_is_a_sum_of_dictionaries(
    events: list[tuple[int, int, int]], order: list[int]
) -> None:
    ids = np.array([10, 7, 2**64 - 1, 0, 55, 3], dtype=np.uint64)[list(order)]
    expected: dict[int, dict[str, int]] = {int(i): {} for i in ids}
    for u, j, c in events:
        if c:
            mine = expected[int(ids[u])]
            mine[WORDS[j]] = mine.get(WORDS[j], 0) + c
    u, j, c = (
        (np.array(x, dtype=np.int64) for x in zip(*events, strict=True)) if events else ([],) * 3
    )
    users = fh.Users.from_counts(ids, u, j, np.array(c, dtype=np.int64), fh.Keys.of(WORDS))
    assert as_dicts(users) == expected
    assert (users.ids[1:] > users.ids[:-1]).all()
    for row in as_dicts(users).values():
        assert list(row) == sorted(row, key=str.encode)  # byte order, whatever the vocabulary's


def sample_users(n: int = 20) -> fh.Users:
    rows = {f"u{u}": {WORDS[(u + k) % 5]: k + 1 for k in range(u % 4)} for u in range(n)}
    return fh.Users.from_records(rows)


def sample_reals(n: int = 20) -> fh.Users:
    return fh.Users.from_records({f"u{u}": [u + k / 8 for k in range(u % 4)] for u in range(n)})


@pytest.mark.parametrize("make", [sample_users, sample_reals])
def test_views(make: object) -> None:
    users = make()
    whole = _rows(users)
    ids = users.ids.tolist()
    assert _rows(users.slice(3, 9)) == {i: whole[i] for i in ids[3:9]}
    assert _rows(users.take(np.array([7, 0, 7 - 20]))).keys() == {ids[7], ids[0]}
    reverse = users.take(np.arange(20)[::-1])
    assert _rows(reverse) == whole
    assert reverse.ids.tolist() == ids[::-1]
    for n_nodes in (1, 3, 20):
        nodes = users.split(n_nodes)
        sizes = [len(n) for n in nodes]
        assert max(sizes) - min(sizes) <= 1
        assert sum(sizes) == 20
        together = join(nodes[::-1])
        assert together.ids.tolist() == ids
        assert _rows(together) == whole
    assert [len(c) for c in users.blocks(8)] == [8, 8, 4]
    assert users.slice(2, 12).slice(3, 5).ids.tolist() == ids[5:7]
    assert _rows(users.slice(2, 12).slice(3, 5)) == {i: whole[i] for i in ids[5:7]}
    assert len(users.slice(4, 4)) == 0
    cohort = fh.Cohort(4, 0.0, 0.5)
    assert users.select(cohort).ids.tolist() == [
        i for i, inside in zip(ids, cohort.contains(users.ids), strict=True) if inside
    ]
    assert users.select(None) is users
    assert users.n_items().tolist() == [len(whole[i]) for i in ids]
    assert users.nbytes > 0


def _rows(users: fh.Users) -> dict[int, object]:
    if users.items is not None:
        return dict(as_dicts(users))
    s = users.reals
    return {
        int(i): s.values[s.indptr[u] : s.indptr[u + 1], 0].tolist() for u, i in enumerate(users.ids)
    }


def test_samples_are_sorted_by_id_with_their_users() -> None:
    users = fh.Users.from_samples([5, 1, 3], [0, 1, 3, 3], [50.0, 10.0, 11.0], unusable=True)
    assert _rows(users) == {1: [10.0, 11.0], 3: [], 5: [50.0]}


def test_counts_above_32_bits() -> None:
    users = fh.Users.from_counts([1], [0, 0], [0, 0], [2**40, 2**40], fh.Keys.of(["a"]))
    assert as_dicts(users) == {1: {"a": 2**41}}
    assert users.counts.count.dtype == np.uint64
    small = fh.Users.from_counts([1], [0], [0], [2**32 - 1], fh.Keys.of(["a"]))
    assert small.counts.count.dtype == np.uint32


def build(ids: object, u: object, j: object, c: object) -> fh.Users:
    return fh.Users.from_counts(ids, u, j, c, fh.Keys.of(["a", "b"]))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (([1, 1], [0], [0], [1]), "1 occurs twice"),
        (([1, 2], [2], [0], [1]), "user .* 2"),
        (([1, 2], [0], [2], [1]), "item .* 2"),
        (([1, 2], [0], [0], [-3]), "-3"),
        (([1, 2], [0], [0], [1.5]), "1.5"),
        (([1, 2], [0], [0], ["x"]), "got 'x'"),
        (([1, 2], [0], [0], [True]), "got True"),
        (([1, 2], [0], [0], [1 << 62]), "got 4611686018427387904"),
        (([1, 2], [0, 1], [0], [1]), "2 users, 1 items and 1 counts"),
    ],
)
def test_bad_counts_are_named(arguments: tuple[object, ...], told: str) -> None:
    with pytest.raises(fh.PopulationError, match=told):
        build(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 1], [0, 1, 2], [0.0, 1.0]), "occurs twice"),
        (([1, 2], [0, 1], [0.0]), "indptr does not describe"),
        (([1, 2], [0, 1, 3], [0.0, 1.0]), "indptr does not describe 2 samples of 2 users"),
        (([1, 2, 3], [0, 2, 1, 2], [0.0, 1.0]), "decreases"),
        (([1, 2, 3], [0, 2**63 - 1, -2, 2], [0.0, 1.0]), "got -2"),
        (([1], [0, 1], np.zeros((1, 1, 1))), "shape"),
    ],
)
def test_bad_samples_are_named(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(fh.PopulationError, match=message):
        fh.Users.from_samples(*arguments, unusable=True)


@pytest.mark.parametrize("records", [{"": {"tea": 1}}, {"a": {"": 1}}, {"": [0.5]}])
def test_an_empty_name_is_refused(records: dict[str, Any]) -> None:
    with pytest.raises(fh.PopulationError, match="'' is no name"):
        fh.Users.from_records(records)


def test_the_two_kinds_of_records() -> None:
    with pytest.raises(fh.PopulationError, match="real samples"):
        _ = sample_reals().counts
    with pytest.raises(fh.PopulationError, match="item counts"):
        _ = sample_users().reals
    counts = sample_users().counts
    with pytest.raises(fh.PopulationError, match="exactly one"):
        fh.Users(np.arange(2, dtype=np.uint64))
    with pytest.raises(fh.PopulationError, match="uint64"):
        fh.Users(np.arange(20), items=counts)
    with pytest.raises(fh.PopulationError, match="3 user ids"):
        fh.Users(np.arange(3, dtype=np.uint64), items=Items(*vars(counts).values()))


def test_repeated_pairs_may_not_overflow() -> None:
    """A wrapped sum would be stored as another number depending on OTHER users' counts."""
    keys = fh.Keys.of(["a"])
    for repeats in (2, 4):
        with pytest.raises(fh.PopulationError, match="total of one item must be below 2\\^62"):
            fh.Users.from_counts([1], [0] * repeats, [0] * repeats, [2**61] * repeats, keys)
    whole = fh.Users.from_counts([1], [0, 0], [0, 0], [2**61, 2**60], keys)
    assert whole.counts.count.tolist() == [2**61 + 2**60]


def test_items_made_by_hand_hold_no_zero() -> None:
    """Random clipping allots one entry a token kept: with zeros it would write beyond its end."""
    keys, indptr = fh.Keys.of(["a", "b", "c"]), np.array([0, 1, 3])
    item = np.arange(3, dtype=np.uint32)
    with pytest.raises(fh.PopulationError, match="counts must be positive, got 0 in entry 1"):
        Items(keys, indptr, item, np.array([2, 0, 1], dtype=np.uint32))
    Items(keys, np.zeros(3, dtype=np.int64), item[:0], item[:0])


def test_nodes_share_no_user() -> None:
    users = sample_users()
    with pytest.raises(fh.PopulationError, match=f"{int(users.ids[4])} occurs twice"):
        join([users.slice(0, 5), users.slice(4, 20)])
    with pytest.raises(fh.PopulationError, match="no nodes"):
        join([])
    for n in (0, -1, 21):
        with pytest.raises(fh.PopulationError, match=str(n)):
            sample_users().split(n)


@pytest.mark.parametrize("record", [{"tea": [3]}, np.ones((1, 2))])
def test_a_number_that_is_a_list_is_refused(record: object) -> None:
    with pytest.raises(fh.PopulationError, match=r"must be (one row of )?numbers"):
        fh.Users.from_records({"ann": record})
