"""The command ``fedhist doctor``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulations.cli import terminal
from simulations.cli.options import Json

if TYPE_CHECKING:
    from simulations.runs.doctor import Examined


def doctor(
    limit: Annotated[float, typer.Option(min=1, help="Seconds for each tiny run.")] = 120.0,
    quick: Annotated[bool, typer.Option("--quick", help="Run nothing.")] = False,
    runtimes: Annotated[
        str | None,
        typer.Option(
            help="Run on these only: inline, ray, simulation, deployment, with commas between."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Check the installation: versions, cores, memory, disk, ports, a tiny run on each runtime.

    The runs take a minute or two, on Flower's simulation and on a deployment on this machine most
    of it; every process that they start is ended.

    Exit status: 0 it works (a note is nothing that keeps it from working), 1 something failed.
    """
    from fedhist.base.checks import check_choice
    from simulations.reporting.table import BAD, GOOD, NOTED, Marked
    from simulations.reporting.terminal import print_row
    from simulations.runs.doctor import FAILED, NOTE, examine
    from simulations.runs.tiny_runs import RUNTIMES, tiny_run

    chosen = RUNTIMES if runtimes is None else [name.strip() for name in runtimes.split(",")]
    for name in chosen:
        check_choice("--runtimes", name, RUNTIMES)
    marks = {FAILED: BAD, NOTE: NOTED}
    done = []

    def show(found: Examined) -> None:
        done.append(found)
        status = Marked(found.status, marks.get(found.status, GOOD))
        print_row(terminal.console, (status, found.what, found.words), (6, 15))

    for found in examine(Path.cwd()):
        show(found)
    with ended_by_terminate():
        for name in () if quick else chosen:
            with terminal.waiting(f"run, {name}") as told:
                found = tiny_run(name, limit, told)
            show(found)
    failed = sum(found.status == FAILED for found in done)
    said = f"{failed} of {len(done)} checks failed" if failed else "fedhist works here"
    terminal.console.print(said)
    if json_:
        terminal.print_json({"kind": "doctor", "works": not failed, "checks": [*map(asdict, done)]})
    if failed:
        raise typer.Exit(terminal.RUN_ERROR)


@contextmanager
def ended_by_terminate() -> Iterator[None]:
    """Let SIGTERM unwind, so that what was started is ended."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
