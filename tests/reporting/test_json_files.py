"""Results are strict JSON, of the same numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulations.reporting.files import plain


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
