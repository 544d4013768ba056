"""The one table that all reports are made of: columns, rows of plain values, marks, notes.

:mod:`simulations.reporting.terminal` prints it, :mod:`simulations.reporting.page` puts it on a
page, and :func:`markdown` writes it into a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulations.reporting.numbers import shown

HEADING, GOOD, NOTED, BAD, TIE = "heading", "good", "noted", "bad", "tie"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name : str
    right : bool
        Aligned to the right: numbers.
    keep : bool
        Names that do not break in the terminal while there is room.
    write : callable
        Writes a value as text.
    key : str
        What frames call it, where that is not its name: "half_width" for "± 95%".
    more : bool
        Left out of what people read unless it is asked for; frames and data files have it.
    """

    name: str
    right: bool = False
    keep: bool = False
    write: Callable[[Any], str] = shown
    key: str = ""
    more: bool = False


@dataclass(frozen=True)
class Marked:
    """A value with a mark: :data:`HEADING`, :data:`GOOD`, :data:`NOTED`, :data:`BAD`, :data:`TIE`.

    Attributes
    ----------
    value : object
    mark : str
    form : str
        What stands around the value where it is written, such as "{}*".
    """

    value: Any
    mark: str = ""
    form: str = "{}"


@dataclass(frozen=True)
class Cell:
    """A value as it is written."""

    text: str
    mark: str = ""


Row = Sequence[Any]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    columns : tuple of Column
    rows : tuple
        Plain values, or :class:`Marked`; those that a row lacks at its end are empty. None is a
        line between rows.
    title : str
    notes : tuple of str
        Sentences below.
    folded : str
        What the reader of a page clicks to see the table; empty shows it.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row | None, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    folded: str = ""

    @classmethod
    def of(
        cls,
        columns: Iterable[Column | str],
        rows: Iterable[Row | None],
        *,
        title: str = "",
        notes: Iterable[str] = (),
        folded: str = "",
    ) -> Table:
        """Make a table; a column of text may be given by its name."""
        made = tuple(Column(c) if isinstance(c, str) else c for c in columns)
        return cls(made, tuple(rows), title, tuple(notes), folded)

    @property
    def usual(self) -> Table:
        """The table without the columns that are left out unless they are asked for."""
        if not any(c.more for c in self.columns):
            return self
        kept = [i for i, c in enumerate(self.columns) if not c.more]
        rows = [r if r is None else picked(r, kept) for r in self.rows]
        return replace(self, columns=tuple(self.columns[i] for i in kept), rows=tuple(rows))

    @property
    def header(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(c.name for c in self.columns)

    def written(self) -> list[list[Cell] | None]:
        """Write all values as text, a list for each row and None for each line between rows."""
        return [None if row is None else self._written(row) for row in self.rows]

    def _written(self, row: Row) -> list[Cell]:
        out = []
        for column, value in zip(self.columns, [*row, *[""] * len(self.columns)], strict=False):
            marked = value if isinstance(value, Marked) else Marked(value)
            text = marked.value if isinstance(marked.value, str) else column.write(marked.value)
            out.append(Cell(marked.form.format(text), marked.mark))
        return out


def worded(value: Any, text: str, mark: str = "") -> Marked:
    """Return a value that is written otherwise than its column does.

    >>> Table.of(["n"], [(worded(2.0, "about {2}"),)]).written()[0][0].text
    'about {2}'
    """
    return Marked(value, mark, text.replace("{", "{{").replace("}", "}}"))


def picked(row: Row, places: Sequence[int]) -> Row:
    """Return the values of some columns."""
    return [row[i] if i < len(row) else "" for i in places]


def numeric(names: Iterable[str], **more: Any) -> list[Column | str]:
    """Make columns of numbers."""
    return [Column(name, right=True, **more) for name in names]


def markdown(table: Table, *, aligned: bool = False) -> str:
    r"""Write a table as Markdown, without its title and its notes.

    >>> print(markdown(Table.of(["a", Column("n", right=True)], [("x|y", 1200)])))
    | a | n |
    |---|---:|
    | x\|y | 1,200 |

    Parameters
    ----------
    table : Table
    aligned : bool
        Pad the cells, so that the text itself reads as a table.
    """
    table = table.usual
    rows = [[c.text for c in row] for row in table.written() if row is not None]
    body = [[" ".join(c.split()).replace("|", "\\|") for c in r] for r in [table.header, *rows]]
    widths = [max(map(len, column)) if aligned else 0 for column in zip(*body, strict=True)]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in body
    ]
    rules = [
        f"| {'-' * w} " if aligned else "|---:" if c.right else "|---"
        for c, w in zip(table.columns, widths, strict=True)
    ]
    return "\n".join([lines[0], "".join(rules) + "|", *lines[1:]])
