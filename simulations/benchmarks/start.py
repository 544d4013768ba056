"""How long it takes to start: whole processes, against one that imports NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import fedhist
from simulations.benchmarks.measuring import Result, Row, ratio, scaled

NUMPY = ("-c", "import numpy")
QUIET_NUMPY = 0.1
"""CPU seconds of ``import numpy`` on the quiet machine that the targets are meant for."""

CLI = ("-m", "simulations.cli.main")
TARGETS: dict[str, tuple[float, tuple[str, ...]]] = {
    "import fedhist": (0.3, ("-c", "import fedhist")),
    "fedhist --help": (0.4, (*CLI, "--help")),
    "quickstart inline": (1.5, (*CLI, "run", "quickstart", "--runtime", "inline")),
}
"""CPU seconds on that machine, and the process."""

ON_RAY = "quickstart on Ray"
RAY_SECONDS = 5.0
"""Wall seconds on two quiet cores: most of it is waiting for Ray's own processes."""

NONE: Mapping[str, str] = MappingProxyType({})
SMALL = ("--nodes", "10", "--population.n_users", "100")


def measure(*, quick: bool = False) -> Result:
    """Measure CPU and wall time of whole processes in turns."""
    turns = 1 if quick else 7
    commands = {"numpy": NUMPY, **{name: command for name, (_, command) in TARGETS.items()}}
    if quick:
        commands["quickstart inline"] += SMALL
    else:
        commands[ON_RAY] = (*CLI, "run", "quickstart", "--runtime", "ray", "--workers", "2")
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    wall: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory(prefix="fedhist-start-") as folder:
        # bytecode is kept, also where the environment forbids to write it beside the sources
        kept = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        # the first turn fills caches: compiled loops, bytecode, files
        for turn in range(1 if quick else 0, 1 + turns):
            for name, command in commands.items():
                used, taken = process(command, kept)
                if turn:
                    cpu[name].append(used)
                    wall[name].append(taken)
    rows = [Row("import numpy: CPU", "s", scaled(cpu["numpy"], 1.0))]
    for name, (target, _) in TARGETS.items():
        most = target / QUIET_NUMPY
        rows += [
            Row(f"{name}: CPU", "s", scaled(cpu[name], 1.0)),
            Row(f"{name}: CPU / import numpy", "x", ratio(cpu[name], cpu["numpy"]), at_most=most),
            Row(f"{name}: wall / import numpy", "x", ratio(wall[name], wall["numpy"])),
        ]
    if ON_RAY in commands:
        most = RAY_SECONDS / QUIET_NUMPY
        rows += [
            Row(f"{ON_RAY}: wall", "s", scaled(wall[ON_RAY], 1.0)),
            Row(
                f"{ON_RAY}: wall / import numpy",
                "x",
                ratio(wall[ON_RAY], wall["numpy"]),
                at_most=most,
            ),
        ]
    targets = ", ".join(f"{name} {target:g} s" for name, (target, _) in TARGETS.items())
    notes = (
        f"Targets, CPU where import numpy takes {QUIET_NUMPY:g} s: {targets}.",
        f"On Ray, wall time: {RAY_SECONDS:g} s.",
        "The quickstart writes its folder of results, figure included.",
    )
    return Result("start", f"whole processes, {turns} turns", tuple(rows), notes)


def process(command: tuple[str, ...], settings: Mapping[str, str] = NONE) -> tuple[float, float]:
    """Run Python in a folder of its own; CPU and wall seconds. RuntimeError if it fails.

    ``settings`` are more variables of its environment.
    """
    home = str(Path(fedhist.__file__).resolve().parents[1])
    with tempfile.TemporaryDirectory(prefix="fedhist-start-") as folder:
        started = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": home, **settings},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(child.pid, 0)
        taken = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"python {' '.join(command)} ended with status {child.returncode}")
    return usage.ru_utime + usage.ru_stime, taken
