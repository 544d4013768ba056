"""Rows of a comparison on levels of trust: which there are, and why there is none on a level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedhist.model.protocol import Protocol
from fedhist.privacy.guarantee import Trust
from simulations.studies.records.levels import KEY, NOBODY_THERE, OF_NATIVE, levels_of, suffix

if TYPE_CHECKING:
    from simulations.studies.compare.config import Entry


class OtherLevel(ValueError):
    """A protocol that does not stand on a level at all: there is nothing to say of it there."""


class LevelRefused(ValueError):
    """A protocol that cannot be had on a level, and why."""


@dataclass(frozen=True)
class Unreached:
    """A level on which nothing is run, and why."""

    trust: Trust
    reason: str


def on_levels(entries: Sequence[Entry], levels: tuple[Trust, ...]) -> list[Entry]:
    """Put every row on its levels: those of its own key ``trust``, or all."""
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
        out += [replace(entry, label=entry.label + suffix(t), table=table, level=t) for t in asked]
    return out


def check_level(protocol: Protocol, level: Trust) -> None:
    """Raise OtherLevel if a protocol, as it is when nothing is said of trust, has no such level."""
    if level not in OF_NATIVE.get(protocol.guarantee.trust, ()):
        raise OtherLevel(NOBODY_THERE[level])


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
