"""``fedhist doctor``: what an installation claims is tried, a tiny run on each runtime among it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.terminal import Json

OK, NOTE, FAILED = "ok", "note", "FAILED"
RUNTIMES = ("inline", "ray")
LIMIT = 120.0
"""Seconds for each tiny run."""
TINY = (
    *("-m", "fedhist", "run", "quickstart", "--population.n_users", "200"),
    *("--nodes", "20", "--population.d", "10", "--workers", "1"),
)


@dataclass(frozen=True)
class Examined:
    """What one check found; a note is nothing that keeps fedhist from working."""

    what: str
    status: str
    words: str


def examine() -> Iterator[Examined]:
    """Make every check that runs nothing."""
    told = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    linux = platform.system() == "Linux"
    yield Examined("python", OK if linux else NOTE, told + ": tested on Linux only" * (not linux))
    yield packages()
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    few = ": Ray gains nothing here; --runtime inline, --workers 0"
    yield Examined("cores", OK if n > 1 else NOTE, f"{n}{few if n < 2 else ''}")


def packages() -> Examined:
    """Compare what is installed with what fedhist asks for."""
    from packaging.requirements import Requirement

    try:
        asked = [Requirement(line) for line in requires("fedhist") or ()]
    except PackageNotFoundError:
        return Examined("packages", NOTE, "fedhist is not installed: what it asks for is not known")
    wrong, right = list[str](), list[str]()
    for need in asked:
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            here = version(need.name)
        except PackageNotFoundError:
            wrong.append(f"{need} is missing")
            continue
        fits = need.specifier.contains(here, prereleases=True)
        (right if fits else wrong).append(f"{need.name} {here}" + f", not {need}" * (not fits))
    if wrong:
        again = "install fedhist anew (pip install --upgrade fedhist)"
        return Examined("packages", FAILED, f"{'; '.join(wrong)}: {again}")
    return Examined("packages", OK, ", ".join(sorted(right, key=str.lower)))


def tiny_run(runtime: str, limit: float = LIMIT, command: tuple[str, ...] = TINY) -> Examined:
    """Run 200 users in a process of its own, which is ended after ``limit`` seconds."""
    what, started = f"run, {runtime}", time.perf_counter()
    otherwise = "; --runtime inline needs no other process" * (runtime != "inline")
    with tempfile.TemporaryDirectory(prefix="fedhist-doctor-", ignore_cleanup_errors=True) as place:
        given = [sys.executable, *command, "--runtime", runtime, "--out", f"{place}/run"]
        try:
            done = subprocess.run(given, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            told = f"not done after {limit:g} s: is the machine busy?"
            return Examined(what, FAILED, told + otherwise)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return Examined(what, FAILED, said + otherwise)
    return Examined(what, OK, f"200 users in {time.perf_counter() - started:.0f} s, start included")


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Run nothing.")] = False,
    json_: Json = False,
) -> None:
    """Check the installation: versions, cores, a tiny run on each runtime.

    Exit status: 0 it works (a note is nothing that keeps it from working), 1 something failed.
    """
    from simulations.reporting.table import BAD, GOOD, NOTED, STYLES

    marks = {FAILED: BAD, NOTE: NOTED}
    done = []

    def show(result: Examined) -> None:
        done.append(result)
        style = STYLES[marks.get(result.status, GOOD)]
        terminal.console.print(f"{result.status:8}", style=style, end="")
        terminal.console.print(f"{result.what}: {result.words}", markup=False, soft_wrap=True)

    for result in examine():
        show(result)
    for name in () if quick else RUNTIMES:
        with terminal.errors.status(f"run, {name}"):
            result = tiny_run(name)
        show(result)
    failed = sum(result.status == FAILED for result in done)
    said = f"{failed} of {len(done)} checks failed" if failed else "fedhist works here"
    terminal.console.print(said)
    if json_:
        terminal.print_json({"kind": "doctor", "works": not failed, "checks": [*map(asdict, done)]})
    if failed:
        raise typer.Exit(terminal.RUN_ERROR)
