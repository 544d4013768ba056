"""Rows of a comparison on levels of trust: which there are, and why there is none on a level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedhist.model.registry import protocol_class
from fedhist.privacy.guarantee import Trust
from simulations.config.reading import converted, hints
from simulations.runs.trust import COUNTED, PARTIES, PREMISES
from simulations.studies.records.levels import (
    KEY,
    NOBODY_THERE,
    OF_NATIVE,
    levels_of,
    premise_keys,
    suffix,
)


@dataclass(frozen=True)
class Entry:
    """One row to be.

    Attributes
    ----------
    label : str
    table : mapping
        "name", and what the file says of this protocol alone.
    named : bool
        Whether the file names it; otherwise it was found in the registry.
    level : Trust or None
        The level of trust that it is run under, where several are compared.
    """

    label: str
    table: Mapping[str, Any]
    named: bool
    level: Trust | None = None

    @property
    def title(self) -> str:
        """Label without the level of trust."""
        return self.label if self.level is None else self.label.removesuffix(suffix(self.level))


class LevelRefused(ValueError):
    """A protocol that cannot be had on a level, and why."""


@dataclass(frozen=True)
class Unreached:
    """A level on which nothing is run, and why."""

    trust: Trust
    reason: str


def on_levels(entries: Sequence[Entry], levels: tuple[Trust, ...]) -> list[Entry]:
    """Put every row on those levels that its protocol has, or that its own key ``trust`` names.

    Raises
    ------
    ValueError
        If the key names a level that the comparison or the protocol has not.
    """
    if not levels:
        return list(entries)
    out = []
    for entry in entries:
        table = {k: v for k, v in entry.table.items() if k != KEY}
        asked = levels
        if KEY in entry.table:
            asked = levels_of(entry.table[KEY], f"trust of {entry.label}")
            missing = [t.value for t in asked if t not in levels]
            if missing:
                known = ", ".join(t.value for t in levels)
                raise ValueError(
                    f"trust of {entry.label}: {missing[0]!r} is not among compare.trust ({known})"
                )
        native = protocol_class(str(entry.table["name"])).example().guarantee.trust
        has = OF_NATIVE.get(native, (native,))
        other = [t.value for t in asked if t not in has]
        if KEY in entry.table and other:
            known = " or ".join(t.value for t in has)
            raise ValueError(f"trust of {entry.label}: it runs under {known} trust, not {other[0]}")
        out += [
            replace(entry, label=entry.label + suffix(t), table=table, level=t)
            for t in asked
            if t in has
        ]
    return out


def premise_of_tables(
    entry: Entry, common: Mapping[str, Any], delta: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Take a row's keys that say what must be believed on its level out of its table.

    Parameters
    ----------
    entry : Entry
    common : mapping
        The table [protocol].
    delta : float
        Of the comparison, for a level that has one beside a protocol that has none.

    Returns
    -------
    premise : dict
        Those of its level, common ones too.
    own : dict
        The table without those of any level, where the row has one.
    """
    if entry.level is None:
        return {}, dict(entry.table)
    cls = protocol_class(str(entry.table["name"]))
    every = {k for t in Trust for k in premise_keys(cls, t)}
    asked = premise_keys(cls, entry.level)
    given = {"delta": delta, **common, **entry.table}
    premise = {k: v for k, v in given.items() if k in asked}
    return premise, {k: v for k, v in entry.table.items() if k not in every}


def check_premises(levels: Iterable[Trust], common: Mapping[str, Any], nodes: int) -> None:
    """Raise ValueError if what all rows of a level are to believe cannot be meant."""
    for level in levels:
        premise = PREMISES.get(level.value)
        if premise is not None and COUNTED in hints(premise):
            keys = {k: v for k, v in common.items() if k in hints(premise)}
            premise(**{COUNTED: nodes or PARTIES}, **converted(premise, keys, "protocol"))


def unreached(
    levels: Iterable[Trust], refused: Sequence[tuple[Trust | None, str, str]]
) -> tuple[Unreached, ...]:
    """Say why nothing is run on some levels.

    Parameters
    ----------
    levels : iterable of Trust
    refused : sequence of (Trust or None, str, str)
        Level, label and reason of what was left out.
    """
    found = []
    for level in sorted(levels, key=list(Trust).index):
        reasons = [
            f"{label.removesuffix(suffix(level))}: {reason}"
            for t, label, reason in refused
            if t is level
        ]
        found.append(Unreached(level, "; ".join(reasons) or NOBODY_THERE[level]))
    return tuple(found)
