"""What the terminal and the documentation show of plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console

from simulations.reporting.sheets import Sheet
from simulations.reporting.statistics import LEVEL
from simulations.runs.config import builtin_configs, load_config, missing_keys
from simulations.studies.plan.planner import Answer
from simulations.studies.plan.verify import Verified

WORDS = {"n_users": "users", "samples_per_user": "samples per user", "epsilon": "epsilon"}
NONE = "-"


def number(x: float) -> str:
    """Write a value: whole numbers with all their digits, others with three or four.

    >>> number(12345), number(0.39897), number(float("nan"))
    ('12,345', '0.399', '-')
    """
    if not math.isfinite(x):
        return NONE
    return f"{x:,.0f}" if float(x).is_integer() or abs(x) >= 1000 else f"{x:.3g}"


def print_templates(console: Console) -> None:
    """List the built-in configurations whose populations a plan can bring to other sizes."""
    table = Sheet()
    for column in ("configuration", "protocol", "population"):
        table.add_column(column, keep=True)
    for name in builtin_configs():
        config = load_config(name)
        if not missing_keys(config):
            table.add_row(name, config.protocol["name"], config.population["kind"])
    console.print(table)
    console.print("fedhist plan NAME --error X plans one: how many users the error X takes.")


def print_plans(console: Console, answers: Sequence[Answer]) -> None:
    """Show what a target takes: a line per protocol, and below what should be known about it."""
    first = answers[0]
    share = " (relative)" if first.relative else ""
    console.print(
        f"{WORDS[first.unknown]} for a predicted error of {first.target:g}{share}", highlight=False
    )
    table = Sheet(dense=True)
    columns = ("protocol", WORDS[first.unknown], "predicted", "mostly", "rounds", "bytes a user")
    for i, name in enumerate(columns):
        table.add_column(name, right=i in (1, 2, 4, 5), keep=i == 0)
    for a in answers:
        found = a.x is not None
        table.add_row(
            a.label,
            number(a.x) if a.x is not None else "none",
            f"{a.predicted:.4g} {a.loss}" if found else NONE,
            a.limit if found else NONE,
            str(a.rounds) if a.rounds else NONE,
            number(a.bytes_per_user),
        )
    console.print(table)
    losses = dict.fromkeys(a.loss for a in answers if a.loss)
    if len(losses) > 1:
        line = f"errors in {', '.join(losses)}: other losses are other numbers for the same answer"
        console.print(line, markup=False)
    for a in answers:
        for line in remarks(a):
            console.print(f"{a.label}: {line}", markup=False)
    console.print("theory on a template population: NOT PRIVATE", markup=False)


def remarks(a: Answer) -> list[str]:
    """Say in sentences what a line of the table cannot."""
    out = []
    what = WORDS[a.unknown]
    if not a.searched > 0:
        return [a.reason]
    if a.x is None:
        out.append(f"no number of {what} up to {number(a.searched)} keeps the error at the target")
        if a.unknown == "epsilon":
            out[-1] = f"no epsilon up to {number(a.searched)} keeps the error at the target"
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
        kind = "exact formula" if a.exact else "approximation or rate"
        out.append(f"{kind}: {a.source}")
        out.append(f"below the target from there up to {number(a.searched)}, where the search ends")
    if a.refused_below is not None:
        out.append(f"refused below {what} = {number(a.refused_below)}: {a.reason}")
    if 0 < a.bytes_of < a.rounds:
        out.append(f"bytes: of {a.bytes_of} of {a.rounds} rounds; the others' depend on the data")
    return [*out, *a.notes]


def print_verified(console: Console, found: Iterable[Verified]) -> None:
    """Show how far off plans were."""
    table = Sheet(dense=True)
    columns = ("protocol", "measured", "/ predicted", f"{LEVEL:.0%} interval", "needs", "bytes")
    for i, name in enumerate((*columns, "s/run")):
        table.add_column(name, right=i > 0, keep=i == 0)
    rows = list(found)
    for v in rows:
        low, high = v.interval
        table.add_row(
            v.answer.label,
            f"{v.measured:.4g}",
            f"{v.ratio:.3f}",
            f"{low:.3f}..{high:.3f}",
            number(round(v.needed, 2)),
            number(v.bytes_per_user),
            f"{v.seconds:.2f}",
        )
    console.print(table)
    for v in rows:
        other = {k: n for k, n in v.statuses.items() if k != "ok"}
        if other:
            ends = ", ".join(f"{n} {k}" for k, n in other.items())
            console.print(f"{v.answer.label}: {ends} of {sum(v.statuses.values())} runs")
    console.print(
        "needs: what simulation would take for the target, by theory's local slope; NOT PRIVATE",
        markup=False,
    )


def markdown(rows: Sequence[Verified]) -> str:
    """Write the table of the documentation, aligned."""
    head = [
        *("protocol", "setting", "asked", "target", "planned", "predicted", "measured"),
        *("measured / predicted", "simulation needs", "off by"),
    ]
    body = []
    for v in rows:
        a = v.answer
        low, high = v.interval
        off = v.needed / a.x if a.x else math.nan
        body.append(
            [
                a.label,
                a.config.name,
                WORDS[a.unknown],
                f"{a.target:g}",
                number(a.x if a.x is not None else math.nan),
                f"{a.predicted:.4g} {a.loss}{' (exact)' if a.exact else ''}",
                f"{v.measured:.4g}" + _ends(v),
                f"{v.ratio:.3f} ({low:.3f} to {high:.3f})",
                number(round(v.needed, 2)),
                f"{off:.2f}" if math.isfinite(off) else NONE,
            ]
        )
    widths = [max(len(r[i]) for r in [head, *body]) for i in range(len(head))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |"
        for r in [head, ["-" * w for w in widths], *body]
    ]
    return "\n".join(lines) + "\n"


def _ends(v: Verified) -> str:
    other = sum(n for k, n in v.statuses.items() if k != "ok")
    return f" ({other} of {sum(v.statuses.values())} runs without estimate)" if other else ""
