"""Users' reports one by one: which of them pass, and whose were here already."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words, offsets
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report


def well_formed(query: Query, report: Report) -> tuple[NDArray[np.bool_], Counter[str]]:
    """Check every row of a report: which rows pass, and why the others do not.

    A batch passes exactly if each of its rows does; one that fails is halved: some 2 m log(n / m)
    checks for m bad rows of n. Where not even its empty part passes, no row does. Numbers are left
    out of the reasons, so that like faults count together.
    """
    n = report.n_users
    good = np.ones(n, dtype=bool)
    reasons: Counter[str] = Counter()
    why = _fault(query, report)
    if why is None:
        return good, reasons
    if n == 1:
        return ~good, Counter({why: 1})
    none = _fault(query, take_rows(report, np.arange(0)))
    if none is not None:
        return ~good, Counter({without_numbers(none): n})
    spans = [(0, n)]
    while spans:
        a, b = spans.pop()
        why = _fault(query, take_rows(report, np.arange(a, b)))
        if why is None:
            continue
        if b - a <= 1:
            good[a:b] = False
            reasons[without_numbers(why)] += b - a
        else:
            spans += [(a, (a + b) // 2), ((a + b) // 2, b)]
    return good, reasons


def take_rows(report: Report, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Report:
    """Return the given rows of a report, by number or by mask."""
    at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    dense = {name: a[at] for name, a in report.arrays.items()}
    if report.indptr is None:
        return Report(report.ids[at], dense)
    sizes = np.diff(report.indptr)[at]
    indptr = offsets(sizes)
    flat = np.arange(indptr[-1]) + np.repeat(report.indptr[:-1][at] - indptr[:-1], sizes)
    return Report(report.ids[at], dense, {n: a[flat] for n, a in report.ragged.items()}, indptr)


def without_numbers(reason: str) -> str:
    """Return a reason with its numbers left out.

    >>> without_numbers("'votes' holds -3.5e+10, outside [0, 1]")
    "'votes' holds #, outside [#, #]"
    """
    return re.sub(r"[-+]?(?<![\w.])\d+(\.\d+)?(e[-+]?\d+)?", "#", reason)


def _fault(query: Query, report: Report) -> str | None:
    try:
        with np.errstate(over="ignore"):  # a square that overflows is larger than any bound
            query.check_cohort(report.ids)
            query.check(report)
    except WireError as e:
        return str(e)
    return None


class Ids:
    """User ids that have answered: sorted runs, of which two of a size become one."""

    def __init__(self) -> None:
        self._runs: list[Words] = []

    def add(self, ids: Words) -> None:
        """Keep distinct ids that are not here yet."""
        run = np.sort(ids)
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)

    def has(self, ids: Words) -> NDArray[np.bool_]:
        """Say which of these are here: (n,) bool."""
        known = np.zeros(len(ids), dtype=bool)
        for run in self._runs:
            if len(run):
                at = np.minimum(np.searchsorted(run, ids), len(run) - 1)
                known |= run[at] == ids
        return known
