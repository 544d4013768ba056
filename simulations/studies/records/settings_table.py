"""The table of a study's settings: a line for each, with its error's size and what beats it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console

from simulations.reporting.numbers import MISSING, short, shown, span
from simulations.reporting.statistics import FAR
from simulations.reporting.table import BAD, Column, Marked, Table, numeric, worded
from simulations.reporting.terminal import print_lines, print_table
from simulations.studies.records.cells import Record
from simulations.studies.records.losses import in_one_loss
from simulations.studies.records.scale import percent
from simulations.studies.records.summary import Group, axes, groups, labels_by, order

MOST_AXES = 3
"""Axes that have columns of their own in a terminal of 80 columns."""

MOST_TRIVIAL = 3
"""Populations up to which the answers that need no data are lines of the table."""

WORSE = "†"
"""Stands after an error that an answer without any data would beat."""


def print_summary(console: Console, records: Sequence[Record]) -> None:
    """Print a line per setting: mean loss over the seeds, theory's, and their ratio."""
    if not records:
        console.print("no records")
        return
    for table in summary_tables(records):
        if table.title:
            console.print(table.title, markup=False)
        print_table(console, replace(table, title="", notes=()))
        print_lines(console, table.notes)
    for line in _reasons(records):
        console.print(line, markup=False, soft_wrap=True)
    print_lines(console, promises(records))


def summary_tables(records: Sequence[Record]) -> list[Table]:
    """Return a line per setting; a table for each target, whose losses are one.

    Where protocols of a target have no loss in common, there is a table for each loss.
    """
    target, loss = (
        {r.label: found for r in records if (found := getattr(r, name))}
        for name in ("target", "loss_name")
    )
    parts: dict[tuple[str, str], list[Record]] = {}
    told: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(target.get(r.label, "") for r in records):
        own, common, notes = in_one_loss([r for r in records if target.get(r.label, "") == name])
        for r in own:
            part = name, common or loss.get(r.label, "")
            parts.setdefault(part, []).append(r)
            told[part] = notes
    several = len(parts) > 1
    return [_table(own, part[1], told[part], several=several) for part, own in parts.items()]


def _table(records: Sequence[Record], loss: str, told: Sequence[str], *, several: bool) -> Table:
    """Make the table of records in one loss."""
    found = groups(records)
    names = axes(found)
    own = names if len(names) <= MOST_AXES else []
    trivial = _trivial(found, own) if len(names) <= MOST_AXES else []
    named = bool(trivial) or several or len({g.label for g in found}) > 1
    rows: list[Sequence[Any] | None] = [*trivial]
    if trivial:
        rows.append(None)
    for g in found:
        cells: list[Any] = [g.label] if named else []
        cells += [g.setting.get(name) for name in own]
        if names and not own:
            pairs = [f"{_short(n, names)}={shown(g.setting[n])}" for n in names if n in g.setting]
            cells.append(" ".join(pairs))
        mean = None if g.mean is None else Marked(g.mean, BAD * bool(g.worse), _signed(g))
        ratio = (
            None if g.ratio is None else Marked(g.ratio, BAD * g.far_off, "{}" + "!" * g.far_off)
        )
        cells += [mean, g.standard_error, g.relative, g.predicted, ratio]
        rows.append((*cells, worded(g.statuses["ok"], _runs(g)), g.worse, g.far_off))
    spread = any(g.standard_error is not None for g in found)
    sized = any(g.relative is not None for g in found)
    columns = (
        *(("protocol",) if named else ()),
        *(
            Column(_short(name, names).replace("_", " "), right=True, key=_short(name, names))
            for name in own
        ),
        *(("setting",) if names and not own else ()),
        Column(f"mean {loss}".strip(), right=True, key="mean", write=short),
        Column("± s.e.", True, key="standard_error", write=_digits(2), more=not spread),
        Column("relative", right=True, write=percent, more=not sized),
        Column("theory", right=True, write=short),
        Column("ratio", right=True, write=_digits(3)),
        *numeric(("runs",)),
        Column("worse than", more=True),
        Column("theory far off", more=True),
    )
    title = "" if named else found[0].label
    return Table.of(columns, rows, title=title, notes=(*told, *legend(found)))


def _digits(n: int) -> Any:
    return partial(short, digits=n)


def _signed(group: Group) -> str:
    return "{}" + WORSE * bool(group.worse)


def _trivial(found: Sequence[Group], own: Sequence[str]) -> list[list[Any]]:
    """List the answers that need no data: a line for each, and for each population of a few."""
    of = [n for n in own if n.startswith("population.")]
    lines: dict[tuple[Any, ...], dict[str, float | None]] = {}
    for g in found:
        at = tuple(g.setting.get(n) if n in of else MISSING for n in own)
        for name, loss in g.trivial.items():
            share = replace(g, records=tuple(_answered(r, name) for r in g.records)).relative
            lines.setdefault((loss, at), {}).setdefault(name, share)
    if len({at for _, at in lines}) > MOST_TRIVIAL:
        return []
    ordered = sorted(lines.items(), key=lambda x: (*map(order, x[0][1]), x[0][0]))
    return [
        [", ".join(names), *at, loss, None, next(iter(names.values())), None, None, None, "", None]
        for (loss, at), names in ordered
    ]


def _answered(record: Record, name: str) -> Record:
    """Put the answer without data in the place of a record's."""
    return replace(record, loss=record.trivial.get(name, {}).get(record.loss_name))


def legend(found: Sequence[Group]) -> list[str]:
    """Explain what marks and shares are."""
    text = []
    if any(g.relative is not None for g in found):
        text.append("relative: to the answer's size (all zeros).")
    worse = dict.fromkeys(g.worse for g in found if g.worse)
    if worse:
        text.append(f"{WORSE}: worse than {' or '.join(worse)}, an answer without any data.")
    if any(g.far_off for g in found):
        text.append(f"!: theory is off by a factor of more than {FAR:g}, beyond the interval.")
    return [" ".join(text)] if text else []


def notes_of(records: Sequence[Record]) -> list[str]:
    """Say why runs ended without a result, and what was promised."""
    return [*_reasons(records), *promises(records)]


def _reasons(records: Sequence[Record]) -> list[str]:
    reasons = Counter(f"{r.status}: {r.reason}" for r in records if r.reason)
    return [f"{count} x {reason}" for reason, count in reasons.most_common(3)]


def promises(records: Sequence[Record]) -> list[str]:
    """State what runs guarantee, how it was spent, and what was not private: a line for each."""
    of: dict[str, list[Record]] = {}
    for r in records:
        if r.guarantee:
            level = "" if r.unit == "user" else " (NOT user-level)"
            kind = f"per {r.unit}{level}, {r.trust} trust, {r.adjacency}"
            of.setdefault(kind + (f", {r.composed}" if r.composed else ""), []).append(r)
    lines = []
    for kind, own in of.items():
        labels = ", ".join(dict.fromkeys(r.label for r in own))
        epsilon = span([r.epsilon for r in own])
        lines.append(
            f"{labels}: epsilon = {epsilon}, delta = {span([r.delta for r in own])} {kind}"
        )
    adjacencies = sorted({r.adjacency for r in records if r.adjacency})
    if len(adjacencies) > 1:
        kinds = ", ".join(adjacencies)
        lines.append(f"adjacencies differ ({kinds}): a smaller error may be the weaker promise's")
    about = labels_by(records, lambda r: [r.truth] if r.truth else [])
    lines += [f"{labels}: about the truth {truth!r}" for truth, labels in about.items()]
    if of:
        runs = [r for r in records if r.guarantee]
        noise, clients = (
            ", ".join(sorted({getattr(r, name) for r in runs})) for name in ("noise", "clients")
        )
        lines.append(f"noise: {noise}; clients: {clients}")
        seen = dict.fromkeys(note for r in runs for note in r.not_private)
        lines.append("NOT PRIVATE: losses, predictions and times" + _more_of(list(seen)))
    return lines


def _more_of(notes: Sequence[str]) -> str:
    told = "".join(f"; {note}" for note in notes[:3])
    return told + (f"; and {len(notes) - 3} more" if len(notes) > 3 else "")


def _short(name: str, names: Sequence[str]) -> str:
    """Drop the table of a key where no other key has the same name."""
    last = name.partition(".")[2]
    return last if [n.partition(".")[2] for n in names].count(last) == 1 else name


def _runs(group: Group) -> str:
    """Count the runs, and those that did not end well."""
    total, ok = len(group.records), group.statuses["ok"]
    others = [f"{n} {status}" for status, n in sorted(group.statuses.items()) if status != "ok"]
    return ", ".join([str(ok) if ok or not others else "", *others]).strip(", ") or str(total)
