"""Records of a study by setting: means over the seeds, and their table in the terminal."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fedhist.model.losses import SQUARED_L2
from fedhist.model.registry import display_of
from simulations.reporting.json_files import canonical, flat
from simulations.reporting.numbers import shown, span
from simulations.reporting.statistics import half_width
from simulations.reporting.table import Column, Table, numeric, worded
from simulations.reporting.terminal import print_lines, print_table
from simulations.runs.results import NOT_PRIVATE
from simulations.studies.records.cells import Record

SEEDS = ("run.seed", "population.seed")
"""Keys by which the runs of one setting differ."""

CHECKS = "run.checks"
LEVEL = 0.95
"""Of the intervals around the mean losses."""

MOST_AXES = 3
"""Axes that have columns of their own in a terminal of 80 columns."""


@dataclass(frozen=True)
class Group:
    """The records of one setting: all that differ by their seeds alone.

    Attributes
    ----------
    label : str
    setting : mapping
        The cell's keys by "table.key", without seeds.
    records : tuple of Record
    """

    label: str
    setting: Mapping[str, Any]
    records: tuple[Record, ...]

    @property
    def statuses(self) -> Counter[str]:
        """How many records have each status."""
        return Counter(r.status for r in self.records)

    @property
    def loss_name(self) -> str:
        """Which loss; empty if no record has any."""
        return next((r.loss_name for r in self.records if r.loss_name), "")

    @property
    def mean(self) -> float | None:
        """Mean loss of the records that are ok."""
        losses = [r.loss for r in self.records if r.loss is not None]
        return float(np.mean(losses)) if losses else None

    @property
    def bias(self) -> float | None:
        """Mean signed error of the records that have one."""
        found = [r.bias for r in self.records if r.bias is not None]
        return float(np.mean(found)) if found else None

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean; None for a single run, and where a loss is not finite."""
        values = self._independent()
        if len(values) < 2 or not all(map(math.isfinite, values)):
            return None
        with np.errstate(all="ignore"):  # of losses that are not finite there is none
            return float(np.std(values, ddof=1) / math.sqrt(len(values)))

    @property
    def half_width(self) -> float | None:
        """Half the width of the 95 % interval of the mean loss; None for a single value.

        By Student's distribution, over the populations where several were drawn, otherwise over
        the runs.
        """
        return half_width(self._independent(), LEVEL)

    def _independent(self) -> list[float]:
        """Return the losses of the runs, or their means over each population where several are.

        Runs on the same users are not independent of each other where several populations were
        drawn.
        """
        by_population: dict[Any, list[float]] = {}
        for r in self.records:
            if r.loss is not None:
                seed = r.cell.get("population", {}).get("seed")
                by_population.setdefault(seed, []).append(r.loss)
        found = list(by_population.values()) or [[]]
        return [float(np.mean(v)) for v in found] if len(found) > 1 else found[0]

    @property
    def complete(self) -> bool:
        """Whether every run ended with an estimate at a finite distance from the truth."""
        ended = set(self.statuses) == {"ok"} and self.mean is not None
        return ended and math.isfinite(self.mean or 0.0)

    @property
    def private(self) -> bool:
        """Whether every run has a finite epsilon for a user's record, and no setting read it."""
        return all(
            r.unit == "user" and r.epsilon is not None and math.isfinite(r.epsilon) and not r.reads
            for r in self.records
        )

    @property
    def safe(self) -> bool:
        """Whether the server checked every message."""
        return bool(self.setting.get(CHECKS, True))

    @property
    def predicted(self) -> float | None:
        """Theory's loss, averaged over the populations."""
        found = [r.predicted for r in self.records if r.predicted is not None]
        return float(np.mean(found)) if found else None

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        if self.mean is None or not self.predicted:
            return None
        return self.mean / self.predicted


def document_of(kind: str, file: Path, records: Sequence[Record]) -> dict[str, Any]:
    """Return records of a study's file as plain data, of what is to be seen of it as JSON."""
    return {
        "kind": kind,
        "file": str(file.absolute()),
        "cells": Counter(r.status for r in records),
        "records": [json.loads(r.to_json()) for r in records],
        NOT_PRIVATE: {"why": "losses come from the truth; who knows a seed knows the noise"},
    }


def groups(records: Iterable[Record]) -> list[Group]:
    """Gather records by label and setting, in the order of labels and settings."""
    found: dict[str, list[Record]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for r in records:
        setting = setting_of(r)
        name = canonical([r.label, setting])
        settings[name] = setting
        found.setdefault(name, []).append(r)
    made = [Group(rs[0].label, settings[name], tuple(rs)) for name, rs in found.items()]
    names = axes(made)
    return sorted(made, key=lambda g: (g.label, [order(g.setting.get(n)) for n in names]))


def setting_of(record: Record) -> dict[str, Any]:
    """Return a record's cell by "table.key", without its seeds."""
    return {k: v for k, v in flat(record.cell).items() if k not in SEEDS}


def axes(found: Sequence[Group]) -> list[str]:
    """Name the keys that tell a label's settings apart; of keys that vary together, the first."""
    keys = dict.fromkeys(k for g in found for k in g.setting)
    names, seen = [], {canonical([g.label for g in found])}
    for key in sorted(keys, key=lambda k: (k.startswith("run."), k.startswith("protocol."))):
        column = canonical([g.setting.get(key) for g in found])
        values = {(g.label, canonical(g.setting.get(key))) for g in found}
        varies = len(values) > len({g.label for g in found})
        if varies and column not in seen:
            names.append(key)
        seen.add(column)
    return names


def order(value: Any) -> tuple[int, float, str]:
    """Order numbers by size and put them before what is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), ""
    return 1, 0.0, "" if value is None else str(value)


def unit_of(loss: str, target: str) -> str:
    """Name a loss with its unit.

    >>> unit_of("squared l2", "mean"), unit_of("l1", "histogram")
    ('squared l2 (squared units of the samples)', 'l1 error (counts)')
    """
    unit = display_of(target).unit
    if unit and loss in ("l1", "l2", "linf"):
        return f"{loss} error ({unit})"
    if unit and loss == SQUARED_L2:
        return f"{loss} (squared {unit.partition(',')[0]})"
    if loss == "ise":
        return "integrated squared error"
    return f"error ({loss})" if loss else "error"


def labels_by(records: Iterable[Record], said: Callable[[Record], Iterable[str]]) -> dict[str, str]:
    """Name the labels whose records say something, by what they say."""
    of: dict[str, dict[str, None]] = {}
    for r in records:
        for text in said(r):
            of.setdefault(text, {})[r.label] = None
    return {text: ", ".join(labels) for text, labels in of.items()}


def print_summary(console: Console, records: Sequence[Record]) -> None:
    """Print a line per setting: mean loss over the seeds, theory's, and their ratio."""
    if not records:
        console.print("no records")
        return
    table = summary_table(records)
    if table.title:
        console.print(table.title, markup=False)
    print_table(console, replace(table, title="", notes=()))
    for line in _reasons(records):
        console.print(line, markup=False, soft_wrap=True)
    print_lines(console, promises(records))


def summary_table(records: Sequence[Record]) -> Table:
    """Return a line per setting, as :func:`print_summary`; a single protocol is the title."""
    found = groups(records)
    names, losses = axes(found), {g.loss_name for g in found if g.loss_name}
    several, own = len({g.label for g in found}) > 1, names if len(names) <= MOST_AXES else []
    of = f" ({losses.pop()})" if len(losses) == 1 else ""
    rows = []
    for g in found:
        cells: list[Any] = [g.label] if several else []
        cells += [g.setting.get(name) for name in own]
        if names and not own:
            pairs = [f"{_short(n, names)}={shown(g.setting[n])}" for n in names if n in g.setting]
            cells.append(" ".join(pairs))
        mean = (
            worded(g.mean, f"{shown(g.mean)} {g.loss_name}")
            if losses and g.mean is not None
            else g.mean
        )
        cells += [mean, g.standard_error, g.predicted, g.ratio]
        rows.append((*cells, worded(g.statuses["ok"], _runs(g))))
    columns = (
        *(("protocol",) if several else ()),
        *(
            Column(_short(name, names).replace("_", " "), right=True, key=_short(name, names))
            for name in own
        ),
        *(("setting",) if names and not own else ()),
        Column(f"mean{of}", right=True, key="mean"),
        Column("± s.e.", right=True, key="standard_error"),
        *numeric(("theory",)),
        Column("ratio", right=True, write=partial(shown, digits=3)),
        *numeric(("runs",)),
    )
    notes = (*_reasons(records), *promises(records))
    return Table.of(columns, rows, title="" if several else found[0].label, notes=notes)


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
