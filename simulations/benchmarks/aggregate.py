"""A million users on a thousand nodes that add the noise, beside a server that does, inline."""

from __future__ import annotations

from dataclasses import replace

from fedhist.model.registry import load_builtin
from fedhist.privacy.aggregation import Aggregation
from fedhist.protocols import BoundedHistogram
from simulations.benchmarks.measuring import Result, Row, Task, in_turns, ratio, scaled
from simulations.benchmarks.populations import shoppers
from simulations.runs.options import Options, ended
from simulations.runs.run import open_session
from simulations.runtimes.inline import InlinePopulation

D, DRAWS, CLIP, GRID = 1000, 100, 10.0, 1 / 64
SEED = 1
RATIO = 1.3
NOISES = {"laplace": 0.0, "gaussian": 1e-6}


def measure(*, quick: bool = False) -> Result:
    """Time whole runs of the same query under both trusts, in turns."""
    n_users, n_nodes, turns = (20_000, 20, 2) if quick else (1_000_000, 1000, 9)
    load_builtin()
    users = shoppers(n_users, D, DRAWS)
    population = InlinePopulation(users.split(n_nodes), SEED)
    rows = []
    for kind, delta in NOISES.items():
        central = BoundedHistogram(users.vocabulary, 1.0, CLIP, delta, grid=GRID)
        shared = replace(central, trust=Aggregation(n_nodes))
        found = in_turns(
            {"central": _run(central, population), "aggregate": _run(shared, population)}, turns
        )
        more = [a - c for a, c in zip(found["aggregate"], found["central"], strict=True)]
        rows += [
            Row(f"central, {kind}", "ms", scaled(found["central"], 1e3)),
            Row(f"aggregate, {kind}", "ms", scaled(found["aggregate"], 1e3)),
            Row(
                f"aggregate / central, {kind}",
                "x",
                ratio(found["aggregate"], found["central"]),
                at_most=RATIO,
            ),
            Row(f"a node's share and its message, {kind}", "us", scaled(more, 1e6 / n_nodes)),
        ]
    notes = (
        f"One thread; {users.n_items().mean():.1f} distinct items per user; simulated noise, "
        "aggregation without masks. Session, journal in memory and checks are part of both.",
    )
    setting = f"{n_users:,} users on {n_nodes:,} nodes, d = {D:,}, histogram clipped on a grid"
    return Result("aggregate", setting, tuple(rows), notes)


def _run(protocol: BoundedHistogram, population: InlinePopulation) -> Task:
    def task() -> object:
        session, _ = open_session(protocol, Options(seed=SEED))
        session.run(population.ask)
        return ended(session)

    return task
