"""How Flower's own runtimes set up the apps: ``flwr run`` and SuperNodes.

Two kinds of node:

* A *simulated* node (``flwr run .``): Flower gives it "partition-id" and "num-partitions"; users
  and seed come from the run's configuration, which the same person wrote.
* An *owned* node (a deployment): its owner's node configuration names the data ("data", and how
  to read it) and the policy. Nothing of it comes from the server: a seed in the run's
  configuration is refused, because a server that knows the seed knows the noise.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fedhist.errors import PopulationError, WireError
from fedhist.hosting import Config as FlatConfig
from fedhist.hosting import NodeSetup, ServerSetup
from fedhist.journal import Journal
from fedhist.protocol import Estimate
from fedhist.registry import load_plugin
from fedhist.session import Session
from fedhist.users import Users
from simulations.config import Config, Prepared, load_config, prepare
from simulations.output import write_results
from simulations.populations import population
from simulations.run import Outcome, noise_source

OWNER_KEYS = (
    "trust",
    "epsilon",
    "max-epsilon",
    "queries",
    "salts",
    "noiseless",
    "guard-folder",
)
READER_KEYS = ("user", "item", "count", "value", "separator", "encoding", "header")
SIMULATED_OWNER = {"trust": "central", "epsilon": float("inf"), "noiseless": True}


class FlowerHost:
    """The default host: reads Flower's run and node configurations."""

    def node(self, run_config: FlatConfig, node_config: FlatConfig) -> NodeSetup:
        """Set up an owned node where its owner names data, a simulated one otherwise.

        Raises
        ------
        WireError
            If a seed for an owned node arrives with the run.
        PopulationError
            If the node has neither data nor a partition.
        """
        if "data" in node_config:
            return owned_node(run_config, node_config)
        if "partition-id" not in node_config or "num-partitions" not in node_config:
            raise PopulationError(
                "this node has no data: its owner must name them (node configuration 'data')"
            )
        config = _config(run_config)
        nodes = int(node_config["num-partitions"])
        if config.run.nodes not in (0, nodes):
            raise PopulationError(
                f"the run's configuration has {config.run.nodes} nodes, Flower has {nodes}"
            )
        index = int(node_config["partition-id"])
        users = _simulated_users(_key(run_config), nodes)[index]
        return NodeSetup(users, index, _seed(config), SIMULATED_OWNER)

    def server(self, run_config: FlatConfig) -> ServerSetup:
        """Set up the session; a simulated population is loaded for its facts and the truth."""
        prepared = _prepared(_key(run_config))
        config = prepared.config
        run = config.run
        seed = run.seed if run.seed >= 0 else secrets.randbits(62)
        noise = noise_source(run.noise, seed)
        journal = Journal(run.journal) if run.journal else None
        session = Session(prepared.protocol, noise, journal)

        def publish(estimate: Estimate, rounds: list[dict[str, float]]) -> None:
            outcome = Outcome(estimate, rounds, {}, seed)
            write_results(prepared, [outcome], str(run_config.get("out") or run.out))

        return ServerSetup(
            session,
            run.nodes,
            publish,
            run.fold == "node",
            run.min_replies or None,
            run.timeout,
        )


HOST = FlowerHost()


def owned_node(run_config: FlatConfig, node_config: FlatConfig) -> NodeSetup:
    """Set up a node of a deployment from its owner's configuration alone.

    Raises
    ------
    WireError
        If the run's configuration carries a seed.
    """
    seeds = [k for k in run_config if "seed" in k.lower()]
    seeds += [o for o in _overrides(run_config) if "seed" in o.partition("=")[0].lower()]
    if seeds:
        raise WireError(
            f"this client refuses {seeds[0]!r}: a seed is never taken from the server; the "
            "node's owner may set 'simulation-seed'"
        )
    for plugin in str(node_config.get("plugins", "")).split(","):
        if plugin.strip():
            load_plugin(plugin.strip())
    reader = tuple(sorted((k, node_config[k]) for k in READER_KEYS if k in node_config))
    users = _owned_users(str(node_config["data"]), reader)
    part, parts = int(node_config.get("partition-id", 0)), int(node_config.get("num-partitions", 1))
    if node_config.get("split-data", False):
        users = users.split(parts)[part]
    seed = node_config.get("simulation-seed")
    owner = {k: node_config[k] for k in OWNER_KEYS if k in node_config}
    return NodeSetup(users, part, None if seed is None else int(seed), owner)


@lru_cache(maxsize=4)
def _owned_users(path: str, reader: tuple[tuple[str, Any], ...]) -> Users:
    options: dict[str, Any] = dict(reader)
    kind = "samples" if "value" in options else "events"
    return population(kind, path=path, **options).load().users


def _overrides(run_config: FlatConfig) -> list[str]:
    text = str(run_config.get("overrides", "")).strip()
    return [str(o) for o in json.loads(text)] if text.startswith("[") else text.split()


def _key(run_config: FlatConfig) -> tuple[str, tuple[str, ...]]:
    return str(run_config.get("config", "")), tuple(_overrides(run_config))


def _config(run_config: Mapping[str, Any]) -> Config:
    return _prepared(_key(run_config)).config


@lru_cache(maxsize=2)
def _prepared(key: tuple[str, tuple[str, ...]]) -> Prepared:
    name, overrides = key
    return prepare(load_config(name, overrides))


@lru_cache(maxsize=2)
def _simulated_users(key: tuple[str, tuple[str, ...]], nodes: int) -> tuple[Users, ...]:
    loaded = _prepared(key).loaded
    if loaded is None:
        raise PopulationError("the population is remote, and this node's owner names no data")
    return tuple(loaded.users.split(nodes))


def _seed(config: Config) -> int:
    if config.run.seed < 0:
        raise ValueError(
            "Flower's runtimes need a seed in the configuration (run.seed): the processes of a "
            "simulation share no other randomness"
        )
    return config.run.seed
