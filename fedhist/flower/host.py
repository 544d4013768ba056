"""Where the Flower apps get their setup in a simulation: a node's users, a server's protocol.

The apps in ``clients/`` and ``server/`` know no runtime. Where Flower's simulation runtime starts a
node, or Flower a server, they ask the host of this distribution, which is loaded by its
fixed name. This is the composition root: the only place where a lower layer reaches an upper one,
and only by name. A node with an owner asks nobody (:mod:`clients.owned`). Whoever starts a server
or a node otherwise passes it what it needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedhist.users.batch import Users
from fedhist.users.shards import Shard

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Strategy

Config = Mapping[str, Any]


@dataclass(frozen=True)
class NodeSetup:
    """What a client node needs.

    ``index`` is public and fixes the order of merging. ``seed`` is the simulation's; None draws the
    randomizers' coins from system entropy. ``owner`` has what the node's owner configured: the keys
    of ``clients.guard.Policy`` and "guard-folder". ``shape`` is a made-up user, whose record says
    what kind of data the owner declared: a query that such a user cannot answer is refused before
    any real record is read.
    """

    users: Shard
    index: int
    seed: int | None
    owner: Config
    shape: Users | None = None


@dataclass(frozen=True)
class ServerSetup:
    """What the server app needs: a strategy over the grid, and seconds to wait for a round's nodes.

    ``publish`` is called when the run has ended, ``broken_off`` when it ends without an estimate.
    """

    strategy: Strategy
    timeout: float
    publish: Callable[[], None]
    broken_off: Callable[[], None] = lambda: None


def current_host() -> Any:
    """Return the host of this distribution: its ``node`` and ``server`` set up what a run needs."""
    return importlib.import_module("simulations.runs.flower_host").HOST
