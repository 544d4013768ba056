"""The command ``fedhist doctor``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.options import Json


def register(cli: typer.Typer) -> None:
    """Add the command to the command line."""
    cli.command()(doctor)


def doctor(
    limit: Annotated[float, typer.Option(min=1, help="Seconds for each tiny run.")] = 120.0,
    quick: Annotated[bool, typer.Option("--quick", help="Run nothing.")] = False,
    json_: Json = False,
) -> None:
    """Check the installation: versions, cores, memory, disk, ports, a tiny run on each runtime.

    Exit status: 0 it works (a note is nothing that keeps it from working), 1 something failed.
    """
    from simulations.runs.doctor import FAILED, NOTE, RUNTIMES, examine

    colour = {FAILED: "bold red", NOTE: "yellow"}
    done = []
    for found in examine(Path.cwd(), () if quick else RUNTIMES, limit):
        done.append(found)
        style = colour.get(found.status, "green")
        terminal.console.print(f"[{style}]{found.status:<6}[/] {found.what:<16} ", end="")
        terminal.console.print(found.words, markup=False, soft_wrap=True)
    failed = sum(found.status == FAILED for found in done)
    told = f"{failed} of {len(done)} checks failed" if failed else "fedhist works here"
    terminal.console.print(told)
    if json_:
        terminal.print_json({"kind": "doctor", "works": not failed, "checks": [*map(asdict, done)]})
    if failed:
        raise typer.Exit(terminal.RUN_ERROR)
