"""What is measured of a run beside its loss: distances in the usual norms, and bytes sent."""

from __future__ import annotations

import math

import numpy as np

from clients.node import streams
from fedhist.codec import query_digest
from fedhist.keys import Keys
from fedhist.protocol import Estimate
from fedhist.query import Array, Query
from fedhist.users import Users
from fedhist.wire import answer_bytes, encode_answer


def distances(estimate: Estimate, truth: Array, support: Keys | None) -> dict[str, float]:
    """Measure an estimate's distance from the truth entry by entry, in the usual norms."""
    value = (estimate if support is None else estimate.over(support)).value
    if value is None or np.shape(value) != np.shape(truth):
        return {}
    gap = np.abs(np.asarray(value, dtype=np.float64) - truth).ravel()
    square = float(np.square(gap).sum())  # in one order, whatever the threads of BLAS
    return {
        "l1": float(gap.sum()),
        "l2": math.sqrt(square),
        "squared l2": square,
        "linf": float(gap.max(initial=0.0)),
    }


def bytes_per_user(queries: list[Query], users: Users) -> float:
    """Measure what one user sends in all rounds, weighted by the share that each round asks.

    A report is encoded as it travels. Where its length depends on the user's record, the folded
    summary of a node that holds that one user is taken instead.

    Parameters
    ----------
    queries : list of Query
    users : Users
        The first of them is asked.
    """
    one, total = users.slice(0, 1), 0.0
    for index, query in enumerate(queries):
        digest = query_digest(query, index)
        report = query.answer(one, streams(one, 0, digest))
        body = report if report.indptr is None else query.fold(report)
        share = 1.0 if query.cohort is None else query.cohort.share
        total += share * answer_bytes(encode_answer(body, 0, digest))
    return total
