"""Run benchmarks, each in a process of its own with one BLAS thread."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from simulations.benchmarks.measuring import Result
from simulations.runtimes.threads import THREADS

MODULES = {
    "messages": "messages",
    "million-users": "million",
    "votes": "votes",
    "scale": "scale",
    "kernels": "kernels",
    "randclip": "randclip",
    "contributions": "contributions",
    "few-users": "few_users",
    "selection": "selection",
    "local": "local",
    "start": "start",
    "aggregate": "aggregate",
    "secagg": "secagg",
    "shuffled": "shuffled",
    "populations": "populations",
}
"""Every benchmark, and the module beside this one whose ``measure`` runs it."""

NAMES = tuple(MODULES)
PACKAGES = ("fedhist", "flwr", "ray", "numpy", "numba")


def measure(name: str, *, quick: bool = False, rivals: str = "", full: bool = False) -> Result:
    """Run one benchmark in this process; see :func:`run_benchmarks`."""
    module = import_module(f"simulations.benchmarks.{MODULES[check_name(name)]}")
    logging.getLogger("flwr").setLevel(logging.WARNING)
    more: dict[str, dict[str, Any]] = {"votes": {"folder": rivals}, "scale": {"full": full}}
    result: Result = module.measure(quick=quick, **more.get(name, {}))
    return without_targets(result) if quick else result


def without_targets(result: Result) -> Result:
    """Drop the targets of a quick run: its sizes are too small to be judged."""
    rows = tuple(replace(row, at_least=None, at_most=None) for row in result.rows)
    notes = (*result.notes, "A quick run: the sizes are too small for the targets.")
    return replace(result, rows=rows, notes=notes)


def run_benchmarks(
    names: Sequence[str] = (), *, quick: bool = False, rivals: str = "", full: bool = False
) -> Iterator[tuple[Result, dict[str, Any]]]:
    """Run benchmarks one after the other.

    Parameters
    ----------
    names : sequence of str
        Default: all of them.
    quick : bool
        Small sizes, to see that it works; the targets are for the full sizes.
    rivals : str
        Folder of the other libraries' environment (benchmark "votes"); default: .venv-bench.
    full : bool
        10^9 users, and three raylets (benchmark "scale").

    Yields
    ------
    result : Result
    machine : dict
        Load average before and after, CPUs, versions.

    Raises
    ------
    ValueError
        For an unknown name, and for a run that is quick and full.
    RuntimeError
        If a benchmark breaks off.
    """
    if quick and full:
        raise ValueError("a run of benchmarks is quick or full, not both")
    for name in [check_name(n) for n in (names or NAMES)]:
        before = os.getloadavg()[0]
        result = _in_child({"name": name, "quick": quick, "rivals": rivals, "full": full})
        yield result, machine() | {"load_before": before, "load_after": os.getloadavg()[0]}


def _in_child(asked: dict[str, Any]) -> Result:
    """Start a fresh interpreter: thread counts are read when NumPy loads, and memory is its own."""
    environment = os.environ | THREADS
    with tempfile.TemporaryDirectory(prefix="fedhist-bench-") as folder:
        out = Path(folder) / "result.json"
        task = json.dumps(asked | {"out": str(out)})
        child = subprocess.run(
            [sys.executable, "-m", "simulations.benchmarks", task], env=environment, check=False
        )
        if child.returncode or not out.exists():
            what = f"the benchmark {asked['name']!r}"
            raise RuntimeError(f"{what} broke off with status {child.returncode}")
        return Result.from_json(json.loads(out.read_text()))


def check_name(name: str) -> str:
    """Return the name; ValueError if there is no such benchmark."""
    if name not in NAMES:
        raise ValueError(f"no benchmark is called {name!r}; there are {', '.join(NAMES)}")
    return name


def machine() -> dict[str, Any]:
    """Describe the machine: CPUs that may be used, its kind, versions of what is measured."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in PACKAGES}},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
