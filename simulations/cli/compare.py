"""The command ``fedhist compare``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

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
from simulations.cli.outputs import Digits, Outs, Width, outputs


@spread
def compare(
    config: Annotated[
        str | None,
        typer.Argument(
            help="A .toml file or a built-in comparison; none lists these.",
            autocompletion=completion.comparisons,
        ),
    ] = None,
    set_: Set = None,
    data: DataFile = NO_FILE,
    plugin: Plugin = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of every protocol.")] = None,
    fractions: Annotated[
        str | None, typer.Option(help='Shares of misbehaving users to compare at: "0,0.1,0.49".')
    ] = None,
    workers: Workers = None,
    ray_address: RayAddress = None,
    columns: Annotated[
        str | None, typer.Option(help='Columns to show instead: "l1,relative,bytes"; "all" too.')
    ] = None,
    out: Outs = None,
    digits: Digits = None,
    width: Width = "column",
    force: Force = False,
    show: Show = False,
    json_: Json = False,
) -> None:
    """Rank protocols of one target on the same users, at one budget and one adjacency.

    Nothing here is private: errors are measured against the truth.

    Exit status: 0 it ran (a protocol may have refused or failed), 2 wrong usage.
    """
    from simulations.config.reading import reading
    from simulations.reporting.targets import check_results, new_folder
    from simulations.studies.compare.columns import columns_of
    from simulations.studies.compare.config import comparison_text, load_comparison
    from simulations.studies.compare.output import summary_of
    from simulations.studies.compare.run import Compared, run_comparison
    from simulations.studies.compare.setup import set_up
    from simulations.studies.compare.tables import print_comparison

    if config is None:
        from simulations.cli.lists import print_comparisons

        print_comparisons(terminal.console)
        return
    if show:
        terminal.console.out(comparison_text(config)[0], end="")
        return
    overrides = data.overrides(plugin)
    overrides += [*(set_ or ()), *([] if seeds is None else [f"compare.seeds={seeds}"])]
    if fractions is not None:
        overrides.append(f"compare.fractions=[{fractions}]")
    comparison = load_comparison(config, overrides)
    saved = outputs(out, Compared.kind, digits=digits, width=width, force=force)
    if saved.folder is None:
        check_results()
    workers, address = place(workers, ray_address, comparison.run)
    with reading(config):
        ready = set_up(comparison)
    with terminal.progress_bar() as bar:
        task = bar.add_task("runs", total=len(ready.cells))
        found = run_comparison(
            ready,
            workers=workers,
            address=address,
            progress=lambda: bar.advance(task),
        )
    folder = (saved.folder or new_folder(f"compare-{comparison.name}")).absolute()
    found.save(folder, force=force)  # before a wrong --columns is an error
    said = f"written to {folder} (NOT PRIVATE)"
    leads = ("#", "rank", "trust", "protocol")
    asked = [n.strip() for n in columns.split(",")] if columns else []
    try:
        shown = columns_of(found, [n for n in asked if n not in leads])
    except ValueError:
        terminal.console.print(said, soft_wrap=True)
        raise
    print_comparison(terminal.console, found, shown)
    terminal.console.print(said, soft_wrap=True)
    names = None
    if asked:
        names = tuple(asked) if any(n in leads for n in asked) else (*leads[1:], *shown)
    files = tuple(p for p in saved.paths if p != saved.folder)
    saved = replace(saved, paths=files, columns=names)
    saved.save(found)
    if json_:
        terminal.print_json({**summary_of(found), "folder": str(folder)})
