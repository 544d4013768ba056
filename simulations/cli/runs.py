"""The commands ``fedhist runs`` and ``fedhist diff``: what lies under results/."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulations.cli import terminal
from simulations.cli.options import Json

if TYPE_CHECKING:
    from simulations.studies.shelf.contents import Contents

MOST = 40
"""Lines of a table that are shown unless all are asked for."""
SECRET = "errors are measured against the truth"
Under = Annotated[Path, typer.Option("--under", help="Folder that results lie in.")]
All = Annotated[bool, typer.Option("--all", help="Show every line.")]


def runs(
    name: Annotated[
        str | None, typer.Argument(help="One of them, by its name or its path; none lists all.")
    ] = None,
    under: Under = Path("results"),
    open_: Annotated[
        bool, typer.Option("--open", help="Open its page in the browser, which is made if need be.")
    ] = False,
    all_: All = False,
    json_: Json = False,
) -> None:
    """List what lies under results/, or show NAME: when, what, status, error. NOT PRIVATE.

    Exit status: 0 it was shown, 2 there are no such results.
    """
    from simulations.reporting.numbers import shown
    from simulations.reporting.table import Column, Table
    from simulations.reporting.terminal import print_facts, print_lines, print_table
    from simulations.studies.shelf.contents import contents_of, contents_under

    if name is not None:
        found = contents_of(_path(name, under))
        facts = [("kind", found.kind), ("written", found.at), ("what", found.what)]
        facts += [("status", found.status), ("error (NOT PRIVATE)", found.error)]
        settings = [(k, shown(v)) for k, v in found.settings.items() if v not in (None, "")]
        results = [(k, shown(v)) for k, v in found.results.items() if v not in (None, "")]
        print_facts(terminal.console, [(k, v) for k, v in facts if v])
        most = None if all_ else MOST
        for title, rows in (("settings", settings), ("results (NOT PRIVATE)", results)):
            if rows:
                terminal.console.print(title, style="bold")
                print_facts(terminal.console, rows[:most])
            if len(rows) > len(rows[:most]):
                print_lines(terminal.console, [f"and {len(rows) - MOST} more; --all shows them"])
        if json_:
            terminal.print_json(_document([found]))
        if open_:
            typer.launch(str(_page(found.path)))
        return
    if open_:
        raise ValueError("--open opens one: name it")
    if not under.is_dir():
        raise ValueError(f"there is no folder {under}: nothing has been written yet")
    listed = contents_under(under)
    columns = (Column("name", keep=True), "kind", "written", "what", "status", "error")
    lines = [(c.path.name, c.kind, c.at, c.what, c.status, c.error) for c in listed]
    notes = (f"NOT PRIVATE: {SECRET}.",)
    if lines:
        print_table(terminal.console, Table.of(columns, lines, notes=notes))
    else:
        terminal.console.print(f"no results under {under}", soft_wrap=True)
    if json_:
        terminal.print_json(_document(listed))


def diff(
    a: Annotated[str, typer.Argument(help="Results, by their name or their path.")],
    b: Annotated[str, typer.Argument(help="Others, of the same kind.")],
    under: Under = Path("results"),
    all_: All = False,
    json_: Json = False,
) -> None:
    """Say what differs between A and B, in their settings and in their results. NOT PRIVATE.

    Exit status: 0 it was shown, also where nothing differs, 2 there are no such results.
    """
    from dataclasses import replace

    from simulations.reporting.terminal import print_table
    from simulations.runs.results import NOT_PRIVATE
    from simulations.studies.shelf.contents import contents_of
    from simulations.studies.shelf.differences import differences

    first, second = (contents_of(_path(name, under)) for name in (a, b))
    tables = differences(first, second)
    for side, found in (("A", first), ("B", second)):
        terminal.console.print(
            f"{side}: {found.path}, {found.kind} of {found.at}", markup=False, soft_wrap=True
        )
    for table in tables:
        n = len(table.rows)
        if n > MOST and not all_:
            more = f"and {n - MOST} more; --all shows them"
            table = replace(table, rows=table.rows[:MOST], notes=(more, *table.notes))
        if n:
            print_table(terminal.console, table)
        else:
            terminal.console.print(table.title)
    if json_:
        names = ("settings", "results", "estimates")
        told = {
            name: [dict(zip(table.header, row or (), strict=False)) for row in table.rows]
            for name, table in zip(names, tables, strict=False)
        }
        sides = {"A": str(first.path), "B": str(second.path)}
        terminal.print_json({"kind": "diff", **sides, **told, NOT_PRIVATE: {"why": SECRET}})


def _path(name: str, under: Path) -> Path:
    """Find results by their path, or by their name under the folder of results."""
    from fedhist.base.errors import nearest

    found = next((p for p in (Path(name), under / name) if p.exists()), None)
    if found is None:
        there = [p.name for p in under.iterdir()] if under.is_dir() else []
        raise ValueError(f"there are no results {name!r}{nearest(name, there)}")
    return found


def _document(listed: Sequence[Contents]) -> dict[str, object]:
    from simulations.runs.results import NOT_PRIVATE

    names = ("kind", "at", "what", "status", "error", "settings", "results")
    plain = [{"path": str(c.path)} | {n: getattr(c, n) for n in names} for c in listed]
    return {"kind": "runs", "results": plain, NOT_PRIVATE: {"why": SECRET}}


def _page(path: Path) -> Path:
    """Return the page of some results, written if it is not there."""
    from simulations.studies.report.assemble import write_report

    page = path / "report.html" if path.is_dir() else path.with_suffix(".html")
    if not page.exists():
        write_report(path, page)
    return page.resolve()
