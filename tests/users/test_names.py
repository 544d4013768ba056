"""One value has one name, whatever holds it; what cannot be told apart names nobody."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedhist as fh
from fedhist.users.frames import items_of_rows
from simulations.runs.convert import convert

NOON = datetime.datetime(2024, 1, 1, 12, 0, 0, 500_000)
BERLIN = pd.Timestamp("2024-01-01 13:00:00.5", tz="Europe/Berlin")


def names(column: pl.Series | pd.Series | list[object]) -> list[str]:
    frame: Any = {"u": [1] * len(column), "i": column}
    if not isinstance(column, list):
        frame = (pl if isinstance(column, pl.Series) else pd).DataFrame(frame)
    return list(fh.Users.from_frame(frame, user="u", item="i").vocabulary)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("7", [7, "7", 7.0, np.int8(7), np.float32(7), decimal.Decimal("7.00")]),
        ("0", [0, -0.0, "0", decimal.Decimal("-0.0")]),
        ("0.5", [0.5, np.float32(0.5), decimal.Decimal("0.50"), "0.5"]),
        ("1000", [decimal.Decimal("1E+3"), 1000]),
        ("true", [True, np.True_, "true"]),
        ("9007199254740993", [2**53 + 1, np.uint64(2**53 + 1), str(2**53 + 1)]),
        (str(2**70), [2**70]),
        ("2024-01-01", [datetime.date(2024, 1, 1), np.datetime64("2024-01-01")]),
        ("2024-01-01T12:00:00.500", [NOON, pd.Timestamp(NOON), np.datetime64(NOON, "ms")]),
        ("2024-01-01T12:00:00.500Z", [BERLIN, BERLIN.to_pydatetime(), BERLIN.tz_convert("UTC")]),
        ("12:00:00.500", [NOON.time()]),
        (str(uuid.UUID(int=5)), [uuid.UUID(int=5)]),
    ],
)
def test_objects_are_named_by_their_value(name: str, values: list[object]) -> None:
    assert names(pd.Series(values, dtype=object)) == [name]
    assert names(pl.Series(values, dtype=pl.Object)) == [name]
    assert names(values) == [name]


def test_a_mapping_of_lists_tells_values_apart() -> None:
    utc = NOON.replace(tzinfo=datetime.UTC)
    assert len(names([NOON, utc])) == 2
    assert len(names([pd.Timestamp(1, unit="ns"), pd.Timestamp(0, unit="ns")])) == 2


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([2.0**53]),
        pl.Series([float("inf")]),
        pl.Series([2.0**24], dtype=pl.Float32),
        pl.Series(np.array([2.0**11], dtype=np.float16)),
        pd.Series([np.float16(2.0**11)], dtype=object),
        pd.Series([datetime.time(1, tzinfo=datetime.UTC)], dtype=object),
        pl.Series([4_000_000], dtype=pl.Int32).cast(pl.Date),
        pl.Series([2**62]).cast(pl.Datetime("ms")),
        pd.Series([2.0**53], dtype=object),
        pd.Series([float("-inf")], dtype=object),
        pd.Series([b"tea"], dtype=object),
        pd.Series([[1]], dtype=object),
        pd.Series([1j], dtype=object),
        pl.Series([datetime.timedelta(1)]),
    ],
    ids=lambda column: f"{column.dtype} {column.to_numpy()[0]!r}"[:40],
)
def test_what_cannot_be_told_apart_is_refused(column: pl.Series | pd.Series) -> None:
    with pytest.raises(fh.PopulationError):
        names(column)


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame])
def test_objects_where_numbers_are_due_are_read_as_numbers(frame: Any) -> None:
    """Beyond 2^53, too: what is no name may be a value."""
    objects = [1e20, math.inf, "2.5", Decimal("0.1"), Fraction(1, 4), np.float32(0.5), 2**70, None]
    column = pl.Series(objects, dtype=pl.Object) if frame is pl.DataFrame else pd.Series(objects)
    with pytest.warns(UserWarning, match="1 with missing value"):
        users = fh.Users.from_frame(
            frame({"user": ["a"] * 8, "value": column}), user="user", value="value"
        )
    values = users.samples.values[:, 0]
    assert values.tolist()[2:] == [2.5, 0.1, 0.25, 0.5, 2.0**70]
    assert values[0] == 1e20
    assert math.isnan(values[1])


@pytest.mark.parametrize("other", [1 + 0j, True, b"3", [1.0]])
def test_objects_that_are_no_numbers_are_refused(other: object) -> None:
    column = pl.Series([other, 1], dtype=pl.Object)
    with pytest.raises(fh.PopulationError, match="row 1: column 'value'"):
        fh.Users.from_frame(
            pl.DataFrame({"user": ["a", "b"], "value": column}), user="user", value="value"
        )


def test_the_largest_doubles_that_are_told_apart() -> None:
    assert names(pl.Series([2.0**53 - 1, -(2.0**53) + 1])) == [f"-{2**53 - 1}", f"{2**53 - 1}"]


VALUES = st.sampled_from(["a", "b", "", None])
ROWS = st.lists(st.tuples(VALUES, VALUES, st.sampled_from(["1", "2", "", "x", "-1", None])))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(ROWS, ROWS, st.tuples(VALUES, VALUES, st.sampled_from(["1", "x", "", "1e300"])))
def test_a_row_changes_how_no_other_row_is_read(
    before: list[tuple[str, str, str]], after: list[tuple[str, str, str]], row: tuple[str, str, str]
) -> None:
    good = ("z", "z", "1")
    totals = []
    for rows in ([good, *before, row, *after], [good, *before, *after]):
        frame = pl.DataFrame(rows, schema=["u", "i", "c"], orient="row").cast(pl.String)
        ids, items, _ = items_of_rows(
            frame.lazy(), user="u", item="i", count="c", skip_bad_rows=True
        )
        owner = np.repeat(ids, np.diff(items.indptr)).tolist()
        held = [items.vocabulary[int(j)] for j in items.item]
        totals.append(dict(zip(zip(owner, held, strict=True), items.count.tolist(), strict=True)))
    changed = {k for k in totals[0] if totals[0][k] != totals[1].get(k, 0)}
    usable = bool(row[0] and row[1]) and row[2] == "1"
    assert totals[0].keys() >= totals[1].keys()
    assert len(changed) == usable
    assert all(totals[0][k] - totals[1].get(k, 0) == 1 for k in changed)


def test_files_of_one_folder_name_values_alike(tmp_path: Path) -> None:
    """Of the same 100 people: integers in one file, doubles with a hole and nulls in others."""
    pl.DataFrame({"user": range(100), "x": 1.0}).write_parquet(tmp_path / "a.parquet")
    doubles = [*map(float, range(100)), None]
    pl.DataFrame({"user": doubles, "x": 2.0}).write_parquet(tmp_path / "b.parquet")
    pl.DataFrame({"user": [None], "x": 2.0}).write_parquet(tmp_path / "c.parquet")
    files = [tmp_path / f"{name}.parquet" for name in "abc"]
    manifest = convert(files, tmp_path / "out", user="user", value=["x"])
    assert manifest.n_users == 100
    assert manifest.dropped == {"missing user": 2}
    users = fh.population("shards", path=tmp_path / "out").load().users
    assert users.n_items().tolist() == [2] * 100


def test_files_that_disagree_about_a_type_are_refused(tmp_path: Path) -> None:
    """Nulls agree with all, and integers with text and with doubles; these two do not."""
    aware = pl.Series([NOON]).dt.replace_time_zone("UTC")
    columns = [pl.Series(x) for x in ([None], [1], [1.5], ["1.5"], [NOON.date()], [NOON])]
    single = pl.Series([0.1], dtype=pl.Float32)
    for at, column in enumerate([*columns, aware, single]):
        pl.DataFrame({"user": column, "item": "x"}).write_parquet(tmp_path / f"{at}.parquet")

    def made(*which: int) -> bool:
        files = [tmp_path / f"{at}.parquet" for at in which]
        return bool(convert(files, tmp_path / "out", user="user", item="item", force=True))

    assert made(0, 1, 2)
    assert made(0, 1, 3)
    assert made(0, 1, 7)
    for other in (3, 4, 5, 6, 7):
        with pytest.raises(fh.PopulationError, match=rf"Float64 in .*2\.parquet and .*{other}"):
            made(2, other)


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("user,item\n1.0,a\n2.0,b\n,c\n", "text like 1.0"),
        ("item,user\nb,1\n", "column 0 is 'user' in .* and 'item'"),
    ],
)
def test_text_tables_of_one_call_write_their_columns_alike(
    tmp_path: Path, second: str, says: str
) -> None:
    """pandas writes 1.0 for an integer once one of its column is missing: two names, two users."""
    files = [tmp_path / "0.csv", tmp_path / "1.csv"]
    for file, text in zip(files, ("user,item\n1,a\n2,b\n", second), strict=True):
        file.write_text(text)
    with pytest.raises(fh.PopulationError, match=says):
        convert(files, tmp_path / "out", user=0, item=1)
    files[1].write_text("user,item\nann,a\n")
    assert convert(files, tmp_path / "out", user=0, item=1).n_users == 3
