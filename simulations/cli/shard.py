"""The command ``fedhist shard``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulations.cli import terminal
from simulations.cli.options import (
    Count,
    Force,
    Item,
    Json,
    RayAddress,
    User,
    Workers,
    column,
    place,
)


def shard(
    files: Annotated[list[Path], typer.Argument(help="CSV, TSV or Parquet files.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the shards.")],
    user: User = None,
    item: Item = None,
    count: Count = None,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", help="A column of real samples (no --item); one per dimension."),
    ] = None,
    shards: Annotated[
        int, typer.Option(help="How many, at most 65,536; 0 chooses by the files' size.")
    ] = 0,
    separator: Annotated[str | None, typer.Option(help="Between fields, such as ';'.")] = None,
    header: Annotated[bool, typer.Option(help="Whether the first row names the columns.")] = True,
    encoding: Annotated[str, typer.Option(help="Of the text.")] = "utf8",
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, and count them.")
    ] = False,
    max_ratio: Annotated[
        int, typer.Option(help="Refuse a file that unpacks to more times its size, and to 256 MiB.")
    ] = 200,
    workers: Workers = None,
    ray_address: RayAddress = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Sort FILES by user into a folder of shards: a population of the kind "shards".

    Files larger than memory will do. A call that was interrupted goes on when it is given again.
    """
    from simulations.populations.sharding import Sources
    from simulations.populations.tables import TableFormat
    from simulations.runs.results import NOT_PRIVATE
    from simulations.runs.sharding import shard as make

    workers, address = place(workers, ray_address)
    if user is None:
        raise ValueError("name the column of users: --user")
    sources = Sources(
        paths=tuple(map(str, files)),
        user=column(user),
        item=None if item is None else column(item),
        count=None if count is None else column(count),
        value=tuple(map(column, value or ())),
        form=TableFormat(
            separator=separator, header=header, encoding=encoding, max_ratio=max_ratio
        ),
        n_shards=shards,
        skip_bad_rows=skip_bad_rows,
    )
    with terminal.progress_bar() as bar:
        task = bar.add_task("files and shards", total=None)
        manifest = make(
            sources,
            out,
            workers=workers,
            address=address,
            force=force,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
    what = f"{manifest.n_users:,} users in {len(manifest.shards):,} shards"
    items = "" if manifest.vocabulary is None else f", {manifest.vocabulary.rows:,} items"
    terminal.console.print(f"{what}{items}: {out}", soft_wrap=True, markup=False)
    for fault, rows in manifest.dropped.items():
        line = f"left out: {rows:,} rows, {fault} (NOT PRIVATE)"
        terminal.console.print(line, soft_wrap=True, markup=False)
    for warning in manifest.warnings:
        terminal.console.print(f"note: {warning} (NOT PRIVATE)", soft_wrap=True, markup=False)
    if json_:
        n_items = None if manifest.vocabulary is None else manifest.vocabulary.rows
        secret = {
            "users": manifest.n_users,
            "items": n_items,
            "left_out": dict(manifest.dropped),
            "warnings": list(manifest.warnings),
        }
        told = {"kind": "shards", "folder": str(out), "shards": len(manifest.shards)}
        terminal.print_json(told | {NOT_PRIVATE: secret})
