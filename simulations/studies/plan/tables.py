"""What the terminal and the documentation show of plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console

from fedhist.privacy.guarantee import Adjacency
from simulations.reporting import numbers
from simulations.reporting.numbers import MISSING, fixed
from simulations.reporting.statistics import FAR, LEVEL, compared_table, far_off
from simulations.reporting.table import BAD, Column, Marked, Table, numeric, worded
from simulations.reporting.terminal import print_lines, print_table
from simulations.studies.plan.planner import Answer
from simulations.studies.plan.verify import Verified
from simulations.studies.records.scale import SQUARES, percent

WORDS = {"n_users": "users", "samples_per_user": "samples per user", "epsilon": "epsilon"}


def number(x: float | None) -> str:
    """Write a value: whole numbers with all their digits, others with three or four.

    >>> number(12345), number(0.39897), number(float("nan"))
    ('12,345', '0.399', '-')
    """
    return MISSING if x is None or not math.isfinite(x) else numbers.number(x, 3)


def print_plans(console: Console, answers: Sequence[Answer]) -> None:
    """Show what a target takes: a line per protocol, and below what should be known about it."""
    console.print(question(answers[0]))
    print_lines(console, stated(answers))
    print_table(console, plans_table(answers))


def stated(answers: Sequence[Answer]) -> list[str]:
    """State the adjacency of the answers: one line, and one for those that have another."""
    of: dict[Adjacency, list[str]] = {}
    for a in answers:
        if a.adjacency is not None:
            of.setdefault(a.adjacency, []).append(name_of(a))
    (first, _), *others = of.items() if of else [(None, [])]
    lines = [] if first is None else [f"{first.value}: {first.in_words}"]
    for adjacency, names in others:
        if adjacency is not None:
            told = f"under {adjacency.value}: another promise, not to be set beside the others"
            lines.append(f"{', '.join(names)}: {told}")
    return lines


def question(first: Answer) -> str:
    """Say what was to be found."""
    share = " (relative)" if first.relative else ""
    return f"{WORDS[first.unknown]} for a predicted error of {first.target:g}{share}"


def plans_table(answers: Sequence[Answer]) -> Table:
    """Return the table of some answers; those that are none have null for the unknown."""
    first = answers[0]
    rows: list[Sequence[object]] = []
    losses = list(dict.fromkeys(a.loss for a in answers if a.loss))
    mixed = len(losses) > 1
    levels = any(a.level is not None for a in answers)
    bounded = not levels and any(a.x is not None and a.at_least for a in answers)
    for a in answers:
        found = a.x is not None
        level = (a.level.value,) if a.level is not None else ()
        unit = f" {a.loss}" if mixed else ""
        predicted = worded(a.predicted, f"{a.predicted:.4g}{unit}") if found else None
        x = a.x if found else worded(None, _absent(a))
        first_columns = (*level, a.label, x, predicted, a.share if found else None)
        if levels:
            told = ", ".join(a.believed.short) if a.believed is not None else MISSING
            rows.append((*first_columns, a.limit if found else MISSING, told))
            continue
        rows.append(
            (
                *first_columns,
                *([_least(a) if found else None] if bounded else []),
                a.limit if found else MISSING,
                a.rounds or None,
                a.bytes_per_user if math.isfinite(a.bytes_per_user) else None,
            )
        )
    notes = []
    if mixed:
        told = ", ".join(losses)
        notes.append(f"errors in {told}: other losses are other numbers for the same answer")
    notes += [f"{name_of(a)}: {line}" for a in answers for line in remarks(a)]
    if any(a.share is not None for a in answers):
        notes.append("relative: to the answer's size (all zeros)")
    if first.relative and any(x.removeprefix("relative ") in SQUARES for x in losses):
        share = percent(math.sqrt(first.target))
        notes.append(f"of a squared error {first.target:g} is {share} of the answer's size")
    notes.append("theory on a template population: NOT PRIVATE")
    predicted_name = "predicted" if mixed or not losses else f"predicted {losses[0]}"
    unknown = Column(WORDS[first.unknown], right=True, write=number, key=first.unknown)
    sizes = (
        Column("rounds", right=True, write=number),
        Column("bytes a user", right=True, write=number, key="bytes_per_user"),
    )
    columns = (
        *([Column("trust", keep=True)] if levels else ()),
        Column("protocol", keep=True),
        unknown,
        Column(predicted_name, right=True, write=number, key="predicted"),
        Column("relative", right=True, write=percent, more=all(a.share is None for a in answers)),
        *([Column("at least", right=True, key="at_least")] if bounded else ()),
        "mostly",
        *(["must be believed"] if levels else sizes),
    )
    return Table.of(columns, rows, notes=notes)


def _absent(a: Answer) -> str:
    """Say which of two it is: what was searched does not reach the target, or nothing was."""
    return "not reached" if a.searched > 0 else "not planned"


def _least(a: Answer) -> Marked | None:
    return None if a.at_least is None else worded(a.at_least.value, str(a.at_least))


def name_of(a: Answer) -> str:
    """Name a line of the table: the protocol, with its level of trust where several are planned."""
    return a.label if a.level is None else f"{a.level.value}, {a.label}"


def remarks(a: Answer) -> list[str]:
    """Say in sentences what a line of the table cannot."""
    out = []
    what = WORDS[a.unknown]
    if not a.searched > 0:
        return [a.reason]
    if a.x is None:
        none = "no epsilon" if a.unknown == "epsilon" else f"no number of {what}"
        out.append(f"{none} up to {number(a.searched)} keeps the error at the target")
        if a.best is not None and math.isfinite(a.best.error):
            at = f"at {what} = {number(a.best.x)}"
            out.append(f"the least predicted error is {a.best.error:.4g}, {at} ({a.limit})")
        elif a.reason:
            out.append(a.reason)
        if a.beyond is not None:
            out.append(
                f"if the error goes on falling as x^{a.slope:.2f}, {number(a.beyond)} would do "
                "(extrapolated; --most looks further)"
            )
    else:
        if a.share is not None and a.share >= 1:
            out.append("the target is no better than an answer of all zeros")
        out.append(f"{'exact formula: ' * a.exact}{a.source}")
        if a.at_least is not None:
            out.append(f"at least {a.at_least}, {a.at_least.words}")
        out.append(f"below the target from there up to {number(a.searched)}, where the search ends")
    if a.refused_below is not None:
        out.append(f"refused below {what} = {number(a.refused_below)}: {a.reason}")
    if 0 < a.bytes_of < a.rounds:
        out.append(f"bytes: of {a.bytes_of} of {a.rounds} rounds; the others' depend on the data")
    return [*out, *a.notes]


def print_verified(console: Console, found: Iterable[Verified]) -> None:
    """Show how far off plans were."""
    print_table(console, verified_table(found))


def verified_table(found: Iterable[Verified]) -> Table:
    """Return the table of how far off plans were."""
    rows, notes = [], []
    far = False
    for v in found:
        low, high = v.interval
        off = far_off(v.losses, v.predicted)
        far |= off
        rows.append(
            (
                name_of(v.answer),
                worded(v.measured, f"{v.measured:.4g}"),
                worded(v.ratio, f"{v.ratio:.3f}{'!' * off}", BAD * off),
                f"{low:.3f}..{high:.3f}",
                worded(v.needed, number(round(v.needed, 2))),
                v.bytes_per_user,
                worded(v.seconds, f"{v.seconds:.2f}"),
            )
        )
        other = {k: n for k, n in v.statuses.items() if k != "ok"}
        if other:
            ends = ", ".join(f"{n} {k}" for k, n in other.items())
            notes.append(f"{v.answer.label}: {ends} of {sum(v.statuses.values())} runs")
    if far:
        notes.append(f"!: theory is off by a factor of more than {FAR:g}, beyond the interval")
    notes.append(
        "needs: what simulation would take for the target, by theory's local slope; NOT PRIVATE"
    )
    names = ("measured", "/ predicted", f"{LEVEL:.0%} interval", "needs", "bytes", "s/run")
    return Table.of(
        (Column("protocol", keep=True), *numeric(names, write=number)), rows, notes=notes
    )


def accuracy_table(rows: Iterable[Verified]) -> Table:
    """Return the table of the documentation."""
    return compared_table(
        rows,
        {
            "protocol": lambda v: v.answer.label,
            "setting": lambda v: v.answer.config.name,
            "asked": lambda v: WORDS[v.answer.unknown],
            "target": lambda v: f"{v.answer.target:g}",
            "planned": lambda v: number(v.answer.x),
        },
        {
            "simulation needs": lambda v: number(round(v.needed, 2)),
            "off by": lambda v: fixed(v.needed / (v.answer.x or 1), 2),
        },
    )
