"""The command ``fedhist report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.options import Force, Json


def report(
    path: Annotated[
        Path,
        typer.Argument(help="Folder of run, reproduce or compare, or the file of a sweep."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page; default: report.html in or beside PATH.")
    ] = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Write one HTML page about results: it opens from disk and needs no network.

    Exit status: 0 it was written, 2 there are no results to read.
    """
    from simulations.studies.report.assemble import write_report

    default = path / "report.html" if path.is_dir() else path.with_suffix(".html")
    target = out or default
    size = write_report(path, target, force=force)
    terminal.console.print(
        f"written to {target} ({size / 1e6:.1f} MB, NOT PRIVATE)", soft_wrap=True
    )
    if json_:
        terminal.print_json({"kind": "report", "of": str(path), "file": str(target), "bytes": size})
