"""How Flower's simulation runtime sets up the apps: ``flwr run``.

A *simulated* node (``flwr run .``) gets "partition-id" and "num-partitions" from Flower's
simulation runtime; users and seed come from the run's configuration, which the same person wrote. A
node with an owner is set up by :mod:`clients.owned`, and loads nothing from here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from logging import INFO, WARNING

from flwr.common import log

from clients.guard import SIMULATED_OWNER
from clients.owned import is_owned, owned_node
from fedhist.base.errors import PopulationError
from fedhist.flower.host import Config as FlatConfig
from fedhist.flower.host import NodeSetup, ServerSetup
from fedhist.model.evaluation import check_rows
from fedhist.model.registry import load_plugin
from fedhist.users.shards import Shard
from simulations.config.reading import reading
from simulations.reporting.files import check_folder
from simulations.runs.booked_run import booked
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

RunKey = tuple[str, tuple[str, ...]]


class FlowerHost:
    """The default host: reads Flower's run and node configurations."""

    def node(self, run_config: FlatConfig, node_config: FlatConfig) -> NodeSetup:
        """Set up an owned node, or a simulated one inside Flower's simulation runtime.

        Raises WireError if a seed for an owned node arrives with the run; PopulationError if the
        owner's configuration is incomplete or the data cannot be read.
        """
        if is_owned(node_config):
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
        if prepared.config.adversaries or run.clients == "aggregate":
            raise ValueError('adversaries and run.clients = "aggregate" are for fedhist run')
        if run.repeats > 1 or prepared.config.repeat is not None:
            raise ValueError("Flower's runtimes run once: leave run.repeats and [repeat] out")
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
        book = booked(prepared)
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
            book.check(folder)
            level = INFO if estimate.status == "ok" else WARNING
            said = f"{estimate.status}: {estimate.reason}" if estimate.reason else estimate.status
            log(level, "%s; results in %s", said, folder)

        return ServerSetup(strategy, options.timeout, publish, book.give_back)


HOST = FlowerHost()


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
