"""Ragged rows of reports, checked: a row for each user, one entry for each item that it names."""

from __future__ import annotations

import numpy as np

from fedhist.base.arrays import Array, Bounds, Integers
from fedhist.base.errors import WireError
from fedhist.model.query import Report


def only_rows(report: Report, *names: str, arrays: tuple[str, ...] = ()) -> Integers:
    """Return the bounds of the rows; WireError unless the report holds just these arrays."""
    expected = report.arrays.keys() == set(arrays) and report.ragged.keys() == set(names)
    if not expected or report.indptr is None:
        sent = [*report.arrays, *report.ragged]
        raise WireError(f"rows of {' and '.join(names)} are expected, got {sent}")
    return report.indptr


def check_distinct(report: Report, item: Array, size: int, what: str = "a symbol") -> None:
    """Raise WireError unless items lie in [0, size) and no row names one twice."""
    Bounds((None,), "u", 0, size - 1).check("item", item)
    user = np.repeat(np.arange(report.n_users), np.diff(only_indptr(report)))
    cells = np.sort(user * size + item.astype(np.int64))
    if (cells[1:] == cells[:-1]).any():
        raise WireError(f"a user's row names {what} twice")


def row_sums(report: Report, values: Array) -> Integers:
    """Sum the integers of each row, exactly: (n,)."""
    indptr = only_indptr(report)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(values.astype(np.int64))))
    return np.asarray(before[indptr[1:]] - before[indptr[:-1]])


def only_indptr(report: Report) -> Integers:
    """Return the bounds of a report's rows; WireError if it has none."""
    if report.indptr is None:
        raise WireError("rows are expected, got none")
    return report.indptr
