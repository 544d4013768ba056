"""Released estimates as files of their own, CSV and Parquet: nothing else of a folder is public."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.model.protocol import Estimate
from fedhist.users.keys import Keys
from simulations.reporting.numbers import no_formula

_QUOTED = re.compile(r'[",\r\n]')


def columns_of(estimate: Estimate) -> tuple[Keys, dict[str, Array]]:
    """Return a released estimate as a table: its keys, and by name the columns of numbers."""
    value = np.atleast_1d(np.asarray(estimate.value))
    columns = {"estimate": value}
    if estimate.stderr is not None:
        columns["stderr"] = np.atleast_1d(estimate.stderr)
    return estimate.keys if estimate.keys is not None else Keys.range(len(value)), columns


def write_estimate(
    folder: Path, estimate: Estimate, about: Mapping[str, str], *, raw: bool = False
) -> None:
    """Write a released estimate as CSV and Parquet.

    Parameters
    ----------
    folder : Path
    estimate : Estimate
    about : mapping
        Metadata of the Parquet file.
    raw : bool
        Whether names in CSV are as they are even where a spreadsheet would read a formula.
    """
    keys, columns = columns_of(estimate)
    _write_parquet(folder / "estimate.parquet", keys, columns, about)
    names = map(_cell, keys if raw else map(no_formula, keys))
    rows = zip(names, *(map(_number, x.tolist()) for x in columns.values()), strict=True)
    lines: Iterable[str] = [",".join(["key", *columns]), *map(",".join, rows), ""]
    (folder / "estimate.csv").write_text("\n".join(lines), encoding="utf-8", newline="")


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
    parquet.write_table(table, path, compression="zstd")
