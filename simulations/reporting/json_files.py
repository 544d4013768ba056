"""JSON files of results: strict, one spelling, whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.base.files import whole_file


def plain(body: Any) -> Any:
    """Copy plain data for strict JSON, which has no word for infinities and dates.

    >>> plain({1: np.int64(3), "x": (math.inf, np.float32(0.5))})
    {'1': 3, 'x': ['inf', 0.5]}
    """
    if isinstance(body, Mapping):
        return {str(k): plain(v) for k, v in body.items()}
    if isinstance(body, list | tuple):
        return [plain(v) for v in body]
    if isinstance(body, np.generic):
        return plain(body.item())
    if isinstance(body, float) and not math.isfinite(body):
        return str(body)
    return body if body is None or isinstance(body, bool | int | float | str) else str(body)


def write_json(path: Path, body: Any) -> None:
    """Write plain data to a file; infinities and NaN as strings, which strict JSON lacks."""
    text = json.dumps(plain(body), indent=2, ensure_ascii=False, allow_nan=False)
    whole_file(path, text + "\n")
