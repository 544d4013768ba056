"""What starts something of one's own: ``fedhist init`` and ``fedhist new-protocol``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedhist.base.files import whole_file
from simulations.cli import terminal
from simulations.cli.options import Count, Force, Item, Json, User, Value, column


def init(
    data: Annotated[Path, typer.Argument(help="Your CSV, TSV or Parquet file.")],
    out: Annotated[
        Path | None, typer.Option(help="The study file; default: the data's name with .toml.")
    ] = None,
    user: User = None,
    item: Item = None,
    count: Count = None,
    value: Value = None,
    epsilon: Annotated[float, typer.Option(help="Budget of every user.")] = 1.0,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Write a study file for DATA, with comments: run, compare, sweep and decide read it as it is.

    Columns are guessed where they are not given, and settings suggested by the data's profile,
    which is NOT PRIVATE.
    """
    from simulations.populations.guessing import guess
    from simulations.reporting.targets import check_file
    from simulations.reporting.terminal import print_facts
    from simulations.runs.results import NOT_PRIVATE
    from simulations.studies.start.study_file import start

    target = out or Path(data.name.partition(".")[0] + ".toml")
    if target.suffix != ".toml":
        raise ValueError(f"--out must end in .toml, got {target}")
    place = check_file(target, "study", force=force)
    if place == data.resolve():
        raise ValueError(f"{target} is the data itself: name another file by --out")
    named = {"user": user, "item": item, "count": count, "value": value}
    if item is not None and value is not None:
        raise ValueError("--item is of items, --value of real samples: give one of the two")
    found = guess(data, **{k: column(v) for k, v in named.items() if v is not None})
    started = start(data, found, str(target), epsilon=epsilon)
    place.parent.mkdir(parents=True, exist_ok=True)
    whole_file(place, started.text)
    columns = {what: getattr(found, what) for what in ("user", "item", "count", "value")}
    facts = [(k, f"{name!r}, {found.why[k]}") for k, name in columns.items() if name is not None]
    print_facts(terminal.console, facts)
    for warning in started.profile.warnings:
        terminal.console.print(f"note: {warning}", markup=False, soft_wrap=True)
    terminal.console.print(f"written to {target} (NOT PRIVATE)", soft_wrap=True, markup=False)
    if json_:
        secret = {NOT_PRIVATE: {"warnings": list(started.profile.warnings)}}
        told = {"kind": "study", "file": str(target), "columns": columns}
        terminal.print_json(told | secret)


def new_protocol(
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits and hyphens.")],
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path(),
    force: Force = False,
) -> None:
    """Write a protocol to change into your own: it runs, is audited, and its tests pass.

    Three files: the plugin, its tests for pytest, and a study file.
    """
    from simulations.reporting.targets import check_file
    from simulations.studies.start.protocol_files import protocol_files

    texts = protocol_files(name)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: name a folder by --out")
    places = {file: check_file(out / file, "study", force=force) for file in texts}
    out.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        whole_file(places[file], text)
        terminal.console.print(f"written: {out / file}", soft_wrap=True, markup=False)
    plugin, test, study = (out / file for file in texts)
    for line in (
        f"fedhist run {study}",
        f"fedhist audit {name} --plugin {plugin}",
        f"python -m pytest {test}",
    ):
        terminal.console.print(f"  {line}", soft_wrap=True, markup=False)
