"""What a report says of adversaries: the bias of attacked means, and what became of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulations.reporting.page import Block, Items, Plot
from simulations.reporting.table import Column, Table
from simulations.runs.options import NOT_SAFE
from simulations.studies.records.cells import Record
from simulations.studies.records.summary import groups
from simulations.studies.report.plots import error_plot
from simulations.studies.report.study import Point, View
from simulations.studies.report.words import MOST_ROWS

HEADER = (
    *("mechanism", "adversary", "server"),
    Column("runs", right=True),
    *("tampered with, per run", "dropped, per run"),
)
CHECKED = "checks every message"
HONEST = "Theory's predictions are about honest users."


def bias_plot(view: View, x: str, by: str, title: str, most: int) -> Plot:
    """Draw the size of the bias of means against an axis, as :func:`error_plot` draws losses.

    The mean over the seeds is taken of signed errors, and its sign is left to the table: biases
    with and without checks may be many powers of ten apart.
    """
    points = tuple(map(_signed, view.points))
    plot = error_plot(
        replace(view, points=points), x, by, "|bias| (units of the samples)", title, most
    )
    return replace(
        plot, caption=f"Bias: mean signed error; its sign is in the table. {plot.caption}"
    )


def _signed(point: Point) -> Point:
    """Put signed errors in the place of losses, turned so that their mean is not negative."""
    sign = -1.0 if (point.bias or 0.0) < 0 else 1.0
    return replace(
        point,
        records=tuple(
            replace(r, loss=None if r.bias is None else sign * r.bias, predicted=None)
            for r in point.records
        ),
    )


def attack_blocks(records: Sequence[Record]) -> tuple[Block, ...]:
    """Tell who misbehaved, whether the server checked, and what it dropped. NOT PRIVATE.

    Nothing where everybody was honest and every message was checked.
    """
    if not any(r.adversaries or NOT_SAFE in r.warnings for r in records):
        return ()
    found: dict[tuple[str, str, bool], list[Record]] = {}
    for g in groups(records):
        for r in g.records:
            told = "; ".join(r.adversaries) or "nobody"
            found.setdefault((r.label, told, NOT_SAFE in r.warnings), []).append(r)
    rows = [
        (label, told, NOT_SAFE if unsafe else CHECKED, len(own), *_counts(own))
        for (label, told, unsafe), own in found.items()
    ]
    lines = [
        "who misbehaved and what was dropped is NOT PRIVATE: it is counted user by user",
        HONEST,
    ]
    if any(unsafe for _, _, unsafe in found):
        lines.insert(0, f"{NOT_SAFE}: for evaluation only")
    caption = "" if len(rows) <= MOST_ROWS else f"The first {MOST_ROWS:,} of {len(rows):,} rows."
    return Items(tuple(lines)), Table.of(HEADER, rows[:MOST_ROWS], title=caption)


def _counts(records: Sequence[Record]) -> tuple[str, str]:
    """Average the diagnostics over runs: what adversaries did, and what was done with messages."""
    totals: dict[str, float] = {}
    for r in records:
        for name, n in r.diagnostics.items():
            totals[name] = totals.get(name, 0.0) + n / len(records)
    told = [(name.partition(": "), f"{n:,.6g}") for name, n in totals.items()]
    done = [f"{n} × {why}" for (what, _, why), n in told if what == "injected"]
    rest = [
        f"{n} × {why}" + (f" ({what})" if what != "dropped" else "")
        for (what, _, why), n in told
        if what != "injected"
    ]
    return "; ".join(done) or "-", "; ".join(rest) or "-"
