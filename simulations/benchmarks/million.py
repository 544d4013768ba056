"""A million users through the l2-clipped histogram: inline, on Ray, and their memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord

from clients.answers import fold_node
from fedhist.model.query import Summary
from fedhist.model.registry import load_builtin
from fedhist.session.codec import query_digest
from fedhist.session.session import Session
from fedhist.users.batch import Users
from server.strategy import SessionStrategy
from simulations.benchmarks import memory
from simulations.benchmarks.measuring import Result, Row, Spread, in_turns, ratio, scaled
from simulations.benchmarks.populations import shoppers
from simulations.benchmarks.repeated import RepeatedCounts
from simulations.runs.run import noise_source
from simulations.runtimes.ray_grid import RayGrid
from simulations.runtimes.ray_start import ray_session

D = 1000
DRAWS = 100
CLIP = 10.0
SEED = 1
WORKERS = 2
NODE_SECONDS = 0.3e-3
MEMORY = 2.0
SUM = 3.5


@dataclass(frozen=True)
class OnRay:
    """What one run on Ray showed.

    Attributes
    ----------
    rounds : list of float
        Seconds of every round but the first.
    driver, worker : float
        Peak memory above the memory before the data, as a multiple of the process's own data.
    private : float
        The same of the driver's private memory, without its view of Ray's shared store.
    """

    rounds: list[float]
    driver: float
    worker: float
    private: float


def measure(*, quick: bool = False) -> Result:
    """Measure inline against reading the bytes, then Ray against inline, in turns."""
    n_users, n_nodes = (20_000, 20) if quick else (1_000_000, 1000)
    turns, rounds, blocks = (2, 3, 1) if quick else (9, 7, 3)
    load_builtin()
    warm = shoppers(100, D, DRAWS)
    protocol = RepeatedCounts(warm.vocabulary, epsilon=1.0, clip=CLIP, delta=1e-6, times=rounds)
    ask_inline(protocol, warm)
    before = memory.status().get("VmRSS", 0)
    users = shoppers(n_users, D, DRAWS)
    columns = users.counts
    even = len(columns.item) // 2 * 2
    words = [a[:even].view(np.int64) for a in (columns.item, columns.count)]
    tasks = {
        "inline": lambda: ask_inline(protocol, users),
        "sum": lambda: [int(a.sum()) for a in words],
    }
    found = in_turns(tasks, turns)
    peak_inline = memory.above(memory.status().get("VmHWM", 0), before, users.nbytes)
    inline, runs = [], []
    for _ in range(blocks):
        inline += in_turns({"inline": tasks["inline"]}, max(2, turns // 3))["inline"]
        runs.append(on_ray(users, n_nodes, protocol, before))
    usual = Spread.of(inline).median
    rounds_on_ray = [t for run in runs for t in run.rounds]
    node = [(t - usual) / n_nodes for t in rounds_on_ray]
    workers, drivers = [r.worker for r in runs], [r.driver for r in runs]
    rows = (
        Row("inline", "ns/user", scaled(found["inline"], 1e9 / n_users)),
        Row("np.sum over the same bytes", "ns/user", scaled(found["sum"], 1e9 / n_users)),
        Row("inline / np.sum", "x", ratio(found["inline"], found["sum"]), at_most=SUM),
        Row(f"Ray, round of {n_nodes:,} nodes", "ms", scaled(rounds_on_ray, 1e3)),
        Row("Ray above inline, per node", "ms", scaled(node, 1e3), at_most=1e3 * NODE_SECONDS),
        Row("memory, inline", "x", Spread.of([peak_inline]), at_most=MEMORY),
        Row("memory, Ray worker", "x", Spread.of(workers), at_most=MEMORY),
        Row("memory, Ray driver", "x", Spread.of([max(drivers)]), at_most=MEMORY),
        Row("  without Ray's shared store", "x", Spread.of([r.private for r in runs])),
    )
    notes = (
        f"{users.n_items().mean():.1f} distinct items per user, {users.nbytes / 1e6:,.0f} MB of "
        f"records. One thread inline and for np.sum; {WORKERS} workers on Ray.",
        "Ray: rounds after the first, start-up apart. Above inline: minus the median inline time.",
        "Memory: the peak of resident memory (VmHWM) minus what was resident after the imports "
        "(a worker: that of one with a single user), over the bytes of the process's own records: "
        "all of them inline and on the driver, half on each worker.",
        "Records travel to the workers in parts through Ray's shared store, whose pages count on "
        "both sides; the last line is the driver's peak without them.",
    )
    setting = f"{n_users:,} users, {DRAWS} draws each, d = {D:,}, l2 clip"
    return Result("million-users", setting, rows, notes)


def ask_inline(protocol: RepeatedCounts, users: Users) -> Summary:
    """Ask all users as one node in this process."""
    return fold_node(protocol.query, users, SEED, query_digest(protocol.query, 0))


def on_ray(users: Users, n_nodes: int, protocol: RepeatedCounts, before: int) -> OnRay:
    """Run the repeated rounds on Ray and read every process's memory."""
    with memory.watch_private() as private, ray_session(WORKERS):
        with RayGrid(users.slice(0, WORKERS), WORKERS, SEED, workers=WORKERS) as bare:
            ask(bare, protocol)
            imported = min(memory.status(pid)["VmRSS"] for pid in bare.worker_pids())
        with RayGrid(users, n_nodes, SEED, workers=WORKERS) as grid:
            strategy = ask(grid, protocol)
            pids = grid.worker_pids()
            share = users.nbytes // len(pids)
            peaks = [memory.status(pid)["VmHWM"] for pid in pids]
            worker = max(memory.above(peak, imported, share) for peak in peaks)
            here = memory.status()
    times = [r["seconds_asking"] + r["seconds_merging"] for r in strategy.rounds]
    driver, own = (memory.above(m, before, users.nbytes) for m in (here["VmHWM"], private[0]))
    return OnRay(times[1:], driver, worker, own)


def ask(grid: RayGrid, protocol: RepeatedCounts) -> SessionStrategy:
    """Ask the nodes of a grid."""
    session = Session(protocol, noise_source("simulated", SEED, protocol))
    strategy = SessionStrategy(session, grid.n_nodes)
    strategy.start(grid, ArrayRecord())
    return strategy
