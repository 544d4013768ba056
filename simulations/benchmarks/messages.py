"""Cost of one client message: Ray here, Flower's own simulation, and calls in this process."""

from __future__ import annotations

import gc
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.serverapp import Grid, ServerApp

from clients import app as client
from fedhist.flower.wire import MESSAGE_TYPE, encode_question
from fedhist.model.protocol import Script
from fedhist.model.registry import load_builtin
from fedhist.protocols import BoundedHistogram
from fedhist.users.batch import Users
from server.noise import noise_source
from server.session.curator import Curator
from server.session.session import Session
from server.strategy import SessionStrategy
from simulations.benchmarks.kernels import shoppers
from simulations.benchmarks.measuring import Result, Row, ratio, scaled
from simulations.populations import population
from simulations.runs.options import Options
from simulations.runs.run import execute
from simulations.runtimes.flower_internals import simulate
from simulations.runtimes.simulated_grid import LocalGrid

WORKERS = 2
D = 1000
DRAWS = 100
SEED = 1

Rounds = list[dict[str, float]]


@dataclass(frozen=True)
class RepeatedCounts(BoundedHistogram):
    """Asks the histogram ``times`` times, with slightly different clips, and releases the last.

    Every round is a query of its own (no answer is repeated), of the same cost: what the first
    round pays once (compiled loops are loaded, nodes are set up) can be told from what every
    round pays.
    """

    name: ClassVar[str] = "bench-repeated-counts"
    times: int = 2

    @property
    def max_rounds(self) -> int:
        """One per repetition."""
        return self.times

    def nth(self, i: int) -> Self:
        """Return the protocol of repetition i: the same, with a slightly smaller clip."""
        return replace(self, clip=self.clip * (1.0 - i / 1024))

    def rounds(self, server: Curator) -> Script:
        """Ask again and again; release once."""
        for i in reversed(range(1, self.times)):
            yield self.nth(i).query
        return (yield from super().rounds(server))


def measure(*, quick: bool = False) -> Result:
    """Measure a message on all three, in turns."""
    n_nodes, n_flower = (60, 20) if quick else (2000, 1000)
    turns, rounds, flower_rounds = (1, 3, 2) if quick else (3, 8, 2)
    load_builtin()
    users = shoppers(n_nodes, D, DRAWS)
    few = population("zipf", **flower_population(n_flower)).load().users
    seconds: dict[str, list[float]] = {"ray": [], "flower": [], "calls": []}
    for _ in range(turns):
        seconds["ray"].append(_of_rounds(on_ray(users, rounds), n_nodes))
        seconds["calls"].append(float(np.median(calls(users, rounds)[1:])) / n_nodes)
        seconds["flower"].append(_of_rounds(on_flower(few, n_flower, flower_rounds), n_flower))
    rows = (
        Row("Ray: round trip with aggregation", "ms", scaled(seconds["ray"], 1e3)),
        Row("Flower's simulation runtime, same apps", "ms", scaled(seconds["flower"], 1e3)),
        Row("nodes called in this process", "ms", scaled(seconds["calls"], 1e3)),
        Row("Flower's runtime / Ray", "x", ratio(seconds["flower"], seconds["ray"]), at_least=30),
        Row("Ray / calls in this process", "x", ratio(seconds["ray"], seconds["calls"]), at_most=2),
    )
    notes = (
        f"Wall time per message with {WORKERS} workers: a round from making the messages to the "
        "merged and checked summary, divided by the number of nodes. Median of the rounds after "
        f"the first, {rounds - 1} on Ray and in process, {flower_rounds - 1} on Flower's runtime; "
        f"{turns} turns.",
        "Calls in this process: the nodes alone on one core, no transport, no aggregation. Ray "
        f"keeps {WORKERS} workers and the driver busy, so another program slows it more: see load.",
        f"Flower's runtime has {n_flower:,} nodes: a message costs it more the more there are.",
    )
    setting = f"{n_nodes:,} nodes of one user, replies of {8 * D:,} bytes (d = {D:,})"
    return Result(setting, rows, notes)


def protocol(users: Users, rounds: int) -> RepeatedCounts:
    """Make the job: d real-valued sums per reply, asked ``rounds`` times."""
    return RepeatedCounts(users.vocabulary, epsilon=1.0, clip=10.0, delta=1e-6, times=rounds)


def on_ray(users: Users, rounds: int) -> Rounds:
    """Run on Ray, as ``fedhist run`` does."""
    options = Options(seed=SEED, runtime="ray", nodes=len(users), workers=WORKERS)
    return execute(protocol(users, rounds), users, options).rounds


def _of_rounds(rounds: Rounds, n_nodes: int) -> float:
    """Seconds per message of the rounds after the first."""
    whole = [r["seconds_asking"] + r["seconds_merging"] for r in rounds[1:]]
    return float(np.median(whole)) / n_nodes


def calls(users: Users, rounds: int) -> list[float]:
    """Let nodes in this process answer the messages that Ray's workers get."""
    n = len(users)
    job = protocol(users, rounds)
    grid = LocalGrid(users.split(n), SEED)
    taken = []
    for k in range(rounds):
        record = encode_question(job.nth(rounds - 1 - k).query, k)
        group = str(k)
        messages = [Message(record, i, MESSAGE_TYPE, group_id=group) for i in grid.get_node_ids()]
        gc.collect()
        started = time.perf_counter()
        for message in messages:
            grid.answer(message)
        taken.append(time.perf_counter() - started)
    return taken


def flower_population(n_users: int) -> dict[str, float | int]:
    """Describe the users for Flower's actors, which make them themselves."""
    return {"n_users": n_users, "d": D, "exponent": 0.9, "mean_items": DRAWS, "tail": float("inf")}


def on_flower(users: Users, n_nodes: int, rounds: int) -> Rounds:
    """Run the same nodes and server on Flower's own simulation runtime."""
    job = protocol(users, rounds)
    session = Session(job, noise_source("simulated", SEED, job))
    strategy = SessionStrategy(session, n_nodes)
    with tempfile.TemporaryDirectory(prefix="fedhist-bench-") as folder:
        write_app(Path(folder), n_nodes)
        simulate(server_of(strategy), client.app, n_nodes, WORKERS, folder)
    if session.estimate is None:
        raise RuntimeError("Flower's simulation runtime published no estimate")
    return strategy.rounds


def server_of(strategy: SessionStrategy) -> ServerApp:
    """Make the ServerApp that runs a prepared strategy."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy.start(grid, ArrayRecord(), timeout=3600.0)

    return app


def write_app(folder: Path, n_nodes: int) -> None:
    """Write what Flower's actors read: an app's configuration that names a run's."""
    made = "".join(f"{k} = {v}\n" for k, v in flower_population(n_nodes).items())
    config = folder / "bench.toml"
    config.write_text(
        f'[run]\nseed = {SEED}\nnodes = {n_nodes}\n[protocol]\nname = "bounded-histogram"\n'
        f'epsilon = 1.0\nclip = 10.0\n[population]\nkind = "zipf"\n{made}'
    )
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "bench"\nversion = "1"\nlicense = "Apache-2.0"\n'
        '[tool.flwr.app]\npublisher = "fedhist"\n'
        '[tool.flwr.app.components]\nserverapp = "server.app:app"\nclientapp = "clients.app:app"\n'
        f'[tool.flwr.app.config]\nconfig = "{config}"\noverrides = ""\nout = ""\n'
    )
