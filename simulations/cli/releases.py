"""The command ``fedhist run`` on a file with tables [[release]]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedhist.model.protocol import EXIT_CODES
from simulations.cli import terminal
from simulations.config.named_files import settings_text
from simulations.config.reading import reading, tables_of
from simulations.reporting.files import check_folder, check_results
from simulations.runs.config import parse_tables
from simulations.runs.released import RELEASES, Released
from simulations.runs.releases import plan_releases, run_releases
from simulations.runs.results import folder_for, written_somewhere


def has_releases(source: str) -> bool:
    """Say whether a file of settings has a table [[release]]."""
    if Path(source).suffix != ".toml":
        return False
    with reading(source):
        return "release" in tables_of(settings_text(source, "configuration")[0])


def several(source: str, overrides: Sequence[str], *, force: bool, json_: bool) -> int:
    """Run the releases of a file, print and write them; return the exit status."""
    text, name = settings_text(source, "configuration")
    with reading(source):
        planned = plan_releases(parse_tables(text, overrides), source, name)
    if planned.run.out:
        check_folder(planned.run.out, RELEASES, force=force)
    else:
        check_results()
    shown = Released(run_releases(planned))
    shown.print_on(terminal.console)
    folder = folder_for(name, planned.run.out)
    written_somewhere(folder, lambda f: shown.save(f, force=force))
    shown.done.book.check(folder)
    terminal.console.print(f"written to {folder}", soft_wrap=True)
    if json_:
        terminal.print_json(shown.document() | {"folder": str(folder)})
    return EXIT_CODES[shown.status]
