"""The command ``fedhist decide``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.terminal import NO_FILE, DataFile, Force, Json, Out, Plugin, Set, spread


@spread
def decide(
    source: Annotated[
        str,
        typer.Argument(
            help="Your CSV, TSV or Parquet file, a .toml file with a table \\[decide], or a "
            "built-in one (fedhist list studies)."
        ),
    ],
    data: DataFile = NO_FILE,
    target: Annotated[
        str | None,
        typer.Option(help="histogram, distribution, mean or quantiles; of a plugin, its own."),
    ] = None,
    error: Annotated[
        str | None, typer.Option(help="Largest error: 10% of the answer's own size, say.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Fixed budget; with --error, users are solved for.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Default: 1e-6.")] = None,
    trust: Annotated[
        str | None, typer.Option(help="Levels of trust, with commas between. Default: all.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer runs, and one protocol of each level.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say what the users hold, and stop.")
    ] = False,
    theory: Annotated[
        bool, typer.Option("--theory", help="Stop after the search, before fresh runs.")
    ] = False,
    set_: Set = None,
    plugin: Plugin = None,
    out: Out = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """From a file to a decision: which protocol under which trust, at which epsilon.

    Searches every protocol under every level of trust, verifies the best by simulation on your
    users, and writes a configuration to run for each level. NOT PRIVATE.

    Exit status: 0 there is an answer, 3 no level of trust reaches the error, 2 wrong usage.
    """
    from fedhist.model.protocol import EXIT_CODES
    from simulations.config.reading import builtin_names, toml_value
    from simulations.reporting.files import NEW, check_folder, new_folder
    from simulations.studies.decide.decision import Decision
    from simulations.studies.decide.decision import decide as answer
    from simulations.studies.decide.question import (
        FOLDER,
        check_columns,
        load_question,
    )

    file = Path(source)
    study = file.suffix == ".toml" or source in builtin_names(FOLDER)
    if not study:
        if data.path is not None:
            raise ValueError(f"the data are {source}: --data is for a study in its place")
        data = replace(data, path=file)
        check_columns(file, data.user, data.item, data.value)
    overrides = data.overrides(plugin)
    asked = {
        "target": target or (None if study or data.value is None else "mean"),
        "error": error or ("10%" if profile and epsilon is None and not study else None),
        "epsilon": epsilon,
        "delta": delta,
        "effort": "quick" if quick else None,
        "theory": theory or None,
        "trust": None if trust is None else [t.strip() for t in trust.split(",")],
    }
    overrides += [f"decide.{k}={toml_value(v)}" for k, v in asked.items() if v is not None]
    overrides += set_ or ()
    question = load_question(source if study else file, overrides)
    if profile:
        from simulations.reporting.table import print_lines
        from simulations.studies.decide.decision import profile_for

        told = profile_for(question)
        told.print_on(terminal.console)
        print_lines(terminal.console, [f"NOT PRIVATE: {told.not_private}"])
        if json_:
            terminal.print_json(told.document())
        return
    check_folder(out or NEW, Decision.kind, force=force)  # before anything is computed
    with terminal.progress_bar() as bar:
        task = bar.add_task("reading", total=100)
        decision = answer(
            question, lambda what, share: bar.update(task, description=what, completed=100 * share)
        )
    folder = out or new_folder(f"decide-{question.name}")
    decision.save(folder, force=force)
    if json_:
        terminal.print_json({**decision.document(), "folder": str(folder)})
    decision.print(terminal.console)
    terminal.console.print(f"written to {folder} (NOT PRIVATE)", soft_wrap=True)
    for name in decision.run_files():
        terminal.console.print(f"  fedhist run {folder / name}", soft_wrap=True, markup=False)
    if question.error is not None and all(f.x is None for f in decision.findings):
        raise typer.Exit(EXIT_CODES["refused"])
