"""What differs between two results, in their settings and in what came out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from simulations.reporting.numbers import MISSING, number, shown
from simulations.reporting.table import Column, Table, numeric
from simulations.studies.shelf.contents import Contents

SECRET = "NOT PRIVATE: results are computed from the users' data"


def differences(a: Contents, b: Contents) -> list[Table]:
    """Return tables of what differs: settings, results, and the estimates of two runs.

    Raises
    ------
    ValueError
        If the two are of different kinds.
    """
    if a.kind != b.kind:
        raise ValueError(f"{a.path} is of the kind {a.kind!r}, {b.path} of the kind {b.kind!r}")
    settings = _differing(a.settings, b.settings)
    results = _differing(a.results, b.results)
    same = len(a.results.keys() & b.results.keys())
    tables = [
        Table.of(
            ["setting", "A", "B"],
            settings,
            title="settings that differ" if settings else "the settings are the same",
        ),
        Table.of(
            [Column("result"), *numeric(("A", "B", "B / A"), write=_written)],
            [(*row, _ratio(row[1], row[2])) for row in results],
            title="results that differ" if results else f"all {same} results are the same",
            notes=(SECRET,),
        ),
    ]
    if a.estimate is not None and b.estimate is not None:
        tables.append(_estimates(a.estimate, b.estimate))
    return tables


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = dict.fromkeys([*a, *b])
    return [(n, a.get(n), b.get(n)) for n in names if not _same(a.get(n), b.get(n))]


def _same(x: Any, y: Any) -> bool:
    numbers = isinstance(x, float) and isinstance(y, float)
    return x == y or (numbers and math.isnan(x) and math.isnan(y))


def _written(value: Any) -> str:
    return number(value) if isinstance(value, float) else shown(value)


def _ratio(x: Any, y: Any) -> float | None:
    both = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (x, y))
    return float(y) / float(x) if both and x else None


def _estimates(a: pl.DataFrame, b: pl.DataFrame) -> Table:
    """Say how far two released estimates are from each other, entry by entry."""
    both = a.join(b, on="key", suffix=" B")
    apart = (both["estimate"] - both["estimate B"]).abs()
    rows: list[tuple[str, Any]] = [
        ("entries of both", both.height),
        ("only in A", a.height - both.height),
        ("only in B", b.height - both.height),
    ]
    if both.height:
        most = int(apart.arg_max() or 0)
        rows += [
            ("entries that differ", int((apart > 0).sum())),
            ("l1 distance", float(apart.sum())),
            ("largest difference", float(apart[most])),
            ("of the entry", both["key"][most] if apart[most] else MISSING),
        ]
    columns = (Column("estimates"), *numeric(["value"], write=_written))
    return Table.of(columns, rows)
