"""Tables of a decision: the levels of trust, what was simulated, who is not considered."""

from __future__ import annotations

from functools import partial
from typing import Any

from simulations.reporting.numbers import MISSING, number, shown
from simulations.reporting.table import BAD, GOOD, Column, Marked, Table
from simulations.studies.decide.findings import Decided, Finding
from simulations.studies.decide.search import HIGH
from simulations.studies.decide.words import ADJACENCY, off

STATUS = {
    "reached": "yes",
    "not reached": "no",
    "unsettled": "?",
    "measured": MISSING,
    "unsimulated": "theory",
    "unavailable": "n/a",
}


def tables_of(d: Decided) -> list[Table]:
    """Return the levels of trust; what was simulated, planned, and left out."""
    found = [main_table(d), trials_table(d)]
    if any(f.others for f in d.findings):
        found.append(planned_table(d))
    return [*found, left_table(d)] if d.settled.left_out else found


def main_table(d: Decided) -> Table:
    """Return the table of the levels of trust: a row each, in the order of the ladder."""
    q, m = d.settled.question, d.settled.measure
    users = q.epsilon is not None and q.error is not None
    unknown = "users" if users else "epsilon"
    write = partial(_error, m.write)
    columns = [
        Column("trust", keep=True),
        Column("protocol"),
        Column(unknown, right=True, write=partial(_x, users)),
        Column("planned", right=True, write=partial(_x, users)),
        Column("error", right=True, write=write),
        Column("± 95%", right=True, write=write),
        Column("theory", right=True, write=write),
        Column("ratio", right=True, write=partial(shown, digits=2)),
        Column("met"),
    ]
    rows = [_row(d, f) for f in d.findings]
    title = f"{q.target}: {ADJACENCY.partition(':')[0]}, delta = {q.delta:g}; error: {m.words}"
    notes = [
        f"planned: {unknown} by theory; error: simulated; theory: the error it foretells; "
        "ratio: of the two"
    ]
    if any(f.status == "not reached" for f in d.findings) and not users:
        notes.append(
            f"not reached: at no epsilon up to {HIGH:g}; the error is the least that was simulated"
        )
    return Table.of(columns, rows, title=title, notes=notes)


def _x(users: bool, value: Any) -> str:
    return MISSING if value is None else number(value, 4 if users else 3)


def _error(write: Any, value: Any) -> str:
    return MISSING if value is None else str(write(value))


def _row(d: Decided, f: Finding) -> tuple[Any, ...]:
    q = d.settled.question
    mark = {"reached": GOOD, "not reached": BAD, "unsettled": BAD}.get(f.status, "")
    word: Any = Marked(STATUS[f.status], mark) if mark else STATUS[f.status]
    if f.candidate is None or f.trial is None:
        return (f.level.value, MISSING, None, None, None, None, None, None, word)
    name, t = f.candidate.title, f.trial
    x = f.x if q.error is not None else q.epsilon
    ratio: Any = Marked(t.ratio, BAD) if off(t) else t.ratio
    finite = t.theory if t.ratio is not None else None
    return (f.level.value, name, x, f.planned, t.error, t.half_width, finite, ratio, word)


def trials_table(d: Decided) -> Table:
    """Return all that was simulated, level by level."""
    m, q = d.settled.measure, d.settled.question
    write = partial(_error, m.write)
    columns = [
        Column("trust", keep=True),
        Column("protocol", keep=True),
        Column("settings"),
        Column(
            "epsilon" if q.epsilon is None else "epsilon or users",
            right=True,
            write=partial(number, digits=3),
        ),
        Column("simulated", right=True, write=write),
        Column("± 95%", right=True, write=write),
        Column("theory", right=True, write=write),
        Column("runs", right=True),
    ]
    rows = [
        (
            f.level.value,
            t.candidate.title,
            t.candidate.settings,
            t.x,
            t.error,
            t.half_width,
            t.theory if t.ratio is not None else None,
            t.runs - t.missing,
        )
        for f in d.findings
        for t in f.trials
    ]
    return Table.of(columns, rows, title="simulated")


def planned_table(d: Decided) -> Table:
    """Return what theory said of every protocol."""
    m = d.settled.measure
    columns = [
        Column("trust", keep=True),
        Column("protocol", keep=True),
        Column("settings"),
        Column("epsilon", right=True, write=partial(_x, False)),
        Column("least error", right=True, write=partial(_error, m.write)),
        Column("mostly"),
        Column("or why not"),
    ]
    rows = []
    for f in d.findings:
        for p in f.others:
            best = p.answer.best if p.answer is not None else None
            least = None if best is None else m.of_plan(best.error)
            limit = p.answer.limit if p.answer is not None else ""
            rows.append(
                (
                    f.level.value,
                    p.candidate.title,
                    p.candidate.settings,
                    p.x,
                    least,
                    limit,
                    p.reason,
                )
            )
    return Table.of(columns, rows, title="by theory: the least epsilon of every protocol")


def left_table(d: Decided) -> Table:
    """Return who is not considered, and why."""
    return Table.of(
        ["protocol", "why it is not considered"], list(d.settled.left_out), title="not considered"
    )
