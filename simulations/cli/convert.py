"""The command ``fedhist convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.terminal import Count, Force, Item, Json, User, column


def convert(
    files: Annotated[list[Path], typer.Argument(help="CSV, TSV or Parquet files.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to make.")],
    user: User = None,
    item: Item = None,
    count: Count = None,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", help="A column of real samples (no --item); one per dimension."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="How the text is written: separator, header, encoding, quote."),
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, and count them.")
    ] = False,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Sort FILES by user into a folder that runs read: a population of the kind "shards".

    Files larger than memory will do.
    """
    from simulations.config.reading import key_value, read
    from simulations.populations.files import Format
    from simulations.runs.convert import convert as make
    from simulations.runs.results import NOT_PRIVATE

    if user is None:
        raise ValueError("name the column of users: --user")
    form = read(Format, dict(key_value(text, "key=VALUE") for text in set_ or ()))
    with terminal.progress_bar() as bar:
        task = bar.add_task("files and shards", total=None)
        manifest = make(
            files, out, user=column(user),
            item=None if item is None else column(item),
            count=None if count is None else column(count),
            value=tuple(map(column, value or ())), form=form, skip_bad_rows=skip_bad_rows,
            force=force, progress=lambda done, of: bar.update(task, completed=done, total=of),
        )  # fmt: skip
    told = f"{manifest.n_users:,} users in {len(manifest.files):,} shards: {out}"
    terminal.console.print(told, soft_wrap=True, markup=False)
    for fault, rows in manifest.dropped.items():
        line = f"left out: {rows:,} rows, {fault} (NOT PRIVATE)"
        terminal.console.print(line, soft_wrap=True, markup=False)
    if json_:
        secret = {"users": manifest.n_users, "left_out": dict(manifest.dropped)}
        plain = {"kind": "shards", "folder": str(out), "shards": len(manifest.files)}
        terminal.print_json(plain | {NOT_PRIVATE: secret})
