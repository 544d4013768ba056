"""Users and nodes that misbehave: wrappers around any population, by configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulations.adversaries.assigned import Assigned as Assigned
    from simulations.adversaries.hostile_grid import HostileGrid as HostileGrid
    from simulations.adversaries.hostile_grid import of_messages as of_messages
    from simulations.adversaries.table import KINDS as KINDS
    from simulations.adversaries.table import Adversary as Adversary
    from simulations.adversaries.table import as_tables as as_tables
    from simulations.adversaries.table import override_adversary as override_adversary
    from simulations.adversaries.table import read_adversaries as read_adversaries
    from simulations.adversaries.table import rows_of as rows_of
else:
    from fedhist.base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(__name__)
