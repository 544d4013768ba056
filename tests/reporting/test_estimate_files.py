"""Estimates as files, read by a library that did not write them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedhist.model.protocol import Estimate
from fedhist.users.keys import Keys
from simulations.reporting.estimates import columns_of, write_table
from simulations.reporting.files import plain

NAMES = ["tea", "", " ", 'say "x"', "a,b", "two\nlines", "a\rb", "äpple\u00a0", "=1+1", "-5", "NaN"]
VALUES = [0.1, -0.0, 1e20, 1e-7, 123456789.125, np.nan, np.inf, -np.inf, 1 / 3, 5e-324, 2.0]


def test_files_hold_the_estimate_to_the_last_bit(tmp_path: Path) -> None:
    """Names of all kinds, numbers of all sizes."""
    estimate = Estimate(
        "ok", value=np.array(VALUES), stderr=np.full(len(NAMES), 0.3), keys=Keys.of(NAMES)
    )
    write_table(tmp_path, columns_of(estimate), {"estimates": "shares"})
    parquet = pl.read_parquet(tmp_path / "estimate.parquet")
    assert parquet["key"].to_list() == NAMES
    np.testing.assert_array_equal(parquet["estimate"].to_numpy(), VALUES)
    assert parquet["stderr"].to_list() == [0.3] * len(NAMES)
    assert pl.read_parquet_metadata(tmp_path / "estimate.parquet")["estimates"] == "shares"
    csv = pl.read_csv(tmp_path / "estimate.csv", schema=parquet.schema, null_values=[])
    assert csv["key"].to_list() == [*NAMES[:8], "'=1+1", *NAMES[9:]]
    np.testing.assert_array_equal(csv["estimate"].to_numpy(), VALUES)
    assert csv.columns == ["key", "estimate", "stderr"]


def test_a_number_and_whole_numbers(tmp_path: Path) -> None:
    """Entries without names have numbers; what is whole stays so; nothing is a table of no rows."""
    for value in (np.array(3.5), np.array([7, -1]), np.empty(0)):
        write_table(tmp_path, columns_of(Estimate("ok", value=value)), {})
        table = pl.read_parquet(tmp_path / "estimate.parquet")
        assert table["key"].to_list() == [str(i) for i in range(value.size)]
        assert table["estimate"].to_list() == np.atleast_1d(value).tolist()
        assert (tmp_path / "estimate.csv").read_text().count("\n") == 1 + value.size
        assert table.equals(pl.read_csv(tmp_path / "estimate.csv", schema=table.schema))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.int64(3), 3),
        (np.float64(0.25), 0.25),
        (np.bool_(True), True),
        (np.float32("inf"), "inf"),
        (math.nan, "nan"),
        ((1, [Path("a/b")]), [1, ["a/b"]]),
        ({2: {"x": None}}, {"2": {"x": None}}),
    ],
)
def test_numbers_stay_numbers(given: Any, expected: Any) -> None:
    result = plain(given)
    assert result == expected
    assert type(result) is type(expected)
