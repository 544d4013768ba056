"""A node with an owner: its users, policy and guard, from the owner's configuration alone.

Nothing comes from the server: a seed in the run's configuration is refused, because a server that
knows the seed knows the noise; the rest of the run's configuration is not even read. It opens no
file and imports no module here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from functools import lru_cache
from logging import ERROR, INFO
from pathlib import Path
from typing import Any

import numpy as np
from flwr.common import log

from clients.masked import owner_keys
from clients.node import POLICY_KEYS, policy_of
from fedhist.base.errors import PopulationError, WireError, nearest
from fedhist.flower.host import Config as FlatConfig
from fedhist.flower.host import NodeSetup
from fedhist.model.registry import load_plugin
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.tables import TableFormat, read_items, read_samples

KEEPING_KEYS = ("guard-folder", "guard-counter", "secagg-key", "secagg-peers")
READER_KEYS = ("user", "item", "count", "value", "separator", "encoding", "header", "decimal")
OWNER_KEYS = (
    *("data", "partition-id", "num-partitions", "split-data", "simulation-seed", "plugins"),
    *(key for key in POLICY_KEYS if key != "simulated"),
    *KEEPING_KEYS,
    *READER_KEYS,
)
"""What an owner may configure: ``flower-supernode --node-config``. Not "simulated": that is for
simulations."""

NEEDED = {
    "data": "names the file of this node's users",
    "partition-id": "numbers the nodes from 0, a different number for each",
    "guard-folder": "keeps what was answered, so that a budget spent stays spent",
}
"""What an owner must configure, and why."""


def is_owned(node_config: FlatConfig) -> bool:
    """Say whether a node has an owner; one of Flower's simulation without data has none."""
    return "data" in node_config or not in_simulation()


def in_simulation() -> bool:
    """Say whether this process is a worker of Flower's simulation runtime, not a SuperNode's.

    A SuperNode's client process has no Ray; it must not be talked into reading a population that
    the server names, whatever its owner's configuration lacks.
    """
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def owned_node(run_config: FlatConfig, node_config: FlatConfig) -> NodeSetup:
    """Set up a node of a deployment from its owner's configuration alone.

    Messages of errors reach the server, so none of them says anything about the data; the
    details are in the SuperNode's own log.

    Raises WireError if the run's configuration carries a seed; PopulationError if the owner's
    configuration is incomplete or the data cannot be read.
    """
    _refuse_seeds(run_config)
    for key in node_config:
        if key not in OWNER_KEYS:
            raise PopulationError(f"unknown node configuration {key!r}{nearest(key, OWNER_KEYS)}")
    owner = limits_of(node_config, NEEDED)
    reader = {k: node_config[k] for k in READER_KEYS if k in node_config}
    if "," in str(reader.get("value", "")):
        reader["value"] = tuple(c.strip() for c in str(reader["value"]).split(",") if c.strip())
    index, parts = natural(node_config, "partition-id"), natural(node_config, "num-partitions", 1)
    seed = seed_of(node_config)
    try:
        for plugin in str(node_config.get("plugins", "")).split(","):
            if plugin.strip():
                load_plugin(plugin.strip())
        path = str(Path(str(node_config["data"])).expanduser())
        users = users_of_file(path, tuple(reader.items()))
        if node_config.get("split-data", False):
            users = users.split(parts)[index]
    except Exception as error:
        raise unreadable(error) from None
    value = reader.get("value", ())
    dimension = len(value) if isinstance(value, tuple) else 1
    return NodeSetup(users, index, seed, owner, shape(dimension if "value" in reader else None))


def limits_of(node_config: FlatConfig, needed: Iterable[str]) -> dict[str, Any]:
    """Read what a node's owner allows, and where the node keeps what it has answered."""
    for key in needed:
        if key not in node_config:
            raise PopulationError(f"this node's owner must configure {key!r}: it {NEEDED[key]}")
    owner: dict[str, Any] = {
        k: node_config[k] for k in POLICY_KEYS if k in node_config and k != "simulated"
    }
    for key in KEEPING_KEYS:
        if key in node_config:
            place = Path(str(node_config[key])).expanduser()
            if not place.is_absolute():
                raise PopulationError(f"this node's {key!r} must be an absolute path")
            owner[key] = str(place)
    for key in ("epsilon", "max-epsilon"):
        budget = node_config.get(key, 1.0)
        if type(budget) not in (int, float) or not 0 < float(budget) < math.inf:
            raise PopulationError(f"{key!r} of this node must be a positive finite number")
    for key in ("queries", "limits"):
        if key in node_config and not str(node_config[key]).strip(" ,"):
            raise PopulationError(f"{key!r} of this node allows nothing; leave it out to allow all")
    owner_keys(owner)
    try:
        policy_of(owner)
    except (ValueError, TypeError) as error:
        raise PopulationError(f"the policy of this node cannot be read: {error}") from None
    return owner


def unreadable(error: Exception) -> PopulationError:
    """Write to this node's log why its data cannot be read; return what the server is told."""
    log(ERROR, "the data of this node cannot be read: %s", error)
    return PopulationError("the data of this node cannot be read; its own log says why")


def seed_of(node_config: FlatConfig) -> int | None:
    """Return the seed of the users' coins where the owner has set one; None: system entropy."""
    return natural(node_config, "simulation-seed") if "simulation-seed" in node_config else None


def shape(dimension: int | None) -> Users:
    """Make up a user whose record is of the kind of a node's: vectors of numbers, or items."""
    if dimension is None:
        return Users.from_counts(np.zeros(1, np.uint64), [], [], [], Keys.of(()))
    return Users.from_samples([0], [0, 1], np.zeros((1, dimension)))


def _refuse_seeds(run_config: FlatConfig) -> None:
    """Refuse a run whose configuration mentions a seed, in a key or in the overrides."""
    seeds = [k for k in run_config if "seed" in k.lower()]
    seeds += ["overrides"] if "seed" in str(run_config.get("overrides", "")).lower() else []
    if seeds:
        raise WireError(
            f"this client refuses a seed from the server (in {seeds[0]!r}): who knows the seed "
            "knows the noise; the node's owner may set 'simulation-seed'"
        )


def natural(node_config: FlatConfig, key: str, default: int | None = None) -> int:
    """Read a non-negative integer; PopulationError for anything else."""
    value = node_config.get(key, default)
    if type(value) is not int or value < 0:
        raise PopulationError(f"{key!r} of this node must be a non-negative integer")
    return value


def users_of_file(path: str, reader: tuple[tuple[str, Any], ...]) -> Users:
    """Read the users of a table; ValueError, or PopulationError, if that is not possible."""
    file = Path(path)
    return _read_users(path, reader, file.stat().st_mtime_ns if file.exists() else 0)


@lru_cache(maxsize=4)
def _read_users(path: str, reader: tuple[tuple[str, Any], ...], written: int) -> Users:
    options: dict[str, Any] = dict(reader)
    names = [options.pop(key, None) for key in ("user", "item", "count", "value")]
    user, item, count, value = names
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    if user is None or (item is None) == (not values) or (values and count is not None):
        raise ValueError(
            f"name the columns user, and item (and count) or value, got {dict(reader)}"
        )
    columns = [user, *values] if values else [c for c in (user, item, count) if c is not None]
    read = read_samples if values else read_items
    users, dropped = read(Path(path), columns, TableFormat(**options), skip_bad_rows=False)
    if dropped:
        log(INFO, "rows left out: %s", dict(dropped))
    return users
