"""The command ``fedhist compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.terminal import (
    NO_FILE,
    DataFile,
    Force,
    Json,
    Out,
    Plugin,
    RayAddress,
    Set,
    Workers,
    place,
    spread,
)


@spread
def compare(
    study: Annotated[
        str,
        typer.Argument(
            help="A .toml file with a table \\[compare] or \\[sweep], or a built-in study."
        ),
    ],
    set_: Set = None,
    data: DataFile = NO_FILE,
    plugin: Plugin = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of every row.")] = None,
    workers: Workers = None,
    ray_address: RayAddress = None,
    out: Out = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Rank protocols of one target on the same users, at one budget, or over a grid.

    Started again with the same --out (default: results/compare-NAME), it runs what is not there
    yet: it may be killed at any moment. Nothing here is private: errors are measured against the
    truth.

    Exit status: 0 it ran (a protocol may have refused or failed), 1 some cells broke off, 2 wrong
    usage.
    """
    from simulations.config.reading import reading
    from simulations.reporting.table import quiet_flower
    from simulations.studies.cells import ERROR
    from simulations.studies.compared import run_study
    from simulations.studies.runner import read_records
    from simulations.studies.study import load_study

    overrides = [*data.overrides(plugin), *(set_ or ())]
    if seeds is not None:
        overrides.append(f"sweep.seeds={seeds}")
    quiet_flower()
    loaded = load_study(study, overrides)
    tasks, address = place(workers, ray_address or loaded.run.ray_address)
    folder = (out or Path("results") / f"compare-{loaded.name}").absolute()
    with terminal.progress_bar() as bar:
        task = bar.add_task("cells", total=None)

        def progress(now: int, total: int) -> None:
            bar.update(task, completed=now, total=total)

        try:
            with reading(study):
                compared = run_study(
                    loaded,
                    folder,
                    workers=tasks,
                    address=address,
                    force=force,
                    progress=progress,
                )
        except KeyboardInterrupt:
            bar.stop()
            done = f"interrupted; {len(read_records(folder)):,} cells are in {folder}"
            terminal.errors.print(f"{done}; the same command runs the others", soft_wrap=True)
            raise terminal.Stopped(terminal.INTERRUPTED) from None
    compared.print_on(terminal.console)
    terminal.console.print(f"\nwritten to {folder} (NOT PRIVATE)", soft_wrap=True)
    if json_:
        records = [json.loads(r.to_json()) for r in compared.by_key.values()]
        terminal.print_json({**compared.document(), "folder": str(folder), "records": records})
    if any(r.status == ERROR for r in compared.by_key.values()):
        terminal.errors.print(f"some cells broke off: fedhist show {folder} --debug says where")
        raise typer.Exit(terminal.RUN_ERROR)
