"""The commands ``fedhist sweep`` and ``fedhist results``; the other studies' are beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedhist.base.errors import nearest
from simulations.cli import completion, terminal
from simulations.cli.options import (
    NO_FILE,
    DataFile,
    Force,
    Json,
    Plugin,
    RayAddress,
    Set,
    Show,
    Workers,
    place,
    spread,
)
from simulations.cli.outputs import Columns, Digits, Outs, Width, outputs

if TYPE_CHECKING:
    import polars as pl


FORMATS = (".parquet", ".csv")


@spread
def sweep(
    config: Annotated[
        str | None,
        typer.Argument(
            help="A .toml file or a built-in sweep; none lists these.",
            autocompletion=completion.sweeps,
        ),
    ] = None,
    set_: Set = None,
    data: DataFile = NO_FILE,
    plugin: Plugin = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            help="File of the records, .sqlite (default: results/NAME.sqlite); or, besides it, as "
            "of fedhist results; may be repeated.",
        ),
    ] = None,
    columns: Columns = None,
    digits: Digits = None,
    width: Width = "column",
    force: Force = False,
    workers: Workers = None,
    ray_address: RayAddress = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Run cells that were errors again.")
    ] = False,
    show: Show = False,
    json_: Json = False,
) -> None:
    """Run all combinations of a grid and keep them in one file.

    Started again, it runs what the file has not got: it may be killed at any moment.

    Exit status: 0 all cells ended, 1 some are errors, 2 wrong usage.
    """
    from simulations.studies.records.settings_table import print_summary
    from simulations.studies.records.store import ENDINGS, records_of
    from simulations.studies.records.summary import document_of
    from simulations.studies.sweep.config import load_sweep, sweep_text
    from simulations.studies.sweep.run import run_cells
    from simulations.studies.sweep.swept import Swept

    if config is None:
        from simulations.cli.lists import print_sweeps

        print_sweeps(terminal.console)
        return
    if show:
        terminal.console.out(sweep_text(config)[0], end="")
        return
    overrides = data.overrides(plugin)
    loaded = load_sweep(config, [*overrides, *(set_ or ())])
    stores = [p for p in out or () if p.suffix in ENDINGS]
    if len(stores) > 1:
        raise ValueError(f"the records go to one file, got {stores[0]} and {stores[1]}")
    target = stores[0] if stores else Path("results") / f"{loaded.name}.sqlite"
    files = [p for p in out or () if p not in stores]
    saved = outputs(files, Swept.kind, columns=columns, digits=digits, width=width, force=force)
    workers, address = place(workers, ray_address, loaded.run)
    with terminal.progress_bar() as bar:
        task = bar.add_task("cells", total=len(loaded.cells))

        def progress(done: int, _: int) -> None:
            bar.update(task, completed=done)

        try:
            ended = run_cells(
                loaded.cells,
                target,
                workers=workers,
                address=address,
                retry=retry,
                progress=progress,
            )
        except KeyboardInterrupt:
            bar.stop()
            done = len(records_of(loaded.cells, target))
            terminal.errors.print(
                f"interrupted; {done:,} of {len(loaded.cells):,} cells are in {target}, and the "
                "same command runs the others",
                soft_wrap=True,
            )
            raise terminal.Stopped(terminal.INTERRUPTED) from None
    records = records_of(loaded.cells, target)
    print_summary(terminal.console, records)
    for line in loaded.left_out:
        terminal.console.print(f"left out: {line}", markup=False)
    terminal.console.print(f"{_counts(ended)}; written to {target}", soft_wrap=True)
    if files:
        saved.save(Swept(loaded.name, tuple(records), tuple(loaded.left_out)))
    if json_:
        found = document_of("sweep", target, records)
        terminal.print_json({**found, "name": loaded.name, "left_out": list(loaded.left_out)})
    if ended["error"]:
        terminal.errors.print("--retry runs the cells again that were errors")
        raise typer.Exit(terminal.RUN_ERROR)


def results(
    file: Annotated[Path, typer.Argument(help="A file that a study wrote.")],
    where: Annotated[
        list[str] | None,
        typer.Option(help='"epsilon = 1", "n_users >= 1000"; all of several must hold.'),
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="Only this protocol.")] = None,
    out: Outs = None,
    columns: Columns = None,
    digits: Digits = None,
    width: Width = "column",
    force: Force = False,
    keys: Annotated[
        bool, typer.Option("--keys", help="List the columns of the records: --where knows them.")
    ] = False,
    json_: Json = False,
) -> None:
    """Show what FILE holds, a line per setting; filter and export it.

    --out writes all records to .csv and .parquet, and what is shown here to others. A study may
    be writing to FILE at the same time.
    """
    from simulations.reporting.export import save_frame
    from simulations.studies.records.filters import select
    from simulations.studies.records.settings_table import print_summary
    from simulations.studies.records.store import Store, frame_of
    from simulations.studies.records.summary import document_of
    from simulations.studies.sweep.swept import Swept

    saved = outputs(out, Swept.kind, columns=columns, digits=digits, width=width, force=force)
    with Store(file, create=False) as store:
        records = store.records()
    frame = frame_of(records)
    if keys:
        terminal.console.print("\n".join(frame.columns), markup=False)
        if json_:
            terminal.print_json({"kind": "columns", "columns": frame.columns})
        return
    if protocol is not None:
        known = sorted({r.protocol for r in records})
        if protocol not in known:
            raise ValueError(f"no protocol {protocol!r} in {file}{nearest(protocol, known)}")
        frame = frame.filter(frame["protocol"] == protocol)
    if records:
        frame = select(frame, where or ())
    kept = set(frame["key"].to_list()) if records else set()
    records = [r for r in records if r.key in kept]
    print_summary(terminal.console, records)
    terminal.console.print(
        f"{_counts(Counter(r.status for r in records))} in {file}", soft_wrap=True
    )
    if json_:
        terminal.print_json(document_of("results", file, records))
    if out and not records:
        raise ValueError(f"there is nothing to write: no record of {file} is left")
    shown = []
    for path in saved.paths:
        if path.suffix.lower() in FORMATS:
            save_frame(picked_columns(frame, saved.columns), path, force=force)
            terminal.console.print(f"written to {path} (NOT PRIVATE)", soft_wrap=True)
        else:
            shown.append(path)
    if shown:
        replace(saved, paths=tuple(shown)).save(Swept(file.stem, tuple(records)))


def picked_columns(frame: pl.DataFrame, names: Sequence[str] | None) -> pl.DataFrame:
    """Choose columns of records; ValueError for others."""
    for name in names or ():
        if name not in frame.columns:
            raise ValueError(f"no column {name!r}{nearest(name, frame.columns)}; --keys lists them")
    return frame if names is None else frame.select(names)


def _counts(statuses: Counter[str]) -> str:
    total = sum(statuses.values())
    parts = [f"{n:,} {status}" for status, n in sorted(statuses.items())]
    return f"{total:,} cells" + (f": {', '.join(parts)}" if parts else "")
