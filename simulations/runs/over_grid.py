"""Run a session over a Flower Grid: the strategy of a deployment, over simulated nodes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from flwr.app import ArrayRecord

from fedhist.model.query import Query
from fedhist.privacy.guarantee import Trust
from fedhist.users.shards import Shard
from server.intake import Intake
from server.session.session import Session
from server.strategy import DROPPED, SessionStrategy
from simulations import adversaries
from simulations.runs.options import Options, Outcome, ended
from simulations.runtimes.simulated_grid import LocalGrid, Progress, SimulatedGrid


def strategy_of(session: Session, n_nodes: int, options: Options) -> SessionStrategy:
    """Set the strategy up for a session, for any of Flower's runtimes."""

    def intake(query: Query, digest: str, on_bad_reply: str) -> Intake:
        if options.watch is not None:
            options.watch(query)
        return Intake(query, digest, on_bad_reply, options.max_users_per_node)

    return SessionStrategy(
        session,
        n_nodes,
        fold=options.fold,
        min_replies=options.min_replies,
        on_bad_reply=options.on_bad_reply,
        intake=intake,
        masked=options.masked,
        shuffled=True,  # simulated; where nodes are remote the configuration refuses it
    )


def run_over_grid(
    session: Session, users: Shard, n_nodes: int, seed: int, options: Options
) -> Outcome:
    """Ask the users through messages until the session has ended: on Ray, or in this process."""
    started = time.perf_counter()
    sums_only = session.protocol.guarantee.trust is Trust.AGGREGATE
    several = any(a.level == "user" for a in options.adversaries)
    if options.runtime == "inline" and several and not sums_only:
        options = replace(options, fold=False)  # who tampers with a message of its own sends one
    assigned = None
    if options.adversaries:  # who misbehaves is drawn, and made, from all users' records
        tables = adversaries.of_messages(options.adversaries, len(users), n_nodes, options.fold)
        assigned = adversaries.Assigned(
            tables, users.in_memory("a run with adversaries").split(n_nodes)
        )
    poisoned = users
    if assigned is not None:  # in their order, by which they are cut into nodes
        poisoned = assigned.nodes[0].followed_by(assigned.nodes[1:])
    strategy = strategy_of(session, n_nodes, options)

    def report(replies: int, asked: int) -> None:
        if options.progress is not None:
            done = min(replies, n_nodes) * len(users) // n_nodes
            options.progress(session.round_index, done, len(users))

    with _grid(poisoned, n_nodes, seed, options, report) as grid:
        ready = time.perf_counter()
        hostile = None if assigned is None else adversaries.HostileGrid(grid, assigned, seed)
        strategy.start(hostile or grid, ArrayRecord(), timeout=options.timeout)
        seconds = {"start": ready - started, "run": time.perf_counter() - ready}
        measured = grid.beside_total()
    counts = {} if hostile is None else _counts(hostile, strategy.rounds)
    return Outcome(ended(session), strategy.rounds, seconds, seed, counts, measured)


def _grid(
    users: Shard, n_nodes: int, seed: int, options: Options, progress: Progress
) -> AbstractContextManager[SimulatedGrid]:
    if options.runtime == "inline":
        nodes = users.split(n_nodes)
        return nullcontext(LocalGrid(nodes, options.coins(seed), progress))
    from simulations.runtimes.ray_grid import RayGrid

    return RayGrid(
        users,
        n_nodes,
        options.coins(seed),
        workers=options.workers,
        address=options.ray_address,
        plugins=list(options.plugins),
        progress=progress,
        beside=None if options.adversaries else options.beside,
    )


def _counts(
    hostile: adversaries.HostileGrid, rounds: Sequence[Mapping[str, float]]
) -> dict[str, dict[str, int]]:
    """Count what adversaries did and what became of it, over all rounds. NOT PRIVATE."""
    dropped = Counter(hostile.withheld)
    for statistics in rounds:
        for name, n in statistics.items():
            if name.startswith(DROPPED):
                dropped[name.removeprefix(DROPPED)] += int(n)
    return {"injected": dict(hostile.injected), "dropped": dict(dropped)}
