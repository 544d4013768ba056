"""The command ``fedhist profile``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import completion, terminal
from simulations.cli.options import NO_FILE, DataFile, Force, Json, Plugin, Set, spread
from simulations.cli.outputs import Columns, Digits, Outs, Width, outputs
from simulations.config.named_files import toml_value


@spread
def profile(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A data file, a .toml file, or a built-in configuration.",
            autocompletion=completion.populations,
        ),
    ] = None,
    data: DataFile = NO_FILE,
    domain: Annotated[
        Path | None, typer.Option("--domain", help="The items that are counted, one a line.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Budget that suggestions are for.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Budget that suggestions are for.")] = 0.0,
    adjacency: Annotated[
        str, typer.Option(help="The adjacency that they are for.")
    ] = "replace-user",
    set_: Set = None,
    plugin: Plugin = None,
    out: Outs = None,
    columns: Columns = None,
    digits: Digits = None,
    width: Width = "column",
    force: Force = False,
    json_: Json = False,
) -> None:
    """Say what FILE holds before anything is estimated: users, events, what a domain leaves out.

    Nothing here is private: it is computed from the data.

    Exit status: 0 it was read, 2 wrong usage or an unreadable file.
    """
    from fedhist.model.registry import load_plugin
    from simulations.studies.profile.profile import Profile, profile_of
    from simulations.studies.profile.source import load_source
    from simulations.studies.profile.suggest import Budget
    from simulations.studies.profile.tables import print_profile

    Budget.of(epsilon, delta, adjacency)  # before the file is read
    if file is None:
        file, data = data.path, replace(data, path=None)
    if file is None:
        raise ValueError("say what to profile: a data file, a .toml file, or a configuration")
    saved = outputs(out, Profile.kind, columns=columns, digits=digits, width=width, force=force)
    is_data = file.suffix != ".toml" and (file.suffix != "" or file.exists())
    if is_data:
        if data.path is not None:
            raise ValueError(f"the data are {file}: --data is for a configuration in its place")
        data = replace(data, path=file)
    overrides = data.overrides()
    overrides += [] if domain is None else [f"population.domain={toml_value(str(domain))}"]
    for path in plugin or ():
        load_plugin(path)
    source = load_source(None if is_data else str(file), [*overrides, *(set_ or ())])
    found = profile_of(
        source.loaded, epsilon=epsilon, delta=delta, adjacency=adjacency, doubts=source.doubts
    )
    print_profile(terminal.console, found)
    saved.save(found)
    if json_:
        terminal.print_json(found.document())
