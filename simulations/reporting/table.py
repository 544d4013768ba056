r"""The one table that everything is shown in, and how it is written: text, Markdown, LaTeX, CSV.

In the terminal no word is cut; lines break at spaces, and names at hyphens and such. The page's
template writes it as HTML.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from fedhist.base.errors import NARROWEST, visible

if TYPE_CHECKING:
    import polars as pl

MISSING = "-"
HEADING, GOOD, NOTED, BAD = "heading", "good", "noted", "bad"
_TAG = re.compile(r"<(?=[a-zA-Z/!?])")
"""Where Markdown would begin HTML."""
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


# -- values ----------------------------------------------------------------------------------------


def shown(value: Any, digits: int = 4) -> str:
    """Write a value for a table; what is missing is a dash.

    >>> shown(12345), shown(0.123456), shown(None), shown("noise")
    ('12,345', '0.1235', '-', 'noise')
    """
    if value is None:
        return MISSING
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def number(x: float | None, digits: int = 4) -> str:
    """Write a number: whole from 1,000 on, below with a few digits.

    >>> number(0.00123456), number(12345.6), number(0.39897, 3), number(148.2, 2), number(None)
    ('0.001235', '12,346', '0.399', '150', '-')
    """
    if x is None:
        return MISSING
    if abs(x) >= 1000:
        return f"{x:,.0f}"
    text = f"{x:.{digits}g}"
    return f"{float(text):,.0f}" if abs(x) >= 1 and "e" in text else text


def short(x: float | None, digits: int = 4) -> str:
    """Write a number in at most eight letters.

    >>> short(81692.4), short(0.0001234), short(None), short(2.5), short(4.2e9)
    ('81,690', '1.23e-04', '-', '2.5', '4.20e+09')
    """
    if x is not None and x and not 1e-3 <= abs(x) < 1e6:
        return f"{x:.{min(digits, 3) - 1}e}"
    return number(None if x is None else float(f"{x:.{digits}g}"), digits)


def fixed(x: float | None, places: int = 0) -> str:
    """Write a number with a fixed number of places; what is none is a dash."""
    return MISSING if x is None or x != x else f"{x:,.{places}f}"


def percent(share: float | None) -> str:
    """Write a share in per cent, with two digits at least.

    >>> [percent(x) for x in (0.0123, 0.5, 12.34, None, 1e-7)]
    ['1.2%', '50%', '1,234%', '-', '1e-05%']
    """
    if share is None or share != share:
        return MISSING
    value = 100 * share
    return f"{value:,.0f}%" if value >= 9.95 else f"{value:.2g}%"


def span(values: Sequence[float | None]) -> str:
    """Write a few numbers, or the ends of many.

    >>> span([2.0, 0.5, 1.0, 0.5]), span([1, 2, 3, 4, 5]), span([None])
    ('0.5, 1, 2', '1 to 5', '-')
    """
    distinct = sorted({v for v in values if v is not None})
    if not distinct:
        return MISSING
    if len(distinct) <= 4:
        return ", ".join(f"{v:.4g}" for v in distinct)
    return f"{distinct[0]:.4g} to {distinct[-1]:.4g}"


def clipped(text: str, most: int) -> str:
    """Cut a long name, with a sign that it was cut; control characters become visible.

    >>> clipped("item-0001", 6)
    'item-…'
    """
    text = visible(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def no_formula(cell: str) -> str:
    """Keep a spreadsheet from reading a name as a formula: a quotation mark comes before it.

    Numbers stay numbers.

    >>> no_formula("=1+1"), no_formula("-5"), no_formula("tea"), no_formula("@a")
    ("'=1+1", '-5', 'tea', "'@a")
    """
    if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        try:
            float(cell)
        except ValueError:
            return f"'{cell}"
    return cell


# -- tables ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of a table.

    ``right``: aligned to the right: numbers; ``keep``: names that do not break in the terminal
    while there is room; ``write``: writes a value as text; ``key``: what frames call it, where that
    is not its name: "half_width" for "± 95%"; ``more``: left out of what people read; frames and
    CSV have it.
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

    ``form``: what stands around the value where it is written, such as "{}*".
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

    ``rows``: plain values, or :class:`Marked`; those that a row lacks at its end are empty. None is
    a line between rows; ``notes``: sentences below.
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
        """The table without the columns that people do not read."""
        shown = [i for i, c in enumerate(self.columns) if not c.more]
        rows = [r if r is None else [r[i] if i < len(r) else "" for i in shown] for r in self.rows]
        return replace(self, columns=tuple(self.columns[i] for i in shown), rows=tuple(rows))

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


def markdown(table: Table) -> str:
    r"""Write a table as Markdown, without its title and its notes.

    >>> print(markdown(Table.of(["a", Column("n", right=True)], [("x|<y>", 1200)])))
    | a | n |
    |---|---:|
    | x\|&lt;y> | 1,200 |
    """
    table = table.usual
    rows = [[c.text for c in row] for row in table.written() if row is not None]
    cells = [[" ".join(c.split()).replace("|", "\\|") for c in r] for r in [table.header, *rows]]
    body = [[_TAG.sub("&lt;", c) for c in r] for r in cells]
    lines = ["| " + " | ".join(row) + " |" for row in body]
    rules = ["|---:" if c.right else "|---" for c in table.columns]
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

    body = frame(table)
    texts = [s for s in body.get_columns() if s.dtype == pl.String]
    safe = [pl.Series(s.name, [None if v is None else no_formula(v) for v in s]) for s in texts]
    return body.with_columns(safe).write_csv()


def _is_heading(row: Row) -> bool:
    filled = [v for v in row if v not in ("", None)]
    return len(filled) == 1 and isinstance(filled[0], Marked) and filled[0].mark == HEADING


def _plain(column: Column, value: Any) -> Any:
    value = value.value if isinstance(value, Marked) else value
    value = value.item() if hasattr(value, "item") else value  # of NumPy
    if value in ("", MISSING):
        return None
    return value if value is None or isinstance(value, str | int | float) else column.write(value)


# -- in the terminal ------------------------------------------------------------------------------

STYLES = {HEADING: "bold", GOOD: "green", NOTED: "yellow", BAD: "bold red"}
_WITHIN = re.compile(r"(?<=[^\W\d_][-_./=])(?=[^\W\d_])")
"""Where a name may break: at a sign between two letters, so that numbers stay whole."""


def print_table(console: Console, table: Table, *, gap: int = 2) -> None:
    """Print a table, then its notes.

    What fits stands in one line. Otherwise the widest columns give way, and none below its longest
    word. Nothing of it is read as markup, and
    control characters stand as escapes.

    ``gap``: letters between the columns, at least 2.
    """
    table, console = table.usual, _wide_enough(console)
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


def _wide_enough(console: Console) -> Console:
    """Return a console that writes to the same file, and has room for a table."""
    if console.width >= NARROWEST:
        return console
    return Console(file=console.file, width=NARROWEST, highlight=False, quiet=console.quiet)


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
