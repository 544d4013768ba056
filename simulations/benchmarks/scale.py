"""From a million users to a hundred million and more: time by phase, and memory that stays."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from simulations.benchmarks.measuring import Result, Row, Spread
from simulations.benchmarks.scale_run import PROTOCOLS, WORKERS, Case, Seen

MICROSECONDS = {"histogram": 0.4, "votes": 0.06}
"""Most of a user and a core, end to end."""

GROWTH = 40.0
"""Most megabytes that a process has more at the largest size of all runs than at the smallest."""

SIZES = (10**6, 10**7, 10**8)
MORE = 10**9
QUICK = (70_000, 140_000)
JUDGED = 10**8
RUNTIMES = {"inline": "inline", "ray": f"{WORKERS} workers", "raylets": "3 raylets"}


def measure(*, quick: bool = False, full: bool = False) -> Result:
    """Run every case in a process of its own."""
    sizes = QUICK if quick else (*SIZES, MORE) if full else SIZES
    runtimes = [r for r in RUNTIMES if full or r != "raylets"]
    rows: list[Row] = []
    for what in PROTOCOLS:
        phases: dict[str, float] = {}
        for runtime in runtimes:
            found = {n: seen(Case(what, runtime, n)) for n in sizes}
            phases = phases or found[max(sizes)].phases
            rows += rows_of(f"{what}, {RUNTIMES[runtime]}", found, MICROSECONDS[what])
        rows += [Row(f"{what}: {name}", "ns", one(1e9 * x)) for name, x in phases.items()]
    notes = (
        "Seconds: wall time. CPU: time of all processes, Ray's own too, over the users, from the "
        "first message on; other programs on the machine cost wall time and less of this.",
        "Phases: CPU time of one thread over 16 blocks, each made, answered and measured.",
        "Memory: VmHWM at the end; the driver, the largest worker, and all processes with Ray's "
        "own, which count shared pages several times. What grows is from the smallest size on.",
    )
    setting = f"{', '.join(f'{n:,}' for n in sizes)} users; 50 Zipf draws, one sample"
    return Result("scale", setting, tuple(rows), notes)


def rows_of(name: str, found: dict[int, Seen], microseconds: float) -> Iterator[Row]:
    """Show one protocol on one runtime, the least size first."""
    least, most = found[min(found)], found[max(found)]
    for n, x in found.items():
        label = f"{name}, {in_power(n)}"
        target = 1e3 * microseconds if x.workers and n == JUDGED else None
        yield Row(label, "s", one(x.seconds))
        yield Row("  CPU a user", "ns", one(1e9 * x.cpu / n), at_most=target)
        yield Row("  driver", "MB", one(x.driver / 1e6))
        if x.workers:
            yield Row("  largest worker", "MB", one(max(x.workers) / 1e6))
            yield Row("  all processes", "MB", one(x.everything / 1e6))
    yield Row("  driver grows by", "MB", one((most.driver - least.driver) / 1e6), at_most=GROWTH)
    if most.workers:
        grown = (max(most.workers) - max(least.workers)) / 1e6
        yield Row("  largest worker grows by", "MB", one(grown), at_most=GROWTH)


def in_power(n: int) -> str:
    """Write a size as a power of ten, if it is one.

    >>> in_power(10**8), in_power(70_000)
    ('10^8', '70,000')
    """
    power = len(str(n)) - 1
    return f"10^{power}" if n == 10**power else f"{n:,}"


def one(x: float) -> Spread:
    """Return the spread of a single measurement."""
    return Spread(x, x, x)


def seen(case: Case) -> Seen:
    """Run a case in a fresh process; RuntimeError if it breaks off."""
    with tempfile.TemporaryDirectory(prefix="fedhist-scale-") as folder:
        out = Path(folder) / "seen.json"
        task = json.dumps(asdict(case) | {"out": str(out)})
        command = [sys.executable, "-m", "simulations.benchmarks.scale_run", task]
        status = subprocess.run(command, check=False).returncode
        if status or not out.exists():
            raise RuntimeError(f"{case} broke off with status {status}")
        return Seen(**json.loads(out.read_text()))
