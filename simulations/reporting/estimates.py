"""Estimates as files: tables of what was released, and what their figures show over the truth.

Of a folder the CSV and Parquet files alone are public.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import display_of
from fedhist.users.keys import Keys
from simulations.reporting.charts import MOST_LABELS, Chart
from simulations.reporting.intervals import NORMAL
from simulations.reporting.pictures import trust_look
from simulations.reporting.table import clipped, no_formula

_QUOTED = re.compile(r'[",\r\n]')


def columns_of(estimate: Estimate) -> tuple[Keys, dict[str, Array]]:
    """Return a released estimate as a table: its keys, and by name the columns of numbers."""
    value = np.atleast_1d(np.asarray(estimate.value))
    columns = {"estimate": value}
    if estimate.stderr is not None:
        columns["stderr"] = np.atleast_1d(estimate.stderr)
    return estimate.keys if estimate.keys is not None else Keys.range(len(value)), columns


def write_estimate(folder: Path, estimate: Estimate, about: Mapping[str, str]) -> None:
    """Write a released estimate as CSV and Parquet, whose metadata say what it is about.

    In CSV a quotation mark stands before names that a spreadsheet would read as formulas.
    """
    keys, columns = columns_of(estimate)
    _write_parquet(folder / "estimate.parquet", keys, columns, about)
    names = map(_cell, map(no_formula, keys))
    rows = zip(names, *(map(_number, x.tolist()) for x in columns.values()), strict=True)
    lines: Iterable[str] = [",".join(["key", *columns]), *map(",".join, rows), ""]
    (folder / "estimate.csv").write_text("\n".join(lines), encoding="utf-8", newline="")


def write_table(folder: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write released numbers of several releases, as :func:`write_estimate` writes those of one."""
    import polars as pl

    frame = pl.DataFrame(columns)
    frame.write_parquet(folder / "estimate.parquet")
    names = frame.select(pl.col(pl.String)).columns
    safe = frame.with_columns(pl.Series(n, map(no_formula, frame[n])) for n in names)
    safe.write_csv(folder / "estimate.csv")


def _cell(name: str) -> str:
    """Quote what would be read as something else; nothing at all as a missing value."""
    return '"' + name.replace('"', '""') + '"' if not name or _QUOTED.search(name) else name


def _number(x: float) -> str:
    return "NaN" if x != x else repr(x)  # as most readers expect it


def _write_parquet(
    path: Path, keys: Keys, columns: Mapping[str, Array], about: Mapping[str, str]
) -> None:
    """Write buffers as they are: from lists pyarrow would make arrays with the help of pandas.

    And polars would take a tenth of a second to be imported.
    """
    import pyarrow as pa
    from pyarrow import parquet

    n = len(keys)
    buffers = (pa.py_buffer(keys.offsets), pa.py_buffer(keys.data))
    arrays: list[Any] = [pa.LargeStringArray.from_buffers(n, *buffers)]
    for column in map(np.ascontiguousarray, columns.values()):
        kind = pa.from_numpy_dtype(column.dtype)
        arrays.append(pa.Array.from_buffers(kind, n, [None, pa.py_buffer(column)]))
    table = pa.Table.from_arrays(arrays, ["key", *columns], metadata=dict(about))
    with path.open("wb") as file:  # pyarrow opens no name that is not UTF-8
        parquet.write_table(table, file, compression="zstd")


MOST_LETTERS = 24
INTERVAL = "± 1.96 standard errors"


def chart_of(
    estimate: Estimate,
    truth: Array | None,
    protocol: Protocol,
    not_private: Sequence[str] = (),
) -> Chart:
    """Return the figure of an estimate with its intervals, over the truth where it is known.

    The protocol's class says what the axes are.
    """
    if estimate.value is None:
        raise ValueError(f"a {estimate.status} estimate has nothing to draw")
    value = np.atleast_1d(np.asarray(estimate.value, dtype=np.float64))
    half = None
    if estimate.stderr is not None:
        half = NORMAL * np.broadcast_to(np.asarray(estimate.stderr, dtype=np.float64), value.shape)
    display = protocol.display or display_of(protocol.target)
    display = display if display.label else replace(display, label=protocol.target)
    title = [f"{protocol.name}: {protocol.guarantee}"]
    title += textwrap.wrap("; ".join(f"NOT PRIVATE: {x}" for x in not_private), 120)
    named = estimate.keys is not None and len(value) <= MOST_LABELS
    places = protocol.positions
    return Chart(
        value,
        "\n".join(title),
        trust_look(protocol.guarantee.trust.value)[0],
        f"{INTERVAL} {display.interval}".rstrip(),
        display,
        half=half,
        truth=None if truth is None else np.atleast_1d(np.asarray(truth, dtype=np.float64)),
        places=None if places is None else np.asarray(places, dtype=np.float64),
        names=[clipped(key, MOST_LETTERS) for key in estimate.keys or ()] if named else [],
        n_nonzero=protocol.n_nonzero,
        public=dict(estimate.public),
    )
