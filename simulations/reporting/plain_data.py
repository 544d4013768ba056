"""Plain data: one spelling in JSON, and files named by their contents."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args, get_type_hints

import fedhist
from simulations.populations import KINDS
from simulations.populations.base import existing
from simulations.reporting.json_files import plain


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


def population_identity(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table [population] with files named by their contents, not by their paths."""
    spec = KINDS.get(str(table["kind"]))
    hints = get_type_hints(spec) if spec is not None else {}
    return {
        k: file_digest(v) if isinstance(v, str) and Path in get_args(hints.get(k)) else plain(v)
        for k, v in table.items()
    }


def file_digest(path: str) -> str:
    """Digest the contents of a file; PopulationError if there is none."""
    file = existing(Path(path)).resolve()
    state = file.stat()
    return _digest(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest(file: Path, size: int, changed: int) -> str:
    """Read a file once for as long as its size and time stay."""
    with file.open("rb") as f:
        found = hashlib.file_digest(f, lambda: hashlib.blake2b(digest_size=16))
    return f"contents:{found.hexdigest()}"


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    return (
        ("fedhist", fedhist.__version__),
        ("python", platform.python_version()),
        *((name, version(name)) for name in ("numpy", "numba", "scipy")),
    )


def versions() -> dict[str, str]:
    """Return the versions that a loss may depend on in its last bits."""
    return dict(_versions())
