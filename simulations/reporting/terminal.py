"""Tables in the terminal: no word is cut; lines break at spaces, and names at hyphens and such."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from fedhist.base.text import visible
from simulations.reporting.table import (
    BAD,
    GOOD,
    HEADING,
    NOTED,
    Cell,
    Column,
    Marked,
    Row,
    Table,
)

STYLES = {HEADING: "bold", GOOD: "green", NOTED: "yellow", BAD: "bold red"}
LEAST = 8
"""Letters of a last column, however narrow the terminal."""
_WITHIN = re.compile(r"(?<=[^\W\d_][-_./=])(?=[^\W\d_])")
"""Where a name may break: at a sign between two letters, so that numbers stay whole."""


def print_table(console: Console, table: Table, *, gap: int = 2) -> None:
    """Print a table, then its notes.

    What fits stands in one line. Otherwise the widest columns give way, and none below its longest
    word. Nothing of it is read as markup, and
    control characters stand as escapes.

    Parameters
    ----------
    console : Console
    table : Table
    gap : int
        Letters between the columns, at least 2.
    """
    table = table.usual
    rows = _visible(table)
    cells = [[c.name] for c in table.columns]
    for row in rows:
        for own, cell in zip(cells, row or (), strict=False):
            own.append(cell.text)
    room = console.width - gap * (len(cells) - 1) - 2
    widths = _widths(cells, [c.keep for c in table.columns], room)
    drawn = RichTable(
        box=box.SIMPLE_HEAD if any(table.header) else box.SIMPLE,
        show_header=any(table.header),
        pad_edge=False,
        padding=(0, 1, 0, gap - 2),
        title=Text(visible(table.title)) if table.title else None,
        title_justify="left",
    )
    for column, width in zip(table.columns, widths, strict=True):
        name = Text("\n".join(wrap(column.name, width)))
        side = "right" if column.right else "left"
        drawn.add_column(name, justify=side, width=width, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        if row is None:
            drawn.add_section()
        else:
            drawn.add_row(*map(_drawn, row, widths))
    console.print(drawn)
    print_lines(console, table.notes)


def print_row(console: Console, row: Row, widths: Sequence[int]) -> None:
    """Print a row of a table that grows: columns of fixed widths, and one of what is left."""
    columns = [*(RichColumn(width=w) for w in widths), RichColumn()]
    drawn = RichTable.grid(*columns, padding=(0, 2, 0, 0))
    left = max(LEAST, console.width - sum(widths) - 2 * len(widths))
    for cells in _visible(Table.of([""] * len(row), [row])):
        drawn.add_row(*map(_drawn, cells or (), [*widths, left]))
    console.print(drawn)


def print_facts(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Print names and what they stand for."""
    columns = (Column("", keep=True), Column(""))
    print_table(console, Table.of(columns, [(Marked(k, HEADING), v) for k, v in rows]), gap=3)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print sentences without markup, each on lines of its own."""
    for line in lines:
        console.print(visible(line), markup=False)


def print_section(console: Console, title: str, lines: Sequence[str]) -> None:
    """Print indented sentences below a title, if there are any."""
    if lines:
        console.print(f"\n{title}", style="bold", markup=False)
        for line in lines:
            console.print(Padding(Text(visible(line)), (0, 0, 0, 2), expand=False))


def _visible(table: Table) -> list[list[Cell] | None]:
    rows = table.written()
    return [r if r is None else [Cell(visible(c.text), c.mark) for c in r] for r in rows]


def _drawn(cell: Cell, width: int) -> Text:
    return Text("\n".join(wrap(cell.text, width)), style=STYLES.get(cell.mark, ""))


def _widths(cells: Sequence[Sequence[str]], keep: Sequence[bool], room: int) -> list[int]:
    """Share the width out: no less than the longest word, no more than the longest line."""
    most = [max(len(line) for cell in column for line in cell.split("\n")) for column in cells]
    words = [max(map(_longest_word, column)) for column in cells]
    least = [m if k else w for m, w, k in zip(most, words, keep, strict=True)]
    if sum(least) > room:
        least = words
    while sum(least) > room:  # a word is longer than any room for it
        least[least.index(max(least))] -= 1

    def shared(cap: int) -> list[int]:
        return [max(low, min(high, cap)) for low, high in zip(least, most, strict=True)]

    widths = max(filter(lambda w: sum(w) <= room, map(shared, range(max(most) + 1))))
    # what breaks may be narrower than the room that it breaks for
    widths = [
        max(len(line) for cell in column for line in wrap(cell, width))
        for column, width in zip(cells, widths, strict=True)
    ]
    for i, high in enumerate(most):
        widths[i] += min(high - widths[i], room - sum(widths))
    return widths


def _longest_word(text: str) -> int:
    lines = text.split("\n")
    return max(
        (_indent(line) + len(p.rstrip()) for line in lines for p in _pieces(line)), default=0
    )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _pieces(line: str, width: int = 0) -> list[str]:
    """Split a line where it may break, within a word only if it is wider than a line.

    A piece keeps the sign or the spaces that end it.
    """
    words = re.findall(r"\S+\s*", line)
    return [p for w in words for p in ([w] if len(w.rstrip()) <= width else _WITHIN.split(w))]


def wrap(text: str, width: int) -> Sequence[str]:
    """Break text into lines of at most ``width`` letters, with the indent of the first.

    >>> wrap("of zero-out-user samples_per_user 1e-05", 13)
    ['of', 'zero-out-user', 'samples_per_', 'user 1e-05']
    """
    out = []
    for line in text.split("\n"):
        indent = " " * _indent(line)
        current = indent
        for piece in _pieces(line, width - len(indent)):
            if current != indent and len(current + piece.rstrip()) > width:
                out.append(current.rstrip())
                current = indent
            current += piece
            while len(current.rstrip()) > width:  # longer than a line
                out.append(current[:width])
                current = current[width:]
        out.append(current.rstrip())
    return out


def quiet_flower() -> None:
    """Keep Flower's own log lines out of the tables."""
    # a filter and not a level: Flower sets its level when it is imported, which may be later
    logging.getLogger("flwr").addFilter(_warns)


def _warns(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING
