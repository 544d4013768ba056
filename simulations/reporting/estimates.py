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
from simulations.reporting.table import clipped, no_formula

_QUOTED = re.compile(r'[",\r\n]')


def columns_of(estimate: Estimate) -> dict[str, Any]:
    """Return a released estimate as the columns of a table: its keys, and arrays of numbers."""
    value = np.atleast_1d(np.asarray(estimate.value))
    keys = estimate.keys if estimate.keys is not None else Keys.range(len(value))
    columns = {"key": keys, "estimate": value}
    return (
        columns if estimate.stderr is None else columns | {"stderr": np.atleast_1d(estimate.stderr)}
    )


def write_table(folder: Path, columns: Mapping[str, Any], about: Mapping[str, str]) -> None:
    """Write released numbers as CSV and Parquet, whose metadata say what they are about.

    ``columns``: by name; keys, a list of text, or an array. In CSV a quotation mark stands before
    names that a spreadsheet would read as formulas.
    """
    import pyarrow as pa  # polars would take a tenth of a second to be imported
    from pyarrow import parquet

    table = pa.Table.from_arrays([*map(_buffers, columns.values())], [*columns], metadata={**about})
    with (folder / "estimate.parquet").open("wb") as file:  # pyarrow opens UTF-8 names only
        parquet.write_table(table, file, compression="zstd")
    rows = zip(*map(_cells, columns.values()), strict=True)
    lines: Iterable[str] = [",".join(columns), *map(",".join, rows), ""]
    (folder / "estimate.csv").write_text("\n".join(lines), encoding="utf-8", newline="")


def _buffers(column: Any) -> Any:
    """Hand a column over as it is: of lists pyarrow would make arrays with the help of pandas."""
    import pyarrow as pa

    if isinstance(column, np.ndarray):
        kind, data = pa.from_numpy_dtype(column.dtype), np.ascontiguousarray(column)
        return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])
    if isinstance(column, Keys):
        buffers = (pa.py_buffer(column.offsets), pa.py_buffer(column.data))
        return pa.LargeStringArray.from_buffers(len(column), *buffers)
    return pa.array(column, pa.large_string())


def _cells(column: Any) -> Iterable[str]:
    """Write a column for CSV: NaN as most readers expect it, text in quotes where it needs them.

    A name that is empty would be read as a missing value without them.
    """
    if isinstance(column, np.ndarray):
        return ("NaN" if x != x else repr(x) for x in column.tolist())
    return (
        '"' + name.replace('"', '""') + '"' if not name or _QUOTED.search(name) else name
        for name in map(no_formula, column)
    )


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
        protocol.guarantee.trust.value,
        f"{INTERVAL} {display.interval}".rstrip(),
        display,
        half=half,
        truth=None if truth is None else np.atleast_1d(np.asarray(truth, dtype=np.float64)),
        places=None if places is None else np.asarray(places, dtype=np.float64),
        names=[clipped(key, MOST_LETTERS) for key in estimate.keys or ()] if named else [],
        n_nonzero=protocol.n_nonzero,
        public=dict(estimate.public),
    )
