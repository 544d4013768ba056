"""From a million users to a hundred million and more: time, and memory that stays.

``python -m simulations.benchmarks.scale OUT CASE`` is one run, in a process of its own.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedhist.model.evaluation import first_pass, measured
from fedhist.model.protocol import Protocol
from fedhist.users.shards import BLOCK, Shard
from simulations.benchmarks.measuring import Result, Row, memory
from simulations.reporting.table import quiet_flower
from simulations.runs.config import Config, RunTable, prepare
from simulations.runs.options import Options
from simulations.runs.run import execute

WORKERS, RAYLETS = 2, 3
SEED = 1
MICROSECONDS = {"histogram": 0.4, "votes": 0.06}
"""Most of a user and a core, end to end."""

GROWTH = 40.0
"""Most megabytes that a process has more at the largest size of all runs than at the smallest."""

JUDGED = 10**8
WORKER = re.compile("ray::(?!.*Agent)")
"""What Ray's workers call themselves; agents of its own look alike."""

PROTOCOLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "histogram": (
        {"name": "bounded-histogram", "clip": 10, "epsilon": 1.0, "delta": 1e-6},
        {"kind": "zipf", "d": 1000, "mean_items": 50, "tail": math.inf},
    ),
    "votes": (
        {"name": "cover-select", "epsilon": 1.0, "per_axis": 16},
        {"kind": "gaussian", "samples_per_user": 1, "mean": 0.3, "spread": 0.05, "low": -1.0},
    ),
}
"""A central and a local protocol, and their users: the tables of a configuration."""


@dataclass(frozen=True)
class Case:
    """What is run: a protocol of :data:`PROTOCOLS`, "inline", on "ray" or "raylets", for whom."""

    what: str
    runtime: str
    n_users: int


@dataclass(frozen=True)
class Taken:
    """What a run took.

    Wall time of asking and evaluating, and CPU of all processes meanwhile, in seconds; peak memory
    of this process, each worker and all with Ray's own, in bytes.
    """

    seconds: float
    cpu: float
    driver: int
    workers: list[int] = field(default_factory=list)
    everything: int = 0


def measure(*, quick: bool = False, full: bool = False) -> Result:
    """Run every case in a process of its own."""
    sizes = [10**6, 10**7, JUDGED, *([10**9] if full else [])]
    sizes = [70_000, 140_000] if quick else sizes
    runtimes = {"inline": "inline", "ray": f"{WORKERS} workers", "raylets": f"{RAYLETS} raylets"}
    rows: list[Row] = []
    for what in PROTOCOLS:
        for runtime, words in runtimes.items():
            if runtime == "raylets" and not full:
                continue
            taken = {n: run_apart(Case(what, runtime, n)) for n in sizes}
            rows += rows_of(f"{what}, {words}", taken, MICROSECONDS[what])
    notes = (
        "Seconds: wall time. CPU: time of all processes, Ray's own too, over the users, from the "
        "first message on; other programs on the machine cost wall time and less of this.",
        "Memory: VmHWM at the end; the driver, the largest worker, and all processes with Ray's "
        "own, which count shared pages several times. What grows is from the smallest size on.",
    )
    setting = f"{', '.join(f'{n:,}' for n in sizes)} users; 50 Zipf draws, one sample"
    return Result(setting, rows, notes)


def rows_of(name: str, taken: dict[int, Taken], microseconds: float) -> Iterator[Row]:
    """Show one protocol on one runtime, the least size first."""
    least, most = taken[min(taken)], taken[max(taken)]
    for n, x in taken.items():
        label = f"{name}, 10^{round(math.log10(n), 2):g}"
        target = 1e3 * microseconds if x.workers and n == JUDGED else None
        yield Row(label, "s", [x.seconds])
        yield Row("  CPU a user", "ns", [1e9 * x.cpu / n], at_most=target)
        yield Row("  driver", "MB", [x.driver / 1e6])
        if x.workers:
            yield Row("  largest worker", "MB", [max(x.workers) / 1e6])
            yield Row("  all processes", "MB", [x.everything / 1e6])
    yield Row("  driver grows by", "MB", [(most.driver - least.driver) / 1e6], at_most=GROWTH)
    if most.workers:
        grown = (max(most.workers) - max(least.workers)) / 1e6
        yield Row("  largest worker grows by", "MB", [grown], at_most=GROWTH)


def run_here(case: Case) -> Taken:
    """Run a case in this process."""
    protocol, population = PROTOCOLS[case.what]
    users = {**population, "n_users": case.n_users}
    prepared = prepare(Config("scale", RunTable(), protocol, users), lambda spec: spec.plan())
    plan = prepared.plan
    if plan is None:
        raise ValueError("the users are elsewhere")
    with _runtime(case.runtime) as place:
        options = Options(seed=SEED, beside=first_pass(prepared.protocol), **place)
        ask(prepared.protocol, plan.users.slice(0, min(case.n_users, 2 * BLOCK)), options)
        before, started = cpu_times(), time.perf_counter()
        ask(prepared.protocol, plan.users, options)
        seconds = time.perf_counter() - started
        cpu = sum(after - before.get(pid, 0.0) for pid, after in cpu_times().items())
        peaks = {pid: memory(pid).get("VmHWM", 0) for pid in family()}
        workers = [peak for pid, peak in peaks.items() if WORKER.match(command(pid))]
    return Taken(seconds, cpu, peaks[os.getpid()], workers, sum(peaks.values()))


def ask(protocol: Protocol, users: Shard, options: Options) -> None:
    """Run a protocol and evaluate it, users being measured as they answer."""
    total = execute(protocol, users, options).measured
    if total is None:
        raise RuntimeError("the users were not measured as they answered")
    known = measured(protocol, users, total)
    _ = known.truth, known.error


@contextmanager
def _runtime(name: str) -> Iterator[dict[str, Any]]:
    """Start what a run needs; yields the options that say so."""
    if name == "inline":
        yield {}
        return
    from simulations.runtimes.ray_start import ray_session

    if name == "ray":
        with ray_session(WORKERS):
            yield {"runtime": "ray", "workers": WORKERS}
        return
    from simulations.runtimes.raylets import raylets

    with raylets(RAYLETS) as cluster, ray_session(RAYLETS, cluster.address):
        yield {"runtime": "ray", "workers": RAYLETS, "ray_address": cluster.address}


# -- processes, from Linux's /proc ---------------------------------------------------------------


def family() -> list[int]:
    """Return this process and all that descend from it."""
    parents = {pid: int(stat[1]) for pid, stat in _stats().items()}
    mine, new = [os.getpid()], [os.getpid()]
    while new:
        new = [pid for pid, parent in parents.items() if parent in new]
        mine += new
    return mine


def cpu_times() -> dict[int, float]:
    """Return the seconds of CPU that each of the family has used."""
    stats, tick = _stats(), os.sysconf("SC_CLK_TCK")
    return {p: (int(stats[p][11]) + int(stats[p][12])) / tick for p in family() if p in stats}


def command(pid: int) -> str:
    """Return how a process calls itself; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _stats() -> dict[int, list[str]]:
    """Return what /proc/PID/stat says after the name, by process."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue  # it has ended
        stats[int(path.parent.name)] = text.rpartition(")")[2].split()
    return stats


def run_apart(case: Case) -> Taken:
    """Run a case in a fresh process; RuntimeError if it breaks off."""
    with tempfile.TemporaryDirectory(prefix="fedhist-scale-") as folder:
        out = Path(folder) / "taken.json"
        command = [sys.executable, "-m", "simulations.benchmarks.scale", str(out)]
        status = subprocess.run([*command, json.dumps(asdict(case))], check=False).returncode
        if status or not out.exists():
            raise RuntimeError(f"{case} broke off with status {status}")
        return Taken(**json.loads(out.read_text()))


if __name__ == "__main__":
    quiet_flower()
    Path(sys.argv[1]).write_text(json.dumps(asdict(run_here(Case(**json.loads(sys.argv[2]))))))
