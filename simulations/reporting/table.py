r"""The one table that everything is shown in, and how it is written: Markdown, LaTeX, CSV.

:mod:`simulations.reporting.terminal` writes it as text, and the page's template as HTML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedhist.base.errors import nearest
from fedhist.base.text import visible
from simulations.reporting.numbers import MISSING, no_formula, shown

if TYPE_CHECKING:
    import polars as pl

HEADING, GOOD, NOTED, BAD = "heading", "good", "noted", "bad"
_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "†": r"$\dagger$",
    "…": r"\dots{}",
}


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
        Left out of what people read unless it is asked for; frames and CSV have it.
    """

    name: str
    right: bool = False
    keep: bool = False
    write: Callable[[Any], str] = shown
    key: str = ""
    more: bool = False


@dataclass(frozen=True)
class Marked:
    """A value with a mark: :data:`HEADING`, :data:`GOOD`, :data:`NOTED`, :data:`BAD`.

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
    """

    columns: tuple[Column, ...]
    rows: tuple[Row | None, ...]
    title: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        columns: Iterable[Column | str],
        rows: Iterable[Row | None],
        *,
        title: str = "",
        notes: Iterable[str] = (),
    ) -> Table:
        """Make a table; a column of text may be given by its name."""
        made = tuple(Column(c) if isinstance(c, str) else c for c in columns)
        return cls(made, tuple(rows), title, tuple(notes))

    @property
    def usual(self) -> Table:
        """The table without the columns that are left out unless they are asked for."""
        return self._only([i for i, c in enumerate(self.columns) if not c.more])

    def chosen(self, names: Sequence[str]) -> Table:
        """Choose columns by their names or keys, in this order; ValueError for others."""
        places = {k.casefold(): i for i, c in enumerate(self.columns) for k in (c.key, c.name) if k}
        for name in names:
            if name.casefold() not in places:
                known = [n for n in self.header if n]
                raise ValueError(f"no column {name!r}{nearest(name, known)}")
        found = self._only([places[n.casefold()] for n in names])
        return replace(found, columns=tuple(replace(c, more=False) for c in found.columns))

    def _only(self, kept: Sequence[int]) -> Table:
        rows = [r if r is None else [r[i] if i < len(r) else "" for i in kept] for r in self.rows]
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


def latex(table: Table) -> str:
    r"""Write a table as LaTeX: a tabular of booktabs, its title and its notes as comments.

    >>> print(latex(Table.of(["who", Column("n", right=True)], [("a_b", 2.5e-7), ("c", None)])))
    \begin{tabular}{lr}
    \toprule
    who & n \\
    \midrule
    a\_b & $2.5 \cdot 10^{-7}$ \\
    c & -- \\
    \bottomrule
    \end{tabular}
    """
    table = table.usual
    layout = "".join("r" if c.right else "l" for c in table.columns)
    lines = [f"% {line}" for line in visible(table.title).splitlines()]
    lines += [rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
    lines += [" & ".join(map(_escaped, table.header)) + r" \\", r"\midrule"]
    for row in table.written():
        # {}: the end of a row would take a bracket or a star after it for its own
        text = "" if row is None else " & ".join(_in_latex(cell) for cell in row)
        guard = "{}" * text.startswith(("[", "*"))
        lines.append(r"\midrule" if row is None else f"{guard}{text} \\\\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*lines, *(f"% {x}" for n in table.notes for x in visible(n).splitlines())])


def _in_latex(cell: Cell) -> str:
    text = " ".join(cell.text.split())
    power = re.fullmatch(r"(\S+)e([-+]\d+)(\D*)", text)
    if power is not None:
        return rf"${power[1]} \cdot 10^{{{int(power[2])}}}${_escaped(power[3])}"
    text = "--" if text == MISSING else _escaped(text)
    return rf"\textbf{{{text}}}" if cell.mark == HEADING else text


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in visible(text))


def frame(table: Table) -> pl.DataFrame:
    """Return a table as a frame: numbers as they are, other values as they are written.

    Lines between rows and headings within the table are left out.
    """
    import polars as pl

    rows = [r for r in table.rows if r is not None and not _is_heading(r)]
    made = {}
    for i, column in enumerate(table.columns):
        values = [_plain(column, r[i]) if i < len(r) else None for r in rows]
        texts = any(isinstance(v, str) for v in values)
        values = [str(v) if texts and v is not None else v for v in values]
        name = column.key or column.name or f"column {i + 1}"
        made[name] = pl.Series(name, values, pl.String if texts else None, strict=False)
    return pl.DataFrame(list(made.values()))


def csv(table: Table) -> str:
    """Write a table as CSV: numbers with all digits, and no text that is a formula elsewhere."""
    import polars as pl

    found = frame(table)
    texts = [s for s in found.get_columns() if s.dtype == pl.String]
    safe = [pl.Series(s.name, [None if v is None else no_formula(v) for v in s]) for s in texts]
    return found.with_columns(safe).write_csv()


def _is_heading(row: Row) -> bool:
    filled = [v for v in row if v not in ("", None)]
    return len(filled) == 1 and isinstance(filled[0], Marked) and filled[0].mark == HEADING


def _plain(column: Column, value: Any) -> Any:
    value = value.value if isinstance(value, Marked) else value
    value = value.item() if hasattr(value, "item") else value  # of NumPy
    if value in ("", MISSING):
        return None
    return value if value is None or isinstance(value, str | int | float) else column.write(value)
