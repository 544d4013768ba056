"""Records of a study by setting: means over the seeds, intervals, theory, sizes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhist.model.losses import SQUARED_L2
from fedhist.model.registry import display_of
from simulations.reporting.json_files import canonical, flat
from simulations.runs.results import NOT_PRIVATE
from simulations.studies.records.cells import Record
from simulations.studies.records.runs import Runs

SEEDS = ("run.seed", "population.seed")
"""Keys by which the runs of one setting differ."""

CHECKS = "run.checks"


@dataclass(frozen=True)
class Group(Runs):
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
    """Return a record's cell by "table.key", without its seeds; under which law, if of several."""
    setting = {k: v for k, v in flat(record.cell).items() if k not in SEEDS}
    law = {k: v for k, v in record.versions.items() if k == "revision"}
    return setting | {f"protocol.{k}": v for k, v in law.items()}


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
