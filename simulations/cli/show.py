"""The command ``fedhist show``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.terminal import Json


def show(
    folder: Annotated[
        Path, typer.Argument(help="What run, compare, decide, audit or reproduce wrote.")
    ],
    as_: Annotated[
        str, typer.Option("--as", help="txt, md, tex, csv, svg, pdf, png, html or json.")
    ] = "txt",
    json_: Json = False,
) -> None:
    """Show what lies in FOLDER: as text, as a table or a figure for a paper, or as a page.

    A study that still runs, or was killed, is shown as far as it has come.

    Exit status: 0 it was shown, 2 there are no results.
    """
    from simulations.reporting.shown import KINDS
    from simulations.studies.compared import Compared, open_folder
    from simulations.studies.tables import tracebacks

    if as_ not in KINDS:
        raise ValueError(f"--as is one of {', '.join(KINDS)}, got {as_!r}")
    opened = open_folder(folder)
    if json_:
        terminal.print_json(opened.document())
    elif as_ == "txt":
        opened.print_on(terminal.console)
        if terminal.debugging() and isinstance(opened, Compared):
            for text in tracebacks(opened.lines):
                terminal.console.print(f"\n{text}", markup=False, soft_wrap=True)
    else:
        body = opened.written(as_)
        sys.stdout.flush()
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
