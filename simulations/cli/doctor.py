"""The command ``fedhist doctor``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.terminal import Json


def doctor(
    limit: Annotated[float, typer.Option(min=1, help="Seconds for each tiny run.")] = 120.0,
    quick: Annotated[bool, typer.Option("--quick", help="Run nothing.")] = False,
    json_: Json = False,
) -> None:
    """Check the installation: versions, cores, disk, network, a tiny run on each runtime.

    Exit status: 0 it works (a note is nothing that keeps it from working), 1 something failed.
    """
    from simulations.reporting.table import BAD, GOOD, NOTED, Marked, print_row
    from simulations.runs.doctor import FAILED, NOTE, RUNTIMES, Examined, examine, tiny_run

    marks = {FAILED: BAD, NOTE: NOTED}
    done = []

    def show(found: Examined) -> None:
        done.append(found)
        status = Marked(found.status, marks.get(found.status, GOOD))
        print_row(terminal.console, (status, found.what, found.words), (6, 15))

    for found in examine(Path.cwd()):
        show(found)
    for name in () if quick else RUNTIMES:
        with terminal.waiting(f"run, {name}"):
            found = tiny_run(name, limit)
        show(found)
    failed = sum(found.status == FAILED for found in done)
    said = f"{failed} of {len(done)} checks failed" if failed else "fedhist works here"
    terminal.console.print(said)
    if json_:
        terminal.print_json({"kind": "doctor", "works": not failed, "checks": [*map(asdict, done)]})
    if failed:
        raise typer.Exit(terminal.RUN_ERROR)
