"""The command ``fedhist new``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedhist.base.files import whole_file
from simulations.cli import terminal
from simulations.cli.terminal import Force


def new(
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits and hyphens.")],
    of: Annotated[str, typer.Option(help="What users hold: items or samples.")] = "items",
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path(),
    force: Force = False,
) -> None:
    """Write a protocol to change into your own: it runs, is audited, and its tests pass.

    Three files: the plugin, its tests for pytest, and a study file.
    """
    from simulations.reporting.files import check_file
    from simulations.studies.skeletons import protocol_files

    texts = protocol_files(name, of)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: name a folder by --out")
    places = {file: check_file(out / file, force=force) for file in texts}
    out.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        whole_file(places[file], text)
        terminal.console.print(f"written: {out / file}", soft_wrap=True, markup=False)
    plugin, test, study = (out / file for file in texts)
    for line in (
        f"fedhist run {study}",
        f"fedhist compare {study}",
        f"fedhist audit {name} --plugin {plugin}",
        f"python -m pytest {test}",
    ):
        terminal.console.print(f"  {line}", soft_wrap=True, markup=False)
