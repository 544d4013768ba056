"""What ``--out`` takes on every command that shows results: a folder, or files for a paper.

``--out`` may be given several times. What a name says is checked before anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simulations.cli import terminal

if TYPE_CHECKING:
    from simulations.reporting.shown import Shown

Outs = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        help="A table (.md, .tex, .csv, .parquet), a figure (.svg, .pdf, .png), or a folder with "
        "everything; may be repeated.",
    ),
]
Columns = Annotated[
    str | None, typer.Option("--columns", help="Columns of tables, with commas between.")
]
Digits = Annotated[
    int | None, typer.Option("--digits", min=1, help="Significant digits in .md and .tex.")
]
Width = Annotated[
    str, typer.Option("--width", help="Of figures: column (3.4 in), page (7 in), or inches.")
]


@dataclass(frozen=True)
class Outputs:
    """Where results go, checked.

    Attributes
    ----------
    paths : tuple of Path
    columns : tuple of str or None
    digits : int or None
    width : str or float
    force : bool
    """

    paths: tuple[Path, ...]
    columns: tuple[str, ...] | None
    digits: int | None
    width: str | float
    force: bool

    @property
    def folder(self) -> Path | None:
        """The first of the paths that is a folder."""
        from simulations.reporting.shown import is_file_name

        return next((p for p in self.paths if not is_file_name(p)), None)

    def save(self, found: Shown) -> None:
        """Write everything, folders first, and say so."""
        from simulations.reporting.shown import is_file_name

        secret = " (NOT PRIVATE)" if found.not_private else ""
        for path in sorted(self.paths, key=is_file_name):
            found.save(
                path, columns=self.columns, digits=self.digits, width=self.width, force=self.force
            )
            terminal.console.print(f"written to {path}{secret}", soft_wrap=True, markup=False)


def outputs(
    out: Sequence[Path] | None,
    kind: str,
    *,
    columns: str | None = None,
    digits: int | None = None,
    width: str = "column",
    force: bool = False,
) -> Outputs:
    """Check what the options say, before anything is computed.

    Parameters
    ----------
    out : sequence of Path or None
    kind : str
        What folders are marked as.
    columns, digits, width, force
        As on the command line.

    Raises
    ------
    ValueError
        For an unknown ending or width, and where something else is.
    """
    from simulations.reporting.export import inches
    from simulations.reporting.shown import check_output

    wide: str | float = width
    try:
        wide = float(width)
    except ValueError:
        inches(width)
    else:
        inches(wide)
    for path in out or ():
        check_output(path, kind, force=force)
    names = None if columns is None else tuple(name.strip() for name in columns.split(","))
    return Outputs(tuple(out or ()), names, digits, wide, force)
