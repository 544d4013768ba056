"""Tables that cut no word: lines break at spaces, and within names at hyphens and underscores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_WITHIN = re.compile(r"(?<=[^\W\d_][-_./=])(?=[^\W\d_])")
"""Where a name may break: at a sign between two letters, so that numbers stay whole."""


@dataclass(frozen=True)
class _Column:
    name: str
    right: bool
    keep: bool


class Sheet:
    """A table for the terminal, filled like a :class:`rich.table.Table`.

    What fits stands in one line. Otherwise the widest columns give way, and none below its longest
    word.

    Parameters
    ----------
    title : str
    dense : bool
        One space less between the columns.
    """

    def __init__(self, *, title: str = "", dense: bool = False) -> None:
        self._title, self._gap = title, (0, 1, 0, 0) if dense else (0, 1)
        self._between = 2 if dense else 3
        self._columns: list[_Column] = []
        self._rows: list[tuple[Text, ...]] = []
        self._sections: set[int] = set()

    def add_column(self, name: str, *, right: bool = False, keep: bool = False) -> None:
        """Add a column: of numbers if ``right``, and of names that do not break if ``keep``."""
        self._columns.append(_Column(name, right, keep))

    def add_row(self, *cells: str | Text) -> None:
        """Add a row, without markup; a cell has one style. Those not given are empty."""
        given = tuple(Text(c) if isinstance(c, str) else c for c in cells)
        self._rows.append(given + (Text(),) * (len(self._columns) - len(given)))

    def add_section(self) -> None:
        """Draw a line below the last row."""
        self._sections.add(len(self._rows))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - self._between * (len(self._columns) - 1) - 2
        widths = self._widths(room)
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=self._gap,
            title=self._title or None,
            title_justify="left",
        )
        for column, width in zip(self._columns, widths, strict=True):
            table.add_column(
                Text("\n".join(wrap(column.name, width))),
                justify="right" if column.right else "left",
                width=width,
                no_wrap=True,
            )
        for i, row in enumerate(self._rows):
            if i in self._sections:
                table.add_section()
            cells = zip(row, widths, strict=True)
            table.add_row(*(Text("\n".join(wrap(c.plain, w)), style=c.style) for c, w in cells))
        yield table

    def _widths(self, room: int) -> list[int]:
        """Share the width out: no less than the longest word, no more than the longest line."""
        columns = [
            [c.name, *(row[i].plain for row in self._rows)] for i, c in enumerate(self._columns)
        ]
        most = [max(len(line) for cell in cells for line in cell.split("\n")) for cells in columns]
        words = [max(map(_longest_word, cells)) for cells in columns]
        least = [m if c.keep else w for m, w, c in zip(most, words, self._columns, strict=True)]
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
