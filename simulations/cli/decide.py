"""The command ``fedhist decide``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import completion, terminal
from simulations.cli.options import NO_FILE, DataFile, Force, Json, Out, Plugin, Set, Show, spread
from simulations.config.named_files import toml_value


@spread
def decide(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Your CSV, TSV or Parquet file, a .toml file with a table \\[decide], or a "
            "built-in example; none lists these.",
            autocompletion=completion.decisions,
        ),
    ] = None,
    data: DataFile = NO_FILE,
    target: Annotated[
        str | None,
        typer.Option(help="histogram, distribution, mean or quantiles; of a plugin, its own."),
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(help="Largest error that will do: 10% of the answer's own size, say."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The budget there is; with --error users are solved for.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Default: 1e-6.")] = None,
    trust: Annotated[
        str | None, typer.Option(help="Levels of trust, with commas between. Default: all.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer runs, and the likeliest protocol only.")
    ] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="More runs, more protocols; takes ten times as long.")
    ] = False,
    set_: Set = None,
    plugin: Plugin = None,
    out: Out = None,
    force: Force = False,
    json_: Json = False,
    show: Show = False,
) -> None:
    """From a file to a decision: which protocol under which trust, at which epsilon.

    Plans every protocol under every level of trust, simulates the best on your users, and says in
    sentences what holds. Nothing here is private: errors are measured against the truth.

    Exit status: 0 there is an answer, 3 no level of trust reaches the error, 2 wrong usage.
    """
    from fedhist.model.protocol import EXIT_CODES
    from simulations.reporting.shown import check_output, is_file_name
    from simulations.reporting.targets import check_results, new_folder
    from simulations.studies.decide.decision import Decision
    from simulations.studies.decide.decision import decide as answer
    from simulations.studies.decide.output import print_decision, summary_of
    from simulations.studies.decide.question import (
        builtin_decisions,
        check_columns,
        load_question,
        question_text,
    )

    if source is None and data.path is not None:
        source, data = str(data.path), replace(data, path=None)
    if source is None:
        from simulations.cli.lists import print_decisions

        print_decisions(terminal.console)
        return
    if quick and thorough:
        raise ValueError("give --quick or --thorough, not both")
    file = Path(source)
    study = file.suffix == ".toml" or source in builtin_decisions()
    if show:
        terminal.console.out(question_text(source)[0] if study else "", end="")
        return
    if not study:
        if data.path is not None:
            raise ValueError(f"the data are {source}: --data is for a study in its place")
        data = replace(data, path=file)
        check_columns(file, data.user, data.item, data.value)
    overrides = data.overrides(plugin)
    asked = {
        "target": target or (None if study or data.value is None else "mean"),
        "error": error,
        "epsilon": epsilon,
        "delta": delta,
        "effort": "quick" if quick else "thorough" if thorough else None,
        "trust": None if trust is None else [t.strip() for t in trust.split(",")],
    }
    overrides += [f"decide.{k}={toml_value(v)}" for k, v in asked.items() if v is not None]
    overrides += set_ or ()
    question = load_question(source if study else file, overrides)
    if out is not None:  # before anything is computed
        check_output(out, Decision.kind, force=force)
    else:
        check_results()
    with terminal.progress_bar() as bar:
        task = bar.add_task("reading", total=100)
        found = answer(
            question, lambda what, share: bar.update(task, description=what, completed=100 * share)
        )
    place = out or new_folder(f"decide-{question.name}")
    found.save(place, force=force)
    if json_:
        terminal.print_json({**summary_of(found), "folder": str(place)})
    print_decision(terminal.console, found)
    page = f": open {place / 'index.html'}" if not is_file_name(place) or place.is_dir() else ""
    terminal.console.print(f"written to {place} (NOT PRIVATE){page}", soft_wrap=True)
    if question.error is not None and all(f.x is None for f in found.findings):
        raise typer.Exit(EXIT_CODES["refused"])
