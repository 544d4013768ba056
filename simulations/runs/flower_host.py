"""How Flower's own runtimes set up the apps: ``flwr run`` and SuperNodes.

Two kinds of node:

* A *simulated* node (``flwr run .``): Flower's simulation runtime gives it "partition-id" and
  "num-partitions"; users and seed come from the run's configuration, which the same person wrote.
* An *owned* node (a deployment): its owner's node configuration names the data ("data", and how
  to read it), the policy and the folder of the guard. Nothing of it comes from the server. A seed
  in the run's configuration is refused, because a server that knows the seed knows the noise; the
  rest of the run's configuration is not even read: it opens no file and imports no module here.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.common import log

from clients.guard import SIMULATED_OWNER
from clients.masked import owner_keys
from clients.node import POLICY_KEYS, policy_of
from fedhist.base.errors import PopulationError, WireError, nearest
from fedhist.flower.host import Config as FlatConfig
from fedhist.flower.host import NodeSetup, ServerSetup
from fedhist.model.evaluation import check_rows
from fedhist.model.registry import load_plugin
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard
from simulations.config.reading import reading
from simulations.populations import population
from simulations.reporting.files import check_folder
from simulations.runs.booked_run import Reservations
from simulations.runs.config import (
    REMOTE,
    Config,
    Prepared,
    load_config,
    population_spec,
    prepare,
)
from simulations.runs.options import MASKED, Outcome, ended
from simulations.runs.over_grid import strategy_of
from simulations.runs.results import RUN, Finished, evaluate, folder_for, write_results
from simulations.runs.run import for_protocol, open_session

KEEPING_KEYS = ("guard-folder", "guard-counter", "secagg-key", "secagg-peers")
READER_KEYS = ("user", "item", "count", "value", "separator", "encoding", "header")
OWNER_KEYS = (
    *("data", "partition-id", "num-partitions", "split-data", "simulation-seed", "plugins"),
    *(key for key in POLICY_KEYS if key != "simulated"),
    *KEEPING_KEYS,
    *READER_KEYS,
)
"""What an owner may configure: ``flower-supernode --node-config``. Not "simulated": that is for
simulations."""


RunKey = tuple[str, tuple[str, ...]]


class FlowerHost:
    """The default host: reads Flower's run and node configurations."""

    def node(self, run_config: FlatConfig, node_config: FlatConfig) -> NodeSetup:
        """Set up an owned node, or a simulated one inside Flower's simulation runtime.

        Raises WireError if a seed for an owned node arrives with the run; PopulationError if the
        owner's configuration is incomplete or the data cannot be read.
        """
        if "data" in node_config or not in_simulation():
            return owned_node(run_config, node_config)
        return simulated_node(run_config, node_config)

    def server(self, run_config: FlatConfig) -> ServerSetup:
        """Set up the session; a simulated population is loaded for its facts and the truth.

        Raises BudgetExceeded if the data set's ledger does not allow the run; nothing has been
        asked then.
        """
        prepared = _prepared(_key(run_config))
        run = prepared.config.run
        if run.nodes < 1:
            raise ValueError("run.nodes must say how many nodes to wait for; it is not set")
        inline_only = run.on_bad_reply == "null" or run.clients == "aggregate"
        if prepared.config.adversaries or inline_only:
            raise ValueError(
                'adversaries, run.on_bad_reply = "null" and run.clients = '
                '"aggregate" are for fedhist run'
            )
        if run.repeats > 1:
            raise ValueError(f"Flower's runtimes run once, got run.repeats = {run.repeats}")
        if prepared.plan is not None:
            _seed(prepared.config)
            check_rows(prepared.protocol, len(prepared.plan.users))
        # as on Ray: messages are sent; and owners' nodes answer under masks only
        aggregation = MASKED if prepared.plan is None else run.aggregation
        options = for_protocol(
            run.options(runtime="ray", aggregation=aggregation), prepared.protocol
        )
        out = str(run_config.get("out") or run.out)
        if out:
            check_folder(out, RUN)
        book = Reservations(prepared)
        try:
            session, seed = open_session(prepared.protocol, options)
        except BaseException:
            book.give_back()
            raise
        book.opened(session)

        strategy = strategy_of(session, run.nodes, options)

        def publish() -> None:
            book.settle()
            estimate = ended(session)
            outcome = Outcome(estimate, strategy.rounds, {}, seed)
            folder = folder_for(prepared.config.name, out)
            write_results(Finished(prepared, [outcome], evaluate(prepared, [outcome]), folder))
            level = INFO if estimate.status == "ok" else WARNING
            said = f"{estimate.status}: {estimate.reason}" if estimate.reason else estimate.status
            log(level, "%s; results in %s", said, folder)

        return ServerSetup(strategy, options.timeout, publish, book.give_back)


HOST = FlowerHost()


def in_simulation() -> bool:
    """Say whether this process is a worker of Flower's simulation runtime, not a SuperNode's.

    A SuperNode's client process has no Ray; it must not be talked into reading a population that
    the server names, whatever its owner's configuration lacks.
    """
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def simulated_node(run_config: FlatConfig, node_config: FlatConfig) -> NodeSetup:
    """Set up a node of Flower's simulation runtime from the run's configuration.

    Raises PopulationError if the configuration names another number of nodes than Flower has.
    """
    key = _key(run_config)
    config, _ = _simulated(key)
    nodes, index = int(node_config["num-partitions"]), int(node_config["partition-id"])
    if config.run.nodes != nodes:
        raise PopulationError(
            f"the run's configuration has {config.run.nodes} nodes, Flower has {nodes}: give "
            f"flwr run --federation-config num-supernodes={config.run.nodes}"
        )
    seed = None if config.run.noise == "secure" else _seed(config)
    return NodeSetup(_parts(key, nodes)[index], index, seed, SIMULATED_OWNER)


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
    for key, why in (
        ("data", "names the file of this node's users"),
        ("partition-id", "numbers the nodes from 0, a different number for each"),
        ("guard-folder", "keeps what was answered, so that a budget spent stays spent"),
    ):
        if key not in node_config:
            raise PopulationError(f"this node's owner must configure {key!r}: it {why}")
    owner: dict[str, Any] = {k: node_config[k] for k in POLICY_KEYS if k in node_config}
    for key in KEEPING_KEYS:
        if key in node_config:
            kept = Path(str(node_config[key])).expanduser()
            if not kept.is_absolute():
                raise PopulationError(f"this node's {key!r} must be an absolute path")
            owner[key] = str(kept)
    for key in ("epsilon", "max-epsilon"):
        budget = node_config.get(key, 1.0)
        if type(budget) not in (int, float) or not 0 < float(budget) < math.inf:
            raise PopulationError(f"{key!r} of this node must be a positive finite number")
    for key in ("queries", "salts", "limits"):
        if key in node_config and not str(node_config[key]).strip(" ,"):
            raise PopulationError(f"{key!r} of this node allows nothing; leave it out to allow all")
    owner_keys(owner)
    try:
        policy_of(owner)
    except (ValueError, TypeError) as error:
        raise PopulationError(f"the policy of this node cannot be read: {error}") from None
    reader = {k: node_config[k] for k in READER_KEYS if k in node_config}
    if "," in str(reader.get("value", "")):
        reader["value"] = tuple(c.strip() for c in str(reader["value"]).split(",") if c.strip())
    index, parts = _natural(node_config, "partition-id"), _natural(node_config, "num-partitions", 1)
    seed = _natural(node_config, "simulation-seed") if "simulation-seed" in node_config else None
    try:
        for plugin in str(node_config.get("plugins", "")).split(","):
            if plugin.strip():
                load_plugin(plugin.strip())
        path = str(Path(str(node_config["data"])).expanduser())
        users = _owned_users(path, tuple(reader.items()))
        if node_config.get("split-data", False):
            users = users.split(parts)[index]
    except Exception as error:
        log(ERROR, "the data of this node cannot be read: %s", error)
        raise PopulationError(
            "the data of this node cannot be read; its own log says why"
        ) from None
    return NodeSetup(users, index, seed, owner, declared_shape(reader))


def declared_shape(reader: Mapping[str, Any]) -> Users:
    """Make up a user whose record is of the kind that the names of the owner's columns declare."""
    if "value" not in reader:
        return Users.from_counts(np.zeros(1, np.uint64), [], [], [], Keys.of(()))
    value = reader["value"]
    dimension = len(value) if isinstance(value, tuple) else 1
    return Users.from_samples([0], [0, 1], np.zeros((1, dimension)))


def _refuse_seeds(run_config: FlatConfig) -> None:
    """Refuse a run whose configuration mentions a seed, in a key or in the overrides."""
    found = [k for k in run_config if "seed" in k.lower()]
    found += ["overrides"] if "seed" in str(run_config.get("overrides", "")).lower() else []
    if found:
        raise WireError(
            f"this client refuses a seed from the server (in {found[0]!r}): who knows the seed "
            "knows the noise; the node's owner may set 'simulation-seed'"
        )


def _natural(node_config: FlatConfig, key: str, default: int | None = None) -> int:
    value = node_config.get(key, default)
    if type(value) is not int or value < 0:
        raise PopulationError(f"{key!r} of this node must be a non-negative integer")
    return value


@lru_cache(maxsize=4)
def _owned_users(path: str, reader: tuple[tuple[str, Any], ...]) -> Users:
    options: dict[str, Any] = dict(reader)
    kind = "samples" if "value" in options else "events"
    return population(kind, path=path, **options).load().users


def _key(run_config: FlatConfig) -> RunKey:
    text = str(run_config.get("overrides", "")).strip()
    overrides = [str(o) for o in json.loads(text)] if text.startswith("[") else text.split()
    return str(run_config.get("config", "")), tuple(overrides)


@lru_cache(maxsize=2)
def _prepared(key: RunKey) -> Prepared:
    name, overrides = key
    config = load_config(name, overrides)
    with reading(name):
        return prepare(config)


@lru_cache(maxsize=2)
def _simulated(key: RunKey) -> tuple[Config, Shard]:
    """Plan a run's population for its nodes: who are not few are made when a node is asked."""
    name, overrides = key
    config = load_config(name, overrides)
    with reading(name):
        if config.population["kind"] == REMOTE:
            raise PopulationError("the population is remote: it is asked by a deployment")
        for plugin in config.run.plugins:
            load_plugin(plugin)
        return config, population_spec(config).plan().kept().users


@lru_cache(maxsize=2)
def _parts(key: RunKey, nodes: int) -> Sequence[Shard]:
    return _simulated(key)[1].split(nodes)


def _seed(config: Config) -> int:
    if config.run.seed < 0:
        raise ValueError(
            "Flower's simulation needs a seed in the configuration (run.seed): its processes "
            "share no other randomness"
        )
    return config.run.seed
