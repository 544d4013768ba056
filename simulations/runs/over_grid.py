"""Run a session over a Flower Grid: the strategy of a deployment, over simulated nodes."""

from __future__ import annotations

import time

from flwr.app import ArrayRecord

from fedhist.session.session import Session
from fedhist.users.batch import Users, join
from server.strategy import SessionStrategy
from simulations.adversaries import Assigned, HostileGrid, of_messages
from simulations.runs.options import Options, Outcome, ended
from simulations.runtimes.ray_grid import RayGrid


def strategy_of(session: Session, n_nodes: int, options: Options) -> SessionStrategy:
    """Set the strategy up for a session, for any of Flower's runtimes."""
    return SessionStrategy(
        session,
        n_nodes,
        fold=options.fold,
        min_replies=options.min_replies,
        on_bad_reply=options.on_bad_reply,
    )


def run_over_ray(
    session: Session, users: Users, n_nodes: int, seed: int, options: Options
) -> Outcome:
    """Ask the users on Ray's workers until the session has ended."""
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
        strategy = strategy_of(session, n_nodes, options)
        strategy.start(hostile or grid, ArrayRecord(), timeout=options.timeout)
        seconds = {"start": ready - started, "run": time.perf_counter() - ready}
    counts = {} if hostile is None else {"injected": dict(hostile.injected)}
    return Outcome(ended(session), strategy.rounds, seconds, seed, counts)
