"""A tiny run on each runtime, within a time limit, of which no process is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedhist.base.errors import FedhistError
from simulations.runs.doctor import FAILED, OK, Examined

if TYPE_CHECKING:
    from simulations.runtimes.deployment import FlowerRun, Loopback

INLINE, RAY, SIMULATION, DEPLOYMENT = "inline", "ray", "simulation", "deployment"
RUNTIMES = (INLINE, RAY, SIMULATION, DEPLOYMENT)
"""The last two are Flower's own: ``flwr run``, and a SuperLink with SuperNodes on loopback."""
LIMIT = 120.0
"""Seconds that a tiny run may take."""
TINY = (
    *("-m", "simulations.cli.main", "run", "quickstart", "--population.n_users", "200"),
    *("--nodes", "20", "--population.d", "10", "--workers", "1"),
)
VIRTUAL_NODES, NODES, USERS_OF_A_NODE = 4, 2, 4
SIMULATED = f"run.nodes={VIRTUAL_NODES} population.n_users=200 population.d=10"
APP = """\
[project]
name = "fedhist-doctor"
version = "1.0.0"
description = "What fedhist doctor sends: the installed apps."
license = "MIT"
dependencies = []

[tool.flwr.app]
publisher = "fedhist"

[tool.flwr.app.components]
serverapp = "server.app:app"
clientapp = "clients.app:app"

[tool.flwr.app.config]
config = ""
overrides = ""
out = ""
"""
REMOTE = f"""\
[run]
nodes = {NODES}
timeout = 600.0

[protocol]
name = "mean"
kind = "onebit"
epsilon = 1.0
n_users = {NODES * USERS_OF_A_NODE}
samples_per_user = 2
low = 0.0
high = 8.0

[population]
kind = "remote"
"""
Told = Callable[[str], None]
"""Is told what is waited for."""


def tiny_run(runtime: str, limit: float = LIMIT, told: Told = lambda _: None) -> Examined:
    """Make a tiny run.

    Parameters
    ----------
    runtime : str
        One of :data:`RUNTIMES`.
    limit : float
        Seconds.
    told : callable
        Is called with what is waited for.
    """
    if runtime in (SIMULATION, DEPLOYMENT):
        return on_flower(runtime, limit, told)
    return in_a_process(runtime, limit)


def in_a_process(runtime: str, limit: float, command: Sequence[str] = TINY) -> Examined:
    """Run 200 users in a process of its own, which is ended if it takes too long."""
    from simulations.runtimes.processes import MARKER, end_marked

    what, token = f"run, {runtime}", uuid.uuid4().hex
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fedhist-doctor-") as place:
        process = subprocess.Popen(
            [sys.executable, *command, "--runtime", runtime, "--out", str(Path(place) / "run")],
            env=os.environ | {MARKER: token},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, said = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return Examined(what, FAILED, _late(limit) + _instead(runtime))
        finally:  # Ctrl-C too; Ray's processes are in groups of their own
            process.kill()
            left = end_marked(token)
            process.communicate()
    took = time.perf_counter() - started
    if process.returncode:
        why = _last(said) or f"exit status {process.returncode}"
        return Examined(what, FAILED, why + _instead(runtime))
    return _done(what, "200 users", took, left)


def on_flower(runtime: str, limit: float, told: Told) -> Examined:
    """Run the installed apps under a SuperLink that is started for it, and ended."""
    from simulations.runtimes.deployment import Loopback
    from simulations.runtimes.processes import marked_processes

    what = f"run, {runtime}"
    run = simulated if runtime == SIMULATION else deployed
    started = time.perf_counter()
    end = started + limit
    # a process that was killed may be writing still
    with tempfile.TemporaryDirectory(prefix="fedhist-doctor-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        told("starting a SuperLink")
        up = False
        try:
            with Loopback(folder, simulation=runtime == SIMULATION) as link:
                up = True
                who, done = run(link, folder, end, told)
                told("ending it")
            left = list(marked_processes(link.token))
        except (FedhistError, OSError) as e:
            why = _late(limit) if time.perf_counter() >= end else _last(str(e))
            return Examined(what, FAILED, why + _log_of(folder, up) + _instead(runtime))
    took = time.perf_counter() - started
    if done.status != "finished:completed":
        why = _last(done.details) or _last(done.log)
        return Examined(what, FAILED, f"the run is {done.status}: {why}" + _instead(runtime))
    return _done(what, who, took, left)


def simulated(link: Loopback, folder: Path, end: float, told: Told) -> tuple[str, FlowerRun]:
    """Run on Flower's own simulation runtime, as ``flwr run`` does."""
    told("flwr run, simulated nodes")
    config = {"config": "quickstart", "overrides": SIMULATED, "out": str(folder / "results")}
    run = link.run(_app(folder), config, nodes=VIRTUAL_NODES, timeout=_left(end))
    return "200 users", run


def deployed(link: Loopback, folder: Path, end: float, told: Told) -> tuple[str, FlowerRun]:
    """Run on SuperNodes that read files of their own, on loopback."""
    for i in range(NODES):
        data = folder / f"owner-{i}.csv"
        rows = (f"{i}-{u},{x}" for u in range(USERS_OF_A_NODE) for x in (u, u + 1))
        data.write_text("\n".join(["user,x", *rows]) + "\n", encoding="utf-8")
        link.supernode(
            {
                **{"data": str(data), "user": "user", "value": "x", "partition-id": i},
                "guard-folder": str(folder / f"guard-{i}"),
            }
        )
    remote = folder / "remote.toml"
    remote.write_text(REMOTE, encoding="utf-8")
    told(f"flwr run, {NODES} SuperNodes")
    config = {"config": str(remote), "overrides": "", "out": str(folder / "results")}
    run = link.run(_app(folder), config, timeout=_left(end))
    return f"{NODES * USERS_OF_A_NODE} users on {NODES} SuperNodes", run


def _app(folder: Path) -> Path:
    """Write the app that is sent: a name for what is installed here."""
    app = folder / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(APP, encoding="utf-8")
    return app


def _log_of(folder: Path, up: bool) -> str:
    """Return what a SuperLink that did not come up has logged last."""
    log = folder / "superlink.log"
    last = "" if up or not log.is_file() else _last(log.read_text(errors="replace"))
    return f" (its log ends: {last})" if last else ""


def _left(end: float) -> float:
    """Return the seconds up to an end."""
    return max(end - time.perf_counter(), 1.0)


def _done(what: str, who: str, took: float, left: Sequence[int]) -> Examined:
    if left:
        numbers = ", ".join(map(str, left))
        return Examined(what, FAILED, f"it ended, and processes are left that do not: {numbers}")
    return Examined(what, OK, f"{who} in {took:.0f} s, start included")


def _late(limit: float) -> str:
    return f"not done after {limit:g} s: is the machine busy? (--limit gives more time)"


def _last(said: str) -> str:
    """Return the last line of what was said."""
    return (said.strip().splitlines() or [""])[-1].strip()


def _instead(runtime: str) -> str:
    if runtime == INLINE:
        return ""
    if runtime in (SIMULATION, DEPLOYMENT):
        return "; fedhist run needs no SuperLink"
    return "; --runtime inline needs no other process"
