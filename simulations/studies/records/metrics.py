"""What is measured of a run: its loss, distances in the usual norms, bias, and bytes sent."""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from clients.answers import streams
from fedhist.base.arrays import Array
from fedhist.base.errors import FedhistError
from fedhist.flower.wire import answer_bytes, encode_answer
from fedhist.model.evaluation import Facts, check_rows, first_pass
from fedhist.model.losses import L1, L2, SQUARED_L2
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query
from fedhist.model.registry import display_of
from fedhist.model.truths import Truth
from fedhist.session.codec import query_digest
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations.synthetic import numbered_ids
from simulations.runs.config import Prepared
from simulations.runs.options import NOT_SAFE, Options
from simulations.runs.results import Evaluation, evaluate
from simulations.runs.run import execute
from simulations.studies.records.scale import item_measures, trivial_answers
from simulations.studies.records.truth import Exact, exact_of, of_items, over

NORM_NAMES = (L1, L2, SQUARED_L2, "linf")
COPIES = 64
"""Users of the run that shows what a protocol asks: enough for every cohort to have some."""


def measure(prepared: Prepared, users: Users, asked: str = "") -> dict[str, Any]:
    """Run a cell's protocol on its users, and compare with the truth and with theory.

    Parameters
    ----------
    prepared : Prepared
    users : Users
    asked : str
        The truth that the estimate is held against; empty for the protocol's own.

    Returns
    -------
    dict
        The fields of a :class:`~simulations.studies.records.cells.Record` that a run settles.
    """
    check_rows(prepared.protocol, len(users))
    queries: list[Query] = []
    run, hostile = prepared.config.run, prepared.config.adversaries
    options = run.options(
        watch=queries.append, beside=first_pass(prepared.protocol), adversaries=hostile
    )
    with np.errstate(over="ignore", invalid="ignore") if not run.checks else nullcontext():
        outcome = execute(prepared.protocol, users, options)
        prepared = replace(prepared, total=outcome.measured)
        estimate, measured = outcome.estimate, evaluate(prepared, [outcome])
        found = {} if measured is None else _measured(prepared, estimate, measured, asked)
    out: dict[str, Any] = {
        "status": estimate.status,
        "reason": estimate.reason,
        "truth": "" if estimate.truth is None else estimate.truth.value,
        "rounds": len(queries),
        "bytes_per_user": bytes_per_user(queries, users) if queries else None,
        "seconds": outcome.seconds.get("run", 0.0),
        "warnings": tuple(
            dict.fromkeys((*estimate.warnings, *(() if run.checks else (NOT_SAFE,))))
        ),
        "diagnostics": {
            f"{what}: {why}": n
            for what, counts in outcome.adversaries.items()
            for why, n in counts.items()
        },
        "public": {k: float(v) for k, v in estimate.public.items()},
    }
    if estimate.ledger is not None:
        spent = estimate.ledger.spent()
        out |= {"spent_epsilon": spent.epsilon, "spent_delta": spent.delta}
        out["composed"] = spent.how
        out["charges"] = tuple(
            f"{e.label}: epsilon = {e.release.epsilon:.6g}, delta = {e.release.delta:.3g}, "
            + ("all users" if e.cohort is None else f"{e.cohort.share:.3g} of the users")
            for e in estimate.ledger.entries
        )
    if measured is not None and measured.sampled:
        out["warnings"] += (f"items of truth and errors: {measured.sampled} (NOT PRIVATE)",)
    return out | found


def _measured(
    prepared: Prepared, estimate: Estimate, measured: Evaluation, asked: str
) -> dict[str, Any]:
    """Hold an estimate against the truth, in all losses, beside the answers that need no data."""
    protocol, plan = prepared.protocol, prepared.plan
    own = distances(estimate, measured.truth, measured.support, measured.one_in)
    loss, bound = measured.mean, measured.bound
    out: dict[str, Any] = {
        "loss_name": bound.loss,
        "predicted": float(bound.expected),
        "predicted_exact": bound.exact,
        "predicted_source": bound.source,
    }
    truth, keys, losses = measured.truth, measured.support, own
    known, one_in = prepared.known, measured.one_in
    users = here = None if plan is None else plan.users.in_memory("a cell")
    if asked and plan is not None and here is not None and known is not None:
        exact, users = exact_of(Truth(asked), protocol, here, plan.domain, known)
        truth, keys = exact.value, exact.keys
        one_in = one_in if keys is measured.support else 1
        mine = Exact.of(protocol, known).over(keys).value
        known = known if users is here else None
        value = over(np.asarray(estimate.value, dtype=np.float64), estimate.keys, keys)
        estimate = Estimate.ok(value, keys=keys)
        losses = norms(value, truth, one_in)
        off = _loss(protocol, Estimate.ok(mine, keys=keys), users, truth, known)
        out |= {"asked": asked, "off": {bound.loss: one_in * off, **norms(mine, truth, one_in)}}
        out["own_losses"] = {bound.loss: loss, **own}
        loss = one_in * _loss(protocol, estimate, users, truth, known)
    trivial = {
        name: {bound.loss: one_in * _loss(protocol, Estimate.ok(x, keys=keys), users, truth, known)}
        | norms(x, truth, one_in)
        for name, x in trivial_answers(protocol, truth).items()
    }
    final = (estimate if keys is None else estimate.over(keys, one_in)).value
    return out | {
        "loss": loss,
        "losses": losses,
        "trivial": trivial,
        "entries": one_in * int(np.size(truth)),
        "items": {} if final is None or not of_items(protocol) else item_measures(final, truth),
        "bias": _bias(protocol, estimate, truth),
    }


def _loss(
    protocol: Protocol,
    estimate: Estimate,
    users: Users | None,
    truth: Array,
    known: Facts | None,
) -> float:
    """Measure values in a protocol's own loss; of items entry by entry, whatever its support."""
    if users is None or of_items(protocol):
        return protocol.loss(np.asarray(estimate.value), truth)
    return protocol.loss_of(estimate, users, truth, known)


def _bias(protocol: Protocol, estimate: Estimate, truth: Array) -> float | None:
    """Average the signed errors of a vector's coordinates."""
    value, display = estimate.value, protocol.display or display_of(protocol.target)
    if value is None or value.shape != np.shape(truth) or display.form != "coordinates":
        return None
    with np.errstate(all="ignore"):
        return float(np.mean(np.asarray(value, dtype=np.float64) - truth))


def distances(
    estimate: Estimate, truth: Array, support: Keys | None, one_in: int = 1
) -> dict[str, float]:
    """Measure an estimate's distance from the truth entry by entry, in the usual norms."""
    value = (estimate if support is None else estimate.over(support, one_in)).value
    if value is None or np.shape(value) != np.shape(truth):
        return {}
    return norms(np.asarray(value, dtype=np.float64), truth, one_in)


def norms(value: Array, truth: Array, one_in: int = 1) -> dict[str, float]:
    """Measure the distance of two vectors in the usual norms.

    Of entries of which only 1 in so many is there, that of all is estimated; the largest gap is
    that of those.
    """
    gap = np.abs(value - truth).ravel()
    square = one_in * float(np.square(gap).sum())  # in one order, whatever the threads of BLAS
    return {
        L1: one_in * float(gap.sum()),
        L2: math.sqrt(square),
        SQUARED_L2: square,
        "linf": float(gap.max(initial=0.0)),
    }


def restated(expected: float, own: str, wanted: str, entries: int, form: str) -> float | None:
    """State a predicted loss in another one; None where it does not follow.

    From the squared l2 distance of items, or of a single number, the noise of all entries being
    taken as normal and alike, l1 follows by E|X| = sigma sqrt(2 / pi). The square of an expected
    l2 distance stands for the expected square.

    >>> restated(4.0, "l2", "squared l2", 3, "items"), restated(4.0, "l1", "l2", 3, "items")
    (16.0, None)
    """
    if own == wanted:
        return expected
    if (own, wanted) == (SQUARED_L2, L1) and entries and (form == "items" or entries == 1):
        return math.sqrt(2 / math.pi * entries * expected)
    return expected**2 if (own, wanted) == (L2, SQUARED_L2) else None


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


def foreseen_bytes(protocol: Protocol, one: Users) -> tuple[float, int]:
    """Say what one user will send in all rounds, from a run on copies of one user.

    Returns
    -------
    bytes : float
        As :func:`bytes_per_user`. Cohorts that so small a run does not come to are taken to
        report as those before them.
    rounds : int
        How many rounds it speaks of: the run may end before the others.
    """
    copies = one.take(np.zeros(COPIES, dtype=np.int64))
    queries: list[Query] = []
    ended = ""
    with suppress(ValueError, FedhistError):
        options = Options(seed=0, watch=queries.append)
        users = replace(copies, ids=numbered_ids(0, COPIES))
        ended = execute(protocol, users, options).estimate.status
    cohorts = [q for q in queries if q.cohort is not None]
    if ended == "ok" or not cohorts:
        whole = ended == "ok" or len(queries) == protocol.max_rounds
        return bytes_per_user(queries, one), len(queries) if not whole else protocol.max_rounds
    others = [q for q in queries if q.cohort is None]
    asked = math.fsum(q.cohort.share for q in cohorts if q.cohort is not None)
    sent = bytes_per_user(others, one) + bytes_per_user(cohorts, one) / min(asked, 1.0)
    return sent, protocol.max_rounds
