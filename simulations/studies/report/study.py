"""Records of a study as points: axes, series and intervals that plots and maps share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulations.reporting.json_files import canonical
from simulations.reporting.numbers import shown
from simulations.studies.records.cells import Record
from simulations.studies.records.summary import CHECKS, Group, axes, groups, order

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

SAFE = {True: "checked", False: "unchecked (NOT SAFE)"}


@dataclass(frozen=True)
class Point(Group):
    """One setting of one series, over its seeds. NOT PRIVATE.

    Attributes
    ----------
    series : str
        Label, with the values of the keys that only this label's runs vary.
    at : mapping
        Values of the common axes.
    """

    series: str
    at: Mapping[str, Any]


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
    labels = dict.fromkeys(g.label for g in found)
    of = [[g for g in found if g.label == label] for label in labels]
    common: dict[str, tuple[Any, ...]] = {}
    own: list[str] = []
    for key in axes(found):
        if all(key in g.setting for g in found) and all(_varies(gs, key) for gs in of):
            values = {canonical(g.setting[key]): g.setting[key] for g in found}
            common[key] = tuple(sorted(values.values(), key=order))
        else:
            own.append(key)
    points = tuple(
        Point(g.label, g.setting, g.records, _series(g, own), {k: g.setting[k] for k in common})
        for g in found
    )
    return View(points, common, tuple(dict.fromkeys(p.series for p in points)))


def words(at: Mapping[str, Any]) -> str:
    """Write values of axes in one line.

    >>> words({"population.n_users": 1000, "protocol.epsilon": 0.5})
    'n_users = 1,000, epsilon = 0.5'
    """
    return ", ".join(f"{short(k)} = {shown(v)}" for k, v in at.items())


def short(key: str) -> str:
    """Return the last part of a key "table.key"."""
    return key.rpartition(".")[2]


def axis_name(key: str) -> str:
    """Name an axis in a title: "mean items"."""
    return short(key).replace("_", " ")


def title_of(key: str) -> str:
    """Return an axis's title, with its unit."""
    return UNITS.get(short(key), axis_name(key))


def is_share(key: str) -> bool:
    """Say whether an axis is the share of those who misbehave."""
    return key.startswith("adversary.") and short(key) == "fraction"


def is_number(value: Any) -> bool:
    """Say whether a value can stand on a numeric axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _varies(found: Sequence[Group], key: str) -> bool:
    return len({canonical(g.setting.get(key)) for g in found}) > 1


def _series(group: Group, own: Sequence[str]) -> str:
    told = {k: group.setting[k] for k in own if k in group.setting and k != CHECKS}
    safe = SAFE[bool(group.setting.get(CHECKS, True))] if CHECKS in own else ""
    return ", ".join(filter(None, (group.label, words(told), safe)))
