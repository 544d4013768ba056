"""pandas frames go the same way as polars frames."""

from __future__ import annotations

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


def test_mixed_python_objects_and_integer_labels() -> None:
    frame = pd.DataFrame({0: pd.Series([1, "1", 1.0, 2], dtype=object), "i": ["x"] * 3 + ["y"]})
    users = Users.from_frame(frame, user="0", item="i")
    assert len(users) == 2  # 1, "1" and 1.0 are one user
    assert sorted(users.counts.count.tolist()) == [1, 3]


def test_columns_polars_cannot_take() -> None:
    frame = pd.DataFrame({"u": ["a", "b"], "i": ["x", "y"], "c": pd.Series([1, {}], dtype=object)})
    with pytest.raises(PopulationError, match=r"row 2: column 'c' has \{\}"):
        Users.from_frame(frame, user="u", item="i", count="c")
    with pytest.raises(PopulationError, match="got Series"):
        Users.from_frame(frame["u"], user="u", item="i")
