"""Frames become users: grouping against an obvious dict, and every kind of bad row."""

from __future__ import annotations

import datetime
import decimal
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walked_users import same_users

from fedhist.base.errors import PopulationError, nearest
from fedhist.base.hashing import hash_bytes_kernel
from fedhist.users import frames, keys
from fedhist.users.batch import Users
from fedhist.users.keys import USER_ID_KEY, Keys, user_ids
from simulations.populations import population
from simulations.runs.convert import convert

NAMES = st.sampled_from(["ann", "bob", "a", "ab", "é", "日本", "😀", "\uffff", " ", "0", "00"])

NUMBERS = st.floats(width=64, allow_nan=False, allow_infinity=False)


def records(users: Users) -> dict[int, dict[str, int]]:
    items = users.counts
    assert items.item.dtype == np.uint32
    assert items.count.dtype in (np.uint32, np.uint64)
    assert users.ids.dtype == np.uint64
    assert (np.diff(users.ids.astype(object)) > 0).all()
    raw = [s.encode() for s in items.vocabulary]
    assert raw == sorted(raw)
    out = {}
    for k, user in enumerate(users.ids.tolist()):
        row = slice(items.indptr[k], items.indptr[k + 1])
        positions, counts = items.item[row].tolist(), items.count[row].tolist()
        assert positions == sorted(set(positions))  # byte order, no repetition
        out[user] = {items.vocabulary[j]: int(c) for j, c in zip(positions, counts, strict=True)}
    return out


def id_of(name: str) -> int:
    return int(user_ids(Keys.of([name]))[0])


def by_dict(rows: list[tuple[str, str, int]]) -> dict[int, dict[str, int]]:
    out: dict[int, Counter[str]] = defaultdict(Counter)
    for user, item, count in rows:
        out[id_of(user)][item] += count
    return {u: {j: c for j, c in counts.items() if c} for u, counts in out.items()}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(NAMES, NAMES, st.integers(0, 1 << 40)), min_size=1, max_size=40))
def test_counts_match_a_dict(rows: list[tuple[str, str, int]]) -> None:
    frame = pl.DataFrame(rows, schema=["u", "i", "c"], orient="row")
    expected = by_dict(rows)
    assert records(Users.from_frame(frame, user="u", item="i", count="c")) == expected
    backwards = Users.from_frame(frame.reverse().lazy(), user="u", item="i", count="c")
    assert records(backwards) == expected
    events = records(Users.from_frame(frame, user="u", item="i"))
    assert events == by_dict([(u, i, 1) for u, i, _ in rows])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(NAMES, NUMBERS, NUMBERS), min_size=1))
def test_samples_match_a_dict(rows: list[tuple[str, float, float]]) -> None:
    frame = pl.DataFrame(rows, schema=["u", "x", "y"], orient="row")
    users = Users.from_frame(frame, user="u", value=["x", "y"])
    slow = defaultdict(list)
    for user, x, y in rows:
        slow[id_of(user)].append((x, y))
    assert users.ids.tolist() == sorted(slow)
    expected = np.array([pair for u in sorted(slow) for pair in slow[u]])
    np.testing.assert_array_equal(users.reals.values, expected)  # order kept
    assert users.n_items().tolist() == [len(slow[u]) for u in sorted(slow)]


@pytest.mark.parametrize("item", ["tea", "rye"], ids=["of one item", "of two items"])
@pytest.mark.parametrize("column", ["item", "value"])
def test_two_users_of_one_id_are_found_among_rows(
    monkeypatch: pytest.MonkeyPatch, item: str, column: str
) -> None:
    """Ids that are the lengths of names collide; a third user's do not."""

    def by_length(found: np.ndarray, data: np.ndarray, key: np.uint64, out: np.ndarray) -> None:
        hash_bytes_kernel(found, data, key, out)
        if key == np.uint64(USER_ID_KEY):
            out[:] = np.diff(found)

    for module in (frames, keys):
        monkeypatch.setattr(module, "hash_bytes_kernel", by_length)
    rows = {"user": ["ann", "anna", "bob", "anna"], "item": ["tea", "tea", item, "rye"]}
    frame = pl.DataFrame(rows | {"value": [1.0, 2.0, 3.0, 4.0]})
    with pytest.raises(PopulationError, match=r"'(ann|bob)' and '(ann|bob)' have the same 64-bit"):
        Users.from_frame(frame, user="user", **{column: column})
    alone = Users.from_frame(frame.head(2), user="user", **{column: column})
    assert alone.ids.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pl.Series([-1, 0, -1], dtype=pl.Int8), ["-1", "0"]),
        (pl.Series([1.5, 2.0, 1.5]), ["1.5", "2"]),
        (pl.Series([True, False, True]), ["false", "true"]),
        (pl.Series(["b", "a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pl.Series([datetime.date(2024, 1, 2)] * 3), ["2024-01-02"]),
        (pl.Series([decimal.Decimal("1.50")] * 3), ["1.5"]),
    ],
)
def test_any_type_is_compared_by_value(column: pl.Series, text: list[str]) -> None:
    frame = pl.DataFrame({"x": column})
    users = Users.from_frame(frame, user="x", item="x")
    assert sorted(users.vocabulary) == text
    assert set(users.ids.tolist()) == {id_of(t) for t in text}


def test_wide_counts() -> None:
    frame = pl.DataFrame({"u": ["a", "a"], "i": ["x", "x"], "c": [1 << 31, 1 << 31]})
    users = Users.from_frame(frame, user="u", item="i", count="c")
    assert users.counts.count.dtype == np.uint64
    assert users.counts.count.tolist() == [1 << 32]
    frame = frame.with_columns(c=pl.lit((1 << 53) - 1))
    with pytest.raises(PopulationError, match="below 2\\^53"):
        Users.from_frame(frame, user="u", item="i", count="c")


@pytest.mark.parametrize(
    ("counts", "value"),
    [
        ([1.0, 2.0, 2.5], "2.5"),
        ([1.0, 2.0, float("inf")], "inf"),
        (["1", " 2 ", "two"], "two"),
        ([1, 2, 1 << 53], f"{1 << 53}"),
    ],
)
def test_bad_counts_name_row_and_value(counts: list[object], value: str) -> None:
    frame = pl.DataFrame({"u": ["a", "b", "c"], "i": ["x"] * 3, "c": counts})
    with pytest.raises(PopulationError, match=f"row 3: bad count in 'c, x, {value}'"):
        Users.from_frame(frame, user="u", item="i", count="c")
    good = Users.from_frame(frame[:2], user="u", item="i", count="c")
    assert good.counts.count.tolist() in ([1, 2], [2, 1])


@pytest.mark.parametrize(("column", "name"), [("u", "user"), ("i", "item"), ("c", "count")])
@pytest.mark.parametrize("absent", [None, float("nan"), ""])
def test_rows_that_lack_something_are_left_out(column: str, name: str, absent: object) -> None:
    full = {"u": ["a", "b", "a"], "i": ["x", "y", "z"], "c": ["1", "2", "3"]}
    lacking = pd.Series([full[column][0], absent, full[column][2]], dtype=object)
    frame = pd.DataFrame(full | {column: lacking})
    with pytest.warns(UserWarning, match=f"1 with missing {name}"):
        users = Users.from_frame(frame, user="u", item="i", count="c")
    left = {id_of("a"): {"x": 1, "z": 3}}  # the user keeps the other rows, or an empty record
    assert records(users) == (left if column == "u" else left | {id_of("b"): {}})


def test_missing_columns_name_the_nearest() -> None:
    frame = pl.DataFrame({"user": ["a"], "item": ["x"], "weight": [1]})
    with pytest.raises(PopulationError, match="no column 'items'; did you mean 'item'"):
        Users.from_frame(frame.lazy(), user="user", item="items")
    with pytest.raises(PopulationError, match="no column 'zzz'; there are 'user', 'item', 'wei"):
        Users.from_frame(frame, user="user", value="zzz")
    assert nearest("x", []) == ""
    assert nearest("x", [f"name{i}" for i in range(64)]).endswith("'name19', and 44 more")


def test_item_and_value_exclude_each_other() -> None:
    frame = pl.DataFrame({"u": ["a"], "i": ["x"], "v": [1.0]})
    with pytest.raises(ValueError, match="exactly one"):
        Users.from_frame(frame, user="u")
    with pytest.raises(ValueError, match="exactly one"):
        Users.from_frame(frame, user="u", item="i", value="v")
    with pytest.raises(ValueError, match="count='i' goes with item"):
        Users.from_frame(frame, user="u", value="v", count="i")


def test_samples_that_are_missing_are_left_out_and_text_is_refused() -> None:
    frame = pl.DataFrame({"u": ["a", "a", "b"], "v": [1, None, 3], "w": [1.0, 2.0, 7.0]})
    with pytest.warns(UserWarning, match="1 with missing value"):
        users = Users.from_frame(frame, user="u", value=["v", "w"])
    assert sorted(users.reals.values.tolist()) == [[1, 1], [3, 7]]
    frame = frame.with_columns(v=pl.Series(["1", "nan", "x"]))
    with pytest.raises(PopulationError, match="row 3: bad value in 'b, x'"):
        Users.from_frame(frame, user="u", value="v")
    with pytest.raises(PopulationError, match="no rows"):
        Users.from_frame(frame[:0], user="u", value="v")


@pytest.mark.parametrize("record", ["1", "nan", "", "inf", None])
def test_how_many_users_there_are_depends_on_no_record(record: object) -> None:
    rows = {"u": ["a", "b", "c"], "v": ["1", "2", record], "i": ["x", "y", record], "c": [1, 2, 0]}
    for columns in ({"value": "v"}, {"item": "i"}, {"item": "i", "count": "c"}):
        with warnings.catch_warnings(action="ignore"):
            assert len(Users.from_frame(rows, user="u", **columns)) == 3


@pytest.mark.parametrize("shards", [1, 8])
def test_a_row_of_too_many_fields_and_no_user_is_nobody(tmp_path: Path, shards: int) -> None:
    (tmp_path / "i.csv").write_text("user,item\nann,tea\n,rye,extra\nbob,tea,extra\n")
    (tmp_path / "v.csv").write_text("user,v\nann,1\n,2,extra\nbob,2,extra\n")
    for name, columns in (("i", {"item": "item"}), ("v", {"value": ["v"]})):
        path, kind = tmp_path / f"{name}.csv", "events" if name == "i" else "samples"
        loaded = population(kind, path=path, user="user", skip_bad_rows=True, **columns).load()
        assert set(loaded.users.ids.tolist()) == {id_of("ann"), id_of("bob")}
        convert([path], tmp_path / name, user="user", shards=shards, skip_bad_rows=True, **columns)
        stored = population("shards", path=tmp_path / name).load().users.in_memory("a test")
        assert stored.ids.tolist() == loaded.users.ids.tolist()


def test_pandas_equals_polars() -> None:
    data = {
        "u": ["ann", "bob", "ann", "日本"],
        "i": [3, 1, 3, 2],
        "c": [1, 2, 3, 4],
        "v": [1.0, float("inf"), 2.0, 3.0],
    }
    left, right = pd.DataFrame(data, index=[5, 5, 7, 8]), pl.DataFrame(data)
    same_users(
        Users.from_frame(left, user="u", item="i", count="c"),
        Users.from_frame(right, user="u", item="i", count="c"),
    )
    same_users(
        Users.from_frame(left, user="u", value="v"), Users.from_frame(right, user="u", value="v")
    )
