"""Messages that no honest client sends: NaN, infinity, wrong shape, type, range and names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedhist.base.arrays import Array
from fedhist.model.query import Keyed, Report, Summary

FORMS = ("nan", "inf", "shape", "type", "range", "negative", "huge", "names")
OUT_OF_RANGE, HUGE = 1e30, 1e300


def malform_report(report: Report, form: str) -> Report:
    """Spoil every row of a report; a row of varying length becomes one bad entry."""
    if report.indptr is None:
        return Report(report.ids, _spoil_all(report.arrays, form))
    n = report.n_users
    entries = {name: np.zeros(n, dtype=a.dtype) for name, a in report.ragged.items()}
    victim = list(entries)[-1]
    if form == "shape":  # a matrix where rows of varying length belong
        return Report(report.ids, {victim: np.zeros((n, 2), entries[victim].dtype)})
    dense: Mapping[str, Array] = report.arrays
    if form == "names":
        entries = {f"not-{name}": a for name, a in entries.items()}
    else:
        entries[victim] = spoil(entries[victim], form)
    return Report(report.ids, dense, entries, np.arange(n + 1))


def malform_summary(summary: Summary, form: str) -> Summary:
    keyed = {
        name: Keyed(part.keys, _spoil_rows(part.values, form))
        for name, part in summary.keyed.items()
    }
    if form == "names":
        keyed = {f"not-{name}": part for name, part in keyed.items()}
    return Summary(
        summary.n_users,
        _spoil_all(summary.sums, form),
        keyed,
        _spoil_all(summary.rows, form),
        summary.ids,
    )


def spoil(a: Array, form: str) -> Array:
    """Return an array of the same length with every entry spoiled.

    >>> spoil(np.zeros(2, np.int8), "negative").tolist()
    [-128, -128]
    """
    whole = a.dtype.kind in "iub"
    wide = np.dtype(np.uint64 if a.dtype.kind == "u" else np.int64)
    if form == "shape":
        return np.stack((a, a), axis=1) if a.ndim == 1 else np.concatenate((a, a[..., :1]), -1)
    if form == "type":
        return a.astype(np.float64) if whole else np.zeros(a.shape, np.int64)
    if form in ("nan", "inf"):
        return np.full(a.shape, float(form))
    if form == "negative":
        if a.dtype.kind in "ub":
            return np.full(a.shape, -1, np.int64)
        return np.full(a.shape, np.iinfo(a.dtype).min if whole else -HUGE, a.dtype)
    if form == "range":
        most = np.iinfo(a.dtype).max if a.dtype.kind in "iu" else OUT_OF_RANGE
        return np.full(a.shape, most, np.float64 if a.dtype.kind == "b" else a.dtype)
    if form == "huge":
        if whole:
            return np.full(a.shape, np.iinfo(wide).max, wide)
        return np.full(a.shape, HUGE, np.float64)
    raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")


def _spoil_all(arrays: Mapping[str, Array], form: str) -> dict[str, Array]:
    if form == "names":
        return {f"not-{name}": a for name, a in arrays.items()}
    return {name: _spoil_rows(a, form) for name, a in arrays.items()}


def _spoil_rows(a: Array, form: str) -> Array:
    return a if form == "names" else spoil(a, form)
