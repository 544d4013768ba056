"""Results are strict JSON, of the same numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulations.reporting.files import plain, write_json


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
    found = plain(given)
    assert found == expected
    assert type(found) is type(expected)


def test_a_file_is_strict_and_readable(tmp_path: Path) -> None:
    def never(word: str) -> None:
        raise AssertionError(word)

    write_json(tmp_path / "x.json", {"loss": np.float64("nan"), "key": "茶", "n": [np.int32(7)]})
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=never) == {"loss": "nan", "key": "茶", "n": [7]}
    assert "茶" in text
    assert text.endswith("}\n")
