"""The command ``fedhist reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.terminal import (
    Count,
    Force,
    Item,
    Json,
    Out,
    Top,
    User,
    columns_given,
)


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A table or figure, or all; none lists them.")
    ] = None,
    population: Annotated[
        str | None, typer.Option(help="What to run it on; default: the first of its list.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The population's file, if it has one.")] = None,
    user: User = None,
    item: Item = None,
    count: Count = None,
    top: Top = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="setting=VALUE or population.key=VALUE; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Makes the run reproducible.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: does it work?")] = False,
    out: Out = None,
    json_: Json = False,
    force: Force = False,
) -> None:
    """Measure a paper's table or figure again and say whether it is reproduced.

    Nothing here is private: it compares with the truth.

    Exit status: 0 every verdict is PASS, 5 some verdict is FAIL, 2 wrong usage or an unreadable
    file, 1 it broke off.
    """
    from simulations.experiments.experiment import experiment
    from simulations.experiments.report import REPRODUCTION, Reproduced, folder_of, reproduce_all
    from simulations.reporting.files import check_folder
    from simulations.reporting.table import print_table, quiet_flower

    if name is None:
        from simulations.cli.lists import experiments_table

        print_table(terminal.console, experiments_table())
        return
    given = columns_given(data, user=user, item=item, count=count, top=top)
    if name == "all":
        if population or data or set_ or json_:
            raise ValueError(
                "all runs every experiment as it stands; give only --quick, --seed, --out"
            )
        target = check_folder(out or Path("results") / REPRODUCTION, REPRODUCTION, force=force)
        quiet_flower()
        every = reproduce_all(
            quick=quick, seed=seed, report=lambda name: terminal.console.print(f"{name} ...")
        )
        print_table(terminal.console, every.tables()[0])
        every.save(target, force=force)
        terminal.console.print(f"written to {target} (NOT PRIVATE)", soft_wrap=True, markup=False)
        if any(isinstance(x, Exception) for x in every.every.values()):
            raise typer.Exit(terminal.RUN_ERROR)
        failed = any(x.result.failures for x in every.done.values())
        raise typer.Exit(terminal.NOT_REPRODUCED if failed else 0)
    chosen = experiment(name)
    request = chosen.request(
        population=population,
        data=data,
        columns=given,
        overrides=set_ or (),
        seed=seed,
        quick=quick,
    )
    folder = folder_of(chosen, request, out, force=force)  # before anything is computed
    quiet_flower()
    result = chosen.run(request)
    if quick:
        result.unjudge()
    done = Reproduced(result)
    done.print_on(terminal.console)
    try:
        done.save(folder, force=force)
    except OSError as e:  # the place could be written to before: not a mistake of the user's
        terminal.errors.print(f"error: {folder} was not written: {e}", markup=False, soft_wrap=True)
        raise typer.Exit(terminal.RUN_ERROR) from None
    terminal.console.print(f"written to {folder} (NOT PRIVATE)", soft_wrap=True, markup=False)
    if json_:
        terminal.print_json({**done.document(), "folder": str(folder)})
    if result.failures:
        raise typer.Exit(terminal.NOT_REPRODUCED)
