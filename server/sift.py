"""Reports of users who may lie: what fails its checks is left out, and counted.

Whether a message passes depends on that message and the query alone, and every honest message
passes, whatever the record behind it. So leaving messages out says nothing about honest users.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words, offsets
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary

OTHER_QUERY = "an answer to another query"
TWICE = "the user has answered already"
NUMBER = re.compile(r"[-+]?(?<![\w.])\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True)
class Gathered:
    """What is left of the reports of a round.

    Attributes
    ----------
    summary : Summary or None
        Of the reports that were used; None if there were none at all.
    refused : (m,) uint64
        Users whose message failed its check, and who have sent no good one.
    dropped : Counter of str
        Messages that were not used, by reason. Depends on the users: NOT PRIVATE.
    """

    summary: Summary | None
    refused: Words
    dropped: Counter[str]


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


def sift(query: Query, report: Report) -> tuple[NDArray[np.bool_], Counter[str]]:
    """Check every row of a report.

    Returns
    -------
    good : (n,) bool
        Rows that pass.
    reasons : Counter of str
        Why the others do not; numbers are left out, so that like faults count together.

    Notes
    -----
    A batch passes exactly if each of its rows does. Where not even its empty part passes, names,
    types or shapes are wrong, and no row does. Else a batch that fails is halved: the cost is one
    check where all is well, and some 2 m log(n / m) for m bad rows of n.
    """
    if _fault(query, report) is None:
        return np.ones(report.n_users, dtype=bool), Counter()
    why = _fault(query, take_rows(report, np.arange(0)))
    if why is not None:
        return np.zeros(report.n_users, dtype=bool), Counter({why: report.n_users})
    good = np.ones(report.n_users, dtype=bool)
    reasons: Counter[str] = Counter()
    spans = [(0, report.n_users)]
    while spans:
        a, b = spans.pop()
        why = _fault(query, take_rows(report, np.arange(a, b)))
        if why is None:
            continue
        if b - a <= 1:
            good[a:b] = False
            reasons[why] += b - a
        else:
            spans += [(a, (a + b) // 2), ((a + b) // 2, b)]
    return good, reasons


def gather(query: Query, digest: str, sent: Iterable[tuple[str, Report]]) -> Gathered:
    """Check and fold the reports of a round: at most one of each user, the first good one.

    Parameters
    ----------
    query : Query
        What was asked.
    digest : str
        Its digest.
    sent : iterable of (str, Report)
        Reports with the digest of the query that they answer, in the order of arrival.
    """
    parts: list[Summary] = []
    dropped: Counter[str] = Counter()
    refused, used = [np.zeros(0, np.uint64)], np.zeros(0, np.uint64)
    for answered, report in sent:
        if answered != digest:
            dropped[OTHER_QUERY] += report.n_users
            continue
        good, reasons = sift(query, report)
        dropped += reasons
        refused.append(report.ids[~good])
        passed = np.flatnonzero(good)
        keep = np.zeros(report.n_users, dtype=bool)
        keep[passed[np.unique(report.ids[passed], return_index=True)[1]]] = True
        keep &= ~np.isin(report.ids, used)
        dropped[TWICE] += len(passed) - int(keep.sum())
        if keep.any() or not (report.n_users or reasons):
            kept = report if keep.all() else take_rows(report, keep)
            parts.append(query.fold(kept))
            used = np.concatenate((used, kept.ids))
    summary = Summary.merge(parts) if parts else None
    return Gathered(summary, np.setdiff1d(np.concatenate(refused), used), +dropped)


def without_numbers(reason: str) -> str:
    """Return a reason with its numbers left out.

    >>> without_numbers("'votes' holds -3.5e+10, outside [0, 1]")
    "'votes' holds #, outside [#, #]"
    """
    return NUMBER.sub("#", reason)


def _fault(query: Query, report: Report) -> str | None:
    try:
        with np.errstate(over="ignore"):  # a square that overflows is larger than any bound
            query.check_cohort(report.ids)
            query.check(report)
    except WireError as e:
        return without_numbers(str(e))
    return None
