"""The command ``fedhist plan``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedhist.base.files import whole_file
from simulations.cli import terminal
from simulations.cli.options import (
    Count,
    Data,
    Item,
    Plugin,
    Set,
    Top,
    User,
    Value,
    data_overrides,
)


def register(cli: typer.Typer) -> None:
    """Add the command to the command line."""
    cli.command()(plan)


def plan(
    config: Annotated[
        str | None,
        typer.Argument(
            help="A .toml file, a built-in configuration, or a protocol; none lists these."
        ),
    ] = None,
    error: Annotated[float | None, typer.Option(help="Target, in the protocol's loss.")] = None,
    solve: Annotated[str, typer.Option(help="n_users, samples_per_user or epsilon.")] = "n_users",
    set_: Set = None,
    data: Data = None,
    user: User = None,
    item: Item = None,
    count: Count = None,
    value: Value = None,
    top: Top = None,
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
    seeds: Annotated[int, typer.Option(min=2, help="Simulated runs.")] = 20,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Measure the planner itself on its settings.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where --accuracy writes its page.")] = None,
) -> None:
    """Say how many users, samples or how much epsilon a target error takes, by theory.

    The population of CONFIG is the template that is brought to other sizes.

    Exit status: 0 there is an answer, 3 no protocol reaches the target, 2 wrong usage.
    """
    from fedhist.model.protocol import EXIT_CODES
    from fedhist.model.registry import load_plugin
    from simulations.cli.lists import print_templates
    from simulations.studies.plan.planner import plan_levels, plans
    from simulations.studies.plan.population import UNKNOWNS
    from simulations.studies.plan.tables import print_plans, print_verified
    from simulations.studies.plan.template import template_of
    from simulations.studies.plan.verify import verify as simulate
    from simulations.studies.records.levels import WORDS, levels_of

    if accuracy:
        measure_accuracy(seeds, out)
        return
    if config is None and error is None:
        print_templates(terminal.console)
        return
    if config is None or error is None:
        usual = _goal_of(config or "")
        raise ValueError(f"give a configuration or a protocol, and a target: --error X{usual}")
    unknown = next((u for u in UNKNOWNS if u == solve), None)
    if unknown is None:
        raise ValueError(f"--solve must be one of {', '.join(UNKNOWNS)}, got {solve!r}")
    overrides = data_overrides(data, user, item, count, value, top, plugin)
    for file in plugin or ():  # its protocols may be what is planned
        load_plugin(file)
    template = template_of(config, [*overrides, *(set_ or ())])
    names = (
        [n.strip() for n in protocols.split(",")] if protocols else [str(template.protocol["name"])]
    )
    if trust is None:
        answers = plans(template, names, error, unknown, relative=relative, most=most)
    else:
        asked = WORDS if trust == "all" else [t.strip() for t in trust.split(",")]
        levels = levels_of(asked, "--trust")
        answers = plan_levels(template, names, levels, error, unknown, relative=relative, most=most)
    print_plans(terminal.console, answers)
    if verify:
        found = []
        with terminal.progress_bar() as bar:
            for a in answers:
                task = bar.add_task(a.label, total=seeds)
                measured = simulate(a, seeds, most=most, progress=partial(bar.advance, task))
                bar.remove_task(task)
                if measured is not None:
                    found.append(measured)
                elif a.x is not None:
                    terminal.errors.print(
                        f"{a.label}: too large to simulate; --most lifts the limit"
                    )
        if found:
            print_verified(terminal.console, found)
    if all(a.x is None for a in answers):
        raise typer.Exit(EXIT_CODES["refused"])


def _goal_of(name: str) -> str:
    """Write the first goal that a protocol declares, as options; nothing if there is none."""
    from fedhist.model.registry import load_builtin, protocols

    load_builtin()
    goals = protocols()[name].goals[:1] if name in protocols() else ()
    return "".join(f", such as --error {g.error:g}{' --relative' * g.relative}" for g in goals)


def measure_accuracy(seeds: int, out: Path | None) -> None:
    """Plan and simulate the settings of the documentation's page; print it or write it."""
    from simulations.experiments.predicted.planner import accuracy, page, settings

    found = []
    with terminal.progress_bar() as bar:
        task = bar.add_task("settings", total=len(settings()))
        for verified in accuracy(seeds):
            found.append(verified)
            bar.advance(task)
    text = page(found, seeds)
    if out is None:
        terminal.console.out(text, end="", highlight=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    whole_file(out, text)
    terminal.console.print(f"written to {out}", soft_wrap=True)
