"""The command ``fedhist plan``."""

from __future__ import annotations

from typing import Annotated

import typer

from simulations.cli import completion, terminal
from simulations.cli.options import NO_FILE, DataFile, Force, Json, Plugin, Set, spread
from simulations.cli.outputs import Columns, Digits, Outs, Width, outputs
from simulations.config.named_files import toml_value


@spread
def plan(
    config: Annotated[
        str | None,
        typer.Argument(
            help="A .toml file, a built-in configuration, or a protocol; none lists these.",
            autocompletion=completion.templates,
        ),
    ] = None,
    error: Annotated[float | None, typer.Option(help="Target, in the protocol's loss.")] = None,
    solve: Annotated[
        str | None, typer.Option(help="n_users (default), samples_per_user or epsilon.")
    ] = None,
    set_: Set = None,
    data: DataFile = NO_FILE,
    plugin: Plugin = None,
    protocols: Annotated[
        str | None, typer.Option(help="Protocols to plan instead, with commas between.")
    ] = None,
    trust: Annotated[
        str | None,
        typer.Option(help="Levels of trust to plan, with commas between, or all."),
    ] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="The target is a share of an all-zero estimate's.")
    ] = False,
    most: Annotated[
        float | None, typer.Option(help="Largest value to look at, however long it takes.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Simulate the answer.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Simulated runs (20).")] = None,
    out: Outs = None,
    columns: Columns = None,
    digits: Digits = None,
    width: Width = "column",
    json_: Json = False,
    force: Force = False,
) -> None:
    """Say how many users, samples or how much epsilon a target error takes, by theory.

    The population of CONFIG is the template that is brought to other sizes. Its table [plan] may
    hold what the options say.

    Exit status: 0 there is an answer, 3 no protocol reaches the target, 2 wrong usage.
    """
    from fedhist.model.protocol import EXIT_CODES
    from fedhist.model.registry import load_plugin
    from simulations.cli.lists import print_templates
    from simulations.config.reading import reading
    from simulations.studies.plan.document import document_of
    from simulations.studies.plan.planned import Planned, answered, simulated
    from simulations.studies.plan.tables import print_plans, print_verified
    from simulations.studies.plan.template import load_plan

    if config is None and error is None:
        print_templates(terminal.console)
        return
    for file in plugin or ():  # its protocols may be what is planned
        load_plugin(file)
    given = {
        "error": error,
        "solve": solve,
        "protocols": None if protocols is None else _listed(protocols),
        "trust": trust if trust in (None, "all") else _listed(str(trust)),
        "relative": relative or None,
        "most": most,
        "verify": verify or None,
        "seeds": seeds,
    }
    overrides = data.overrides(plugin)
    overrides += [f"plan.{k}={toml_value(v)}" for k, v in given.items() if v is not None]
    found = None if config is None else load_plan(config, [*overrides, *(set_ or ())])
    target = None if found is None else found[1].error
    if found is None or target is None:
        raise ValueError("give a configuration or a protocol, and a target: --error X")
    template, asked = found
    saved = outputs(out, Planned.kind, columns=columns, digits=digits, width=width, force=force)
    with reading(config):
        planned = answered(template, asked)
    print_plans(terminal.console, planned.answers)
    if asked.verify:
        with terminal.progress_bar() as bar:
            tasks = {id(a): bar.add_task(a.label, total=asked.seeds) for a in planned.answers}
            planned = simulated(planned, asked, lambda a: bar.advance(tasks[id(a)]))
        done = {id(v.answer) for v in planned.verified}
        for a in planned.answers:
            if a.x is not None and id(a) not in done:
                terminal.errors.print(f"{a.label}: too large to simulate; --most lifts the limit")
        if planned.verified:
            print_verified(terminal.console, planned.verified)
    saved.save(planned)
    if json_:
        terminal.print_json(document_of(planned.answers, planned.verified))
    if all(a.x is None for a in planned.answers):
        raise typer.Exit(EXIT_CODES["refused"])


def _listed(text: str) -> list[str]:
    """Read names with commas between."""
    return [name.strip() for name in text.split(",")]
