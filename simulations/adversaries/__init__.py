"""Users and nodes that misbehave: wrappers around any population, by configuration."""

from __future__ import annotations

from simulations.adversaries.assigned import Assigned
from simulations.adversaries.hostile_grid import HostileGrid, of_messages
from simulations.adversaries.malformed import FORMS
from simulations.adversaries.table import (
    KINDS,
    Adversary,
    as_tables,
    override_adversary,
    read_adversaries,
    rows_of,
)
from simulations.adversaries.unchecked import UncheckedIntake, UncheckedSession

__all__ = [
    "FORMS",
    "KINDS",
    "Adversary",
    "Assigned",
    "HostileGrid",
    "UncheckedIntake",
    "UncheckedSession",
    "as_tables",
    "of_messages",
    "override_adversary",
    "read_adversaries",
    "rows_of",
]
