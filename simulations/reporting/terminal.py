"""Tables in the terminal: no word is cut; lines break at spaces, and names at hyphens and such."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fedhist.base.text import visible
from simulations.reporting.table import BAD, GOOD, HEADING, TIE, Column, Marked, Table

STYLES = {HEADING: "bold", GOOD: "green", BAD: "bold red", TIE: "bright_black"}
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
    rows = [
        None if row is None else [(visible(c.text), c.mark) for c in row] for row in table.written()
    ]
    cells = [[c.name] for c in table.columns]
    for row in rows:
        for own, (text, _) in zip(cells, row or (), strict=False):
            own.append(text)
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
            drawn.add_row(
                *(
                    Text("\n".join(wrap(text, width)), style=STYLES.get(mark, ""))
                    for (text, mark), width in zip(row, widths, strict=True)
                )
            )
    console.print(drawn)
    print_lines(console, table.notes)


def print_facts(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    """Print names and what they stand for."""
    columns = (Column("", keep=True), Column(""))
    print_table(console, Table.of(columns, [(Marked(k, HEADING), v) for k, v in rows]), gap=3)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print sentences without markup, each on lines of its own."""
    for line in lines:
        console.print(visible(line), markup=False)


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
