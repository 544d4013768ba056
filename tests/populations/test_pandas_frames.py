"""pandas frames go the same way as polars frames."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from walked_users import same_users

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users

pd = pytest.importorskip("pandas")


def test_pandas_equals_polars() -> None:
    data = {
        "u": ["ann", "bob", "ann", "日本"],
        "i": [3, 1, 3, 2],
        "c": [1, 2, 3, 4],
        "v": [1.0, float("nan"), 2.0, 3.0],
    }
    left, right = pd.DataFrame(data, index=[5, 5, 7, 8]), pl.DataFrame(data)
    same_users(
        Users.from_frame(left, user="u", item="i", count="c"),
        Users.from_frame(right, user="u", item="i", count="c"),
    )
    same_users(
        Users.from_frame(left, user="u", value="v"), Users.from_frame(right, user="u", value="v")
    )


@pytest.mark.parametrize("dtype", ["category", "string", "object"])
def test_dtypes_of_names(dtype: str) -> None:
    names = ["b", "a", "b"]
    frame = pd.DataFrame({"u": pd.Series(names, dtype=dtype), "i": pd.Series(names, dtype=dtype)})
    same_users(
        Users.from_frame(frame, user="u", item="i"),
        Users.from_frame(pl.DataFrame({"u": names, "i": names}), user="u", item="i"),
    )


def test_mixed_python_objects_and_integer_labels() -> None:
    frame = pd.DataFrame({0: pd.Series([1, "1", 2], dtype=object), "i": ["x", "x", "y"]})
    users = Users.from_frame(frame, user="0", item="i")
    assert len(users) == 2  # 1 and "1" are one user
    assert sorted(users.counts.count.tolist()) == [1, 2]


def test_missing_values() -> None:
    frame = pd.DataFrame({"u": ["a", None], "i": ["x", "y"], "c": [1.0, np.nan]})
    with pytest.raises(PopulationError, match="row 2: missing user"):
        Users.from_frame(frame, user="u", item="i")
    with pytest.raises(PopulationError, match="row 2: bad count"):
        Users.from_frame(frame, user="i", item="i", count="c")
    assert np.isnan(Users.from_frame(frame, user="i", value="c").reals.values).sum() == 1
    frame = pd.DataFrame({"u": pd.Series([1, None], dtype="Int64"), "i": ["x", "y"]})
    with pytest.raises(PopulationError, match="row 2: missing user"):
        Users.from_frame(frame, user="u", item="i")


def test_missing_and_repeated_columns() -> None:
    frame = pd.DataFrame([["a", "x", "y"]], columns=["user", "item", "item"])
    with pytest.raises(PopulationError, match="no column 'usr'; did you mean 'user'"):
        Users.from_frame(frame, user="usr", item="item")
    with pytest.raises(PopulationError, match="several columns 'item'"):
        Users.from_frame(frame, user="user", item="item")


def test_columns_polars_cannot_take() -> None:
    frame = pd.DataFrame({"u": ["a", "b"], "i": ["x", "y"], "c": pd.Series([1, {}], dtype=object)})
    with pytest.raises(PopulationError, match="column 'c' cannot be read"):
        Users.from_frame(frame, user="u", item="i", count="c")
    with pytest.raises(PopulationError, match="got Series"):
        Users.from_frame(frame["u"], user="u", item="i")
