"""``python -m simulations.benchmarks [NAME ...]``: all benchmarks by default.

Each runs in a process of its own with one BLAS thread: thread counts are read when NumPy loads,
and memory is its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import platform
import subprocess
import sys
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from simulations.benchmarks.measuring import Result
from simulations.runtimes.threads import THREADS

NAMES = ("messages", "kernels", "votes", "scale", "secagg")
"""Modules beside this one whose ``measure`` runs a benchmark."""


def measure(name: str, *, quick: bool = False, full: bool = False) -> Result:
    """Run one benchmark in this process; a quick one's sizes are too small for the targets."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    run = importlib.import_module(f"simulations.benchmarks.{name}").measure
    result: Result = run(quick=quick, **({"full": full} if name == "scale" else {}))
    if not quick:
        return result
    rows = [replace(row, at_least=None, at_most=None) for row in result.rows]
    return replace(result, rows=rows, notes=(*result.notes, "A quick run: nothing is judged."))


def main(arguments: list[str] | None = None) -> None:
    """Run benchmarks, one after the other, or one of them here."""
    parser = argparse.ArgumentParser(description="Speed and memory as ratios.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work?")
    parser.add_argument("--full", action="store_true", help="scale: 10^9 users, three raylets")
    parser.add_argument("--out", type=Path, help="add a line of JSON for each to this file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"there is no benchmark {min(unknown)!r}; there are {', '.join(NAMES)}")
    if given.quick and given.full:
        parser.error("a run is quick or full, not both")
    for name in given.names or NAMES:
        if given.here:
            show(name, measure(name, quick=given.quick, full=given.full), given.out)
            continue
        options = [f"--{key}" for key in ("quick", "full") if getattr(given, key)]
        options += ["--out", str(given.out)] if given.out else []
        command = [sys.executable, "-m", "simulations.benchmarks", "--here", name, *options]
        if status := subprocess.run(command, env=os.environ | THREADS, check=False).returncode:
            sys.exit(f"the benchmark {name!r} broke off with status {status}")


def show(name: str, result: Result, out: Path | None) -> None:
    """Print a benchmark with the state of the machine, and add it to a file."""
    packages = ("fedhist", "flwr", "ray", "numpy", "numba")
    machine = {
        "cpus": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{p: version(p) for p in packages},
    }
    print(f"\n{name}: {result.setting}")
    print(*result.rows, *(f"- {note}" for note in result.notes), sep="\n")
    print("-", ", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    if out is not None:
        rows = [asdict(row) | {"median": row.median, "met": row.met} for row in result.rows]
        body = {"name": name, "setting": result.setting, "rows": rows, "machine": machine}
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(body) + "\n")


if __name__ == "__main__":
    main()
