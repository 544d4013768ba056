"""Records of a study as points: axes, series and intervals that plots and maps share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedhist.model.losses import SQUARED_L2
from fedhist.model.registry import display_of
from simulations.reporting.plain_data import canonical
from simulations.reporting.statistics import student
from simulations.studies.records.cells import Record
from simulations.studies.records.summary import Group, groups, shown

LEVEL = 0.95
"""Of the intervals around the mean losses."""

UNITS: Mapping[str, str] = {
    "n_users": "users",
    "samples_per_user": "samples per user",
    "mean_items": "items per user, on average",
    "d": "size of the domain, or dimension",
    "k": "non-zero entries (sparsity)",
    "epsilon": "epsilon",
    "delta": "delta",
    "clip": "clip (items per user)",
    "fraction": "share of users, or nodes, that misbehave",
}
"""What the values of an axis are, by the last part of its name."""

SAMPLES = ("samples_per_user", "mean_items", "mean_samples", "m", "T")
"""Names of axes that say how much a user holds, the most exact first."""

CHECKS = "run.checks"
SAFE = {True: "checked", False: "unchecked (NOT SAFE)"}


@dataclass(frozen=True)
class Point:
    """One setting of one series, over its seeds. NOT PRIVATE.

    Attributes
    ----------
    series : str
        Label, with the values of the keys that only this label's runs vary.
    label : str
        The protocol's.
    at : mapping
        Values of the common axes.
    group : Group
    """

    series: str
    label: str
    at: Mapping[str, Any]
    group: Group

    @property
    def loss(self) -> float | None:
        """Mean loss of the runs that are ok."""
        return self.group.mean

    @property
    def predicted(self) -> float | None:
        """Theory's loss."""
        return self.group.predicted

    @property
    def half_width(self) -> float | None:
        """Half the width of the 95 % interval of the mean loss; None for a single value.

        By Student's distribution, over the populations where several were drawn, otherwise over
        the runs.
        """
        error = self.group.standard_error
        if error is None:
            return None
        done = [r for r in self.group.records if r.loss is not None]
        drawn = {r.cell.get("population", {}).get("seed") for r in done}
        n = len(drawn) if len(drawn) > 1 else len(done)
        return error * student(n, LEVEL)

    @property
    def complete(self) -> bool:
        """Whether every run ended with an estimate at a finite distance from the truth."""
        ended = set(self.group.statuses) == {"ok"} and self.loss is not None
        return ended and math.isfinite(self.loss or 0.0)

    @property
    def private(self) -> bool:
        """Whether every run has a finite epsilon for a user's record, and no setting read it."""
        return all(
            r.unit == "user" and r.epsilon is not None and math.isfinite(r.epsilon) and not r.reads
            for r in self.group.records
        )

    @property
    def safe(self) -> bool:
        """Whether the server checked every message."""
        return bool(self.group.setting.get(CHECKS, True))


@dataclass(frozen=True)
class View:
    """All points of a study.

    Attributes
    ----------
    points : tuple of Point
    axes : mapping of str to tuple
        Keys "table.key" that vary, and that every label has, with their values in order.
    series : tuple of str
    """

    points: tuple[Point, ...]
    axes: Mapping[str, tuple[Any, ...]]
    series: tuple[str, ...]

    def numeric(self) -> list[str]:
        """Return the axes whose values are numbers, those with most values first."""
        found = [n for n, v in self.axes.items() if all(map(is_number, v))]
        return sorted(found, key=lambda n: -len(self.axes[n]))

    def slices(self, used: Iterable[str]) -> list[dict[str, Any]]:
        """Return all combinations of the values of the axes that are not used."""
        left = [n for n in self.axes if n not in set(used)]
        return [
            dict(zip(left, values, strict=True))
            for values in itertools.product(*(self.axes[n] for n in left))
        ]

    def where(self, at: Mapping[str, Any]) -> list[Point]:
        """Return the points that have these values."""
        return [p for p in self.points if all(p.at[k] == v for k, v in at.items())]


def view_of(records: Sequence[Record]) -> View:
    """Gather records by setting and find the axes of the study."""
    found = groups(records)
    labels = list(dict.fromkeys(g.label for g in found))
    of = {label: [g for g in found if g.label == label] for label in labels}
    axes: dict[str, tuple[Any, ...]] = {}
    own: list[str] = []
    columns = set()
    keys = dict.fromkeys(k for g in found for k in g.setting)
    for key in sorted(keys, key=lambda k: (k.startswith("run."), k.startswith("protocol."))):
        column = canonical([g.setting.get(key) for g in found])
        within = any(_varies(gs, key) for gs in of.values())
        if not within or column in columns:
            continue  # of keys that vary together, the first
        columns.add(column)
        if all(_varies(gs, key) for gs in of.values()):
            values = {canonical(g.setting[key]): g.setting[key] for g in found if key in g.setting}
            if all(key in g.setting for g in found):
                axes[key] = tuple(sorted(values.values(), key=order))
                continue
        own.append(key)
    points = tuple(
        Point(_series(g, own), g.label, {k: g.setting[k] for k in axes}, g) for g in found
    )
    return View(points, axes, tuple(dict.fromkeys(p.series for p in points)))


def words(at: Mapping[str, Any]) -> str:
    """Write values of axes in one line.

    >>> words({"population.n_users": 1000, "protocol.epsilon": 0.5})
    'n_users = 1,000, epsilon = 0.5'
    """
    return ", ".join(f"{short(k)} = {shown(v)}" for k, v in at.items())


def short(key: str) -> str:
    """Return the last part of a key "table.key"."""
    return key.rpartition(".")[2]


def title_of(key: str) -> str:
    """Return an axis's title, with its unit."""
    return UNITS.get(short(key), short(key).replace("_", " "))


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


def is_share(key: str) -> bool:
    """Say whether an axis is the share of those who misbehave."""
    return key.startswith("adversary.") and short(key) == "fraction"


def is_number(value: Any) -> bool:
    """Say whether a value can stand on a numeric axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def order(value: Any) -> tuple[int, float, str]:
    """Order numbers by size and put them before what is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def _varies(found: Sequence[Group], key: str) -> bool:
    return len({canonical(g.setting.get(key)) for g in found}) > 1


def _series(group: Group, own: Sequence[str]) -> str:
    told = {k: group.setting[k] for k in own if k in group.setting and k != CHECKS}
    safe = SAFE[bool(group.setting.get(CHECKS, True))] if CHECKS in own else ""
    return ", ".join(filter(None, (group.label, words(told), safe)))
