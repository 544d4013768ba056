"""Plain data as strict JSON: one spelling, and files whole or not at all."""

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
    if isinstance(body, np.generic | np.ndarray):
        return plain(body.tolist())
    if isinstance(body, float) and not math.isfinite(body):
        return str(body)
    return body if body is None or isinstance(body, bool | int | float | str) else str(body)


def canonical(body: Any) -> str:
    """Write plain data as strict JSON in one way: sorted keys, infinities as strings."""
    return json.dumps(plain(body), sort_keys=True, separators=(",", ":"), allow_nan=False)


def whole(body: Any) -> Any:
    """Copy plain data with 1 for 1.0, which mean the same in a configuration."""
    if isinstance(body, Mapping):
        return {str(k): whole(v) for k, v in body.items()}
    if isinstance(body, list | tuple):
        return [whole(v) for v in body]
    is_whole = isinstance(body, float) and body.is_integer() and abs(body) < 2**53
    return int(body) if is_whole else body


def numbers(body: Any) -> Any:
    """Undo the spelling of infinities in what JSON gave."""
    if isinstance(body, dict):
        return {k: numbers(v) for k, v in body.items()}
    if isinstance(body, list):
        return [numbers(v) for v in body]
    return float(body) if isinstance(body, str) and body in ("inf", "-inf", "nan") else body


def flat(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Name a cell's keys "table.key"; of several adversaries "adversary.1.key", from 0.

    >>> flat({"run": {"seed": 1}, "adversary": [{"kind": "dropout"}]})
    {'run.seed': 1, 'adversary.kind': 'dropout'}
    """
    out: dict[str, Any] = {}
    for name, table in tables.items():
        rows = table if isinstance(table, list | tuple) else [table]
        for number, row in enumerate(rows):
            prefix = name if len(rows) == 1 else f"{name}.{number}"
            out |= {f"{prefix}.{k}": v for k, v in row.items()}
    return out


def json_text(body: Any) -> str:
    """Write plain data as indented JSON; infinities and NaN as strings, which strict JSON lacks."""
    return json.dumps(plain(body), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, body: Any) -> None:
    """Write plain data to a file as :func:`json_text`."""
    whole_file(path, json_text(body))
