"""What the terminal shows of a run and of a data set's ledger."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console

from fedhist.model.truths import Truth
from fedhist.privacy.adjacency import USER_LEVEL, NoTotalError
from fedhist.privacy.guarantee import Adjacency, Trust
from simulations.reporting.numbers import NORMAL, clipped, number
from simulations.reporting.table import Column, Table, numeric, print_facts, print_table
from simulations.runs.booked_run import Finished
from simulations.runs.config import SHUFFLE, shuffle_in_words
from simulations.runs.data_ledger import DataLedger, common_adjacency

MOST_ROWS = 10
MOST_LETTERS = 30
MOST_ROUNDS = 4
"""Rounds up to which each has its line."""


def print_job(console: Console, finished: Finished) -> None:
    """Print a finished job: what it cost, how far off it was, and its first rows."""
    print_facts(console, _facts(finished))
    if finished.outcomes[0].estimate.value is not None:
        print_table(console, _estimate_table(finished), gap=3)


def _facts(finished: Finished) -> list[tuple[str, str]]:
    estimate, prepared = finished.outcomes[0].estimate, finished.prepared
    protocol = prepared.protocol
    facts = [
        ("protocol", f"{protocol.name} ({protocol.paper})"),
        ("guarantee", str(protocol.guarantee)),
    ]
    if estimate.truth not in (None, Truth.OWN):
        facts.insert(1, ("estimates", f"{protocol.target}: {estimate.truth}"))
    if protocol.claimed != protocol.guarantee:
        facts.append(("the paper claims", str(protocol.claimed)))
    if estimate.ledger is not None:
        total = estimate.ledger.spent()
        spent = f"epsilon = {total.epsilon:.6g} at delta = {total.delta:g} ({total.how})"
        facts.append(("spent", spent))
    facts.append(("noise", _noise_in_words(finished)))
    if estimate.ledger is not None and estimate.ledger.aggregation:
        facts.append(("aggregation", estimate.ledger.aggregation))
    if protocol.guarantee.trust is Trust.SHUFFLE:
        facts.append((SHUFFLE, shuffle_in_words(protocol.guarantee)))
    if prepared.plan is not None:
        facts.append(("population", prepared.plan.title))
    facts.append(("rounds", _rounds_in_words(finished)))
    if estimate.public:
        told = ", ".join(f"{k} = {number(v, 5)}" for k, v in estimate.public.items())
        facts.append(("public", told))
    if finished.evaluation is not None:
        facts.append(("error", _error_in_words(finished)))
    notes = (*prepared.facts, *_diagnostics(finished), *_adversaries(finished))
    facts += [("NOT PRIVATE", note) for note in (*prepared.not_private, *notes)]
    facts += [("warning", warning) for warning in (*prepared.doubts, *estimate.warnings)]
    reason = f": {estimate.reason}" if estimate.reason else ""
    return [*facts, ("status", estimate.status + reason)]


def _diagnostics(finished: Finished) -> list[str]:
    known = finished.prepared.known
    found = {} if known is None else known.diagnostics
    return [f"{name}: {number(count, 5)}" for name, count in found.items() if count]


def _adversaries(finished: Finished) -> list[str]:
    """Say what adversaries did and what became of it, one line each."""
    found = finished.outcomes[0].adversaries.items()
    return [
        f"{what}: " + ", ".join(f"{n:,} x {why}" for why, n in counts.items())
        for what, counts in found
        if counts
    ]


def _noise_in_words(finished: Finished) -> str:
    if finished.prepared.protocol.guarantee.trust in (Trust.SHUFFLE, Trust.LOCAL):
        if finished.prepared.config.run.clients == "aggregate":
            return "simulated in aggregate (sums of reports drawn from their exact law, seeded)"
        if finished.prepared.config.run.noise == "secure":
            return "secure (clients' coins from system entropy, no seed)"
        return "simulated clients (seeded coins: for evaluation; a real client draws its own)"
    return {
        "simulated": "simulated (NumPy, seeded: for evaluation, not for a real release)",
        "secure": "secure (exact integer samplers, no seed)",
    }[finished.prepared.config.run.noise]


def _rounds_in_words(finished: Finished) -> str:
    first = finished.outcomes[0]
    out = []
    for r in first.rounds:
        replies = "1 reply" if r["replies"] == 1 else f"{int(r['replies']):,} replies"
        text = f"{replies} in {r.get('seconds_asking', 0.0):.2f} s"
        if r.get("bytes_received") and r.get("replies"):
            text += f", {r['bytes_received'] / r['replies']:,.0f} bytes each"
        if r.get("missing"):
            text += f", {int(r['missing'])} missing"
        out.append(text)
    if len(out) > MOST_ROUNDS:
        out[1:-1] = [f"... {len(out) - 2} more"]
    return "\n".join(out) or "none"


KINDS = {"exact": "exact formula", "simulated": "simulated", "bound": "a paper's upper bound"}


def _error_in_words(finished: Finished) -> str:
    e = finished.evaluation
    if e is None:
        return "unknown"
    several = len(e.losses) > 1
    plus = f" ± {e.standard_error:.3g} in {len(e.losses)} runs" if several else " in this run"
    kind = KINDS[e.bound.kind] + (f" ± {e.bound.stderr:.2g}" if e.bound.stderr else "")
    share = f", {e.mean / e.total:.2%} of the total" if e.bound.loss == "l1" and e.total else ""
    sampled = f"; items {e.sampled}" if e.sampled else ""
    return (
        f"{e.bound.loss} {e.mean:.4g}{plus}{share}\n"
        f"{e.bound.loss} {e.bound.expected:.4g} expected ({kind}); NOT PRIVATE{sampled}"
    )


def _estimate_table(finished: Finished) -> Table:
    estimate, evaluation = finished.outcomes[0].estimate, finished.evaluation
    keys, value = estimate.keys, np.atleast_1d(np.asarray(estimate.value))
    order = np.arange(len(value)) if keys is None else np.argsort(-value, kind="stable")
    order = order[:MOST_ROWS]
    names, columns = ["estimate", "± 1.96 s.e."], [value.tolist(), [""] * len(value)]
    if estimate.stderr is not None:
        columns[1] = (NORMAL * np.broadcast_to(estimate.stderr, value.shape)).tolist()
    if evaluation is not None:
        truth = np.atleast_1d(evaluation.truth).tolist()
        if evaluation.support is not None and keys:
            at = evaluation.support.positions(keys)
            truth = [truth[i] if i >= 0 else "" for i in at.tolist()]
        columns.append(truth)
        names.append(", ".join(x for x in ("truth (NOT PRIVATE)", evaluation.sampled) if x))
    protocol = finished.prepared.protocol
    places = protocol.positions

    def name(i: int) -> str:
        if keys is not None:
            return clipped(keys[i], MOST_LETTERS)
        entry = i if places is None else f"{places[i]:g}"
        return protocol.target + (f"[{entry}]" if len(value) > 1 else "")

    rows = [[name(i), *(c[i] for c in columns)] for i in order.tolist()]
    which = "first" if keys is None else "largest"
    return Table.of(
        ["" if keys is None else "item", *numeric(names, write=number)],
        rows,
        title=f"the {MOST_ROWS} {which} of {len(value):,}" if len(value) > MOST_ROWS else "",
    )


def print_ledger(console: Console, ledger: DataLedger, adjacency: Adjacency | None = None) -> None:
    """Show what has been released from a data set: in all, under each adjacency or under one.

    Raises NoTotalError if a line says nothing under the adjacency that is asked for.
    """
    cap, lines = ledger.read()
    under = adjacency or common_adjacency(lines)
    epsilon, delta = ledger.total(under)
    limit = "no cap" if math.isinf(cap.epsilon) else f"the cap is {cap.epsilon:g}"
    notes = [f"released, {under.value}: epsilon = {epsilon:.6g} at delta = {delta:g}; {limit}"]
    if adjacency is None and lines:
        notes += [f"the same, {a.value}: {_total(ledger, a)}" for a in USER_LEVEL if a is not under]
    if {s.adjacency for s in lines} - {under.value}:
        notes.insert(0, f"mixed adjacencies: all lines are stated under {under.value}")
    names = ("when", "run", "trust", "adjacency", "epsilon", "delta", "state")
    rows = [
        (s.when[:16], s.what, s.trust, s.adjacency, s.epsilon, f"{s.delta:g}", s.state)
        for s in lines
    ]
    table = Table.of([Column(n, keep=n != "run") for n in names], rows, notes=notes)
    print_table(console, table)


def ledger_document(ledger: DataLedger, adjacency: Adjacency | None = None) -> dict[str, Any]:
    """Return the same as data: ``total`` is under ``adjacency``, and null where there is none."""
    cap, lines = ledger.read()
    under = adjacency or common_adjacency(lines)

    def total(a: Adjacency) -> dict[str, float] | None:
        try:
            return dict(zip(("epsilon", "delta"), ledger.total(a), strict=True))
        except NoTotalError:
            return None

    return {
        "cap": asdict(cap),
        "adjacency": under.value,
        "total": total(under),
        "totals": {a.value: total(a) for a in USER_LEVEL},
        "runs": [asdict(line) for line in lines],
    }


def _total(ledger: DataLedger, adjacency: Adjacency) -> str:
    try:
        epsilon, delta = ledger.total(adjacency)
    except NoTotalError as e:
        return f"no total; {e}"
    return f"epsilon = {epsilon:.6g} at delta = {delta:g}"
