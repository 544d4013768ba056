"""Run a session on Ray: the apps of a deployment, over a grid of simulated nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from flwr.app import Context, RecordDict

from fedhist.flower.host import Config, NodeSetup, ServerSetup, set_host
from fedhist.model.protocol import Estimate
from fedhist.session.session import Session
from fedhist.users.batch import Users, join
from server.app import app as server_app
from simulations.adversaries import Assigned, HostileGrid, of_messages
from simulations.runs.run import Options, Outcome, server_setup
from simulations.runtimes.ray_grid import RayGrid


@dataclass
class DriverHost:
    """Hands a prepared server setup to the ServerApp of this process."""

    setup: ServerSetup

    def node(self, run_config: Config, node_config: Config) -> NodeSetup:
        """Refuse: the driver hosts no client."""
        raise TypeError("the driver hosts the server only")

    def server(self, run_config: Config) -> ServerSetup:
        """Return the prepared setup."""
        return self.setup


def run_ray(session: Session, users: Users, n_nodes: int, seed: int, options: Options) -> Outcome:
    """Ask the users on Ray's workers until the session has ended."""
    outcome: list[Outcome] = []
    started = time.perf_counter()
    progress = options.progress

    def report(replies: int, expected: int) -> None:
        if progress is not None:
            progress(session.round_index, replies, expected)

    assigned = None
    if options.adversaries:
        tables = of_messages(options.adversaries, len(users), n_nodes, options.fold)
        assigned = Assigned(tables, users.split(n_nodes))
        users = join(assigned.nodes)
    with RayGrid(
        users,
        n_nodes,
        options.coins(seed),
        workers=options.workers,
        address=options.ray_address,
        owner=options.policy,
        plugins=list(options.plugins),
        progress=report,
    ) as grid:
        ready = time.perf_counter()
        hostile = None if assigned is None else HostileGrid(grid, assigned, seed)

        def publish(estimate: Estimate, rounds: list[dict[str, float]]) -> None:
            seconds = {"start": ready - started, "run": time.perf_counter() - ready}
            counts = {} if hostile is None else {"injected": dict(hostile.injected)}
            outcome.append(Outcome(estimate, rounds, seconds, seed, counts))

        set_host(DriverHost(server_setup(session, n_nodes, publish, options)))
        try:
            server_app(hostile or grid, Context(1, 1, {}, RecordDict(), {}))
        finally:
            set_host(None)
    return outcome[0]
