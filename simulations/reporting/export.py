r"""Tables and figures as files for a paper, the kind by the ending of the name.

Tables: Markdown, LaTeX (booktabs, numbers aligned at their points, no package but booktabs), CSV
and Parquet with the numbers as they are. Figures: SVG, PDF and PNG at the width of a column or of
a page, with type of 8 points.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.base.errors import nearest
from fedhist.base.text import no_formula, visible
from simulations.reporting.numbers import MISSING, number
from simulations.reporting.pictures import drawn
from simulations.reporting.table import HEADING, Cell, Column, Marked, Row, Table, markdown, picked
from simulations.reporting.targets import mark, write_target

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

TABLES = (".md", ".tex", ".csv", ".parquet")
FIGURES = (".svg", ".pdf", ".png")
WIDTHS = {"column": 3.4, "page": 7.0}
"""Inches."""

Draw = Callable[["Figure"], None]
_NUMBER = re.compile(r"(~?[-+]?[\d,]+|-?inf)(\.\d+)?(?:e([-+]?\d+))?(.*)", re.DOTALL)
_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "∞": r"$\infty$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "σ": r"$\sigma$",
    "…": r"\dots{}",
    "†": r"$\dagger$",
}


def ending(path: str | Path, known: Sequence[str]) -> str:
    """Return the ending of a name, in small letters.

    >>> ending("a/table.TEX", TABLES)
    '.tex'

    Raises
    ------
    ValueError
        If it is not one of the known.
    """
    found = Path(path).suffix.lower()
    if found not in known:
        has = f"ends in {found!r}" if found else "has no ending"
        raise ValueError(f"{path} {has}; known: {', '.join(known)}")
    return found


def chosen(table: Table, columns: Sequence[str] | None = None, digits: int | None = None) -> Table:
    """Choose the columns of a table, in this order, and the digits of its numbers.

    Parameters
    ----------
    table : Table
    columns : sequence of str, optional
        Names of columns, or their keys; case does not count.
    digits : int, optional
        Significant digits of numbers that are not whole.

    Raises
    ------
    ValueError
        For a name that is not a column's, or fewer digits than 1.
    """
    if columns is not None:
        names = {
            name.casefold(): i
            for i, c in reversed([*enumerate(table.columns)])
            for name in (c.key, c.name)
            if name
        }
        places = []
        for name in columns:
            if name.casefold() not in names:
                known = [n for n in table.header if n]
                raise ValueError(f"no column {name!r}{nearest(name, known)}")
            places.append(names[name.casefold()])
        table = replace(
            table,
            columns=tuple(replace(table.columns[i], more=False) for i in places),
            rows=tuple(r if r is None else picked(r, places) for r in table.rows),
        )
    if digits is not None:
        if digits < 1:
            raise ValueError(f"digits must be at least 1, got {digits}")
        written = [replace(c, write=partial(_rounded, c, digits)) for c in table.columns]
        table = replace(table, columns=tuple(written))
    return table


def _rounded(column: Column, digits: int, value: Any) -> str:
    if not isinstance(value, float):
        return column.write(value)
    plain = value == 0 or not 1e-4 <= abs(value) < 1000
    return number(value, digits) if plain else f"{value:#.{digits}g}".rstrip(".")


def frame(table: Table) -> pl.DataFrame:
    """Return a table as a frame: numbers as they are, other values as they are written.

    Lines between rows and headings within the table are left out; so are columns without a name
    and without a value.
    """
    import polars as pl

    rows = [r for r in table.rows if r is not None and not _is_heading(r)]
    made: dict[str, pl.Series] = {}
    for i, column in enumerate(table.columns):
        values = [_value(column, r[i] if i < len(r) else None) for r in rows]
        numbers = [v for v in values if v is not None and not isinstance(v, str)]
        name = column.key or column.name
        if not name and all(v in (None, "") for v in values):
            continue
        name = name or f"column {i + 1}"
        if name in made:
            name = f"{name} {i + 1}"
        values = [None if v in ("", MISSING) else v for v in values]
        texts = [v for v in values if isinstance(v, str)]
        if not texts and (numbers or column.right):
            floats = not numbers or any(isinstance(v, float) for v in numbers)
            kind: Any = pl.Float64 if floats else pl.Int64
            kind = pl.Boolean if numbers and all(isinstance(v, bool) for v in numbers) else kind
            made[name] = pl.Series(name, values, kind, strict=False)
        else:
            made[name] = pl.Series(
                name, [v if v is None or isinstance(v, str) else column.write(v) for v in values],
                pl.String,
            )  # fmt: skip
    return pl.DataFrame(list(made.values()))


def _is_heading(row: Row) -> bool:
    filled = [v for v in row if v not in ("", None)]
    return len(filled) == 1 and isinstance(filled[0], Marked) and filled[0].mark == HEADING


def _value(column: Column, value: Any) -> Any:
    value = value.value if isinstance(value, Marked) else value
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()  # of NumPy
    return value if value is None or isinstance(value, str | int | float) else column.write(value)


def save_table(
    table: Table,
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    digits: int | None = None,
    force: bool = False,
) -> None:
    """Write a table to a .md, .tex, .csv or .parquet file, whole or not at all.

    Parameters
    ----------
    table : Table
    path : str or Path
    columns, digits
        As of :func:`chosen`; CSV and Parquet have all digits.
    force : bool
        Replace whatever file is there.

    Raises
    ------
    ValueError
        For another ending, an unknown column, or a file there that is something else.
    """
    kind = ending(path, TABLES)
    table = chosen(table, columns, digits)
    data: str | bytes
    if kind == ".md":
        title = f"**{table.title}**\n\n" if table.title else ""
        data = title + "\n\n".join([markdown(table, aligned=True), *table.notes])
    elif kind == ".tex":
        data = latex(table)
    else:
        data = _bytes_of(frame(table), kind)
    write_target(path, data, "table", force=force)


def save_frame(found: pl.DataFrame, path: str | Path, *, force: bool = False) -> None:
    """Write a frame to a .csv or .parquet file, whole or not at all."""
    write_target(path, _bytes_of(found, ending(path, TABLES[2:])), "table", force=force)


def _bytes_of(found: pl.DataFrame, kind: str) -> bytes:
    import polars as pl

    body = io.BytesIO()
    if kind == ".parquet":
        found.write_parquet(body, metadata={"fedhist": "table"})
    else:
        safe = [
            pl.Series(s.name, [None if v is None else no_formula(v) for v in s.to_list()], s.dtype)
            for s in found.get_columns()
            if s.dtype == pl.String
        ]
        found.with_columns(safe).write_csv(body)
    return body.getvalue()


def latex(table: Table) -> str:
    r"""Write a table as LaTeX: a tabular of booktabs, its title and its notes as comments.

    >>> print(latex(Table.of(["who", Column("n", right=True)], [("a_b", 1.5), ("c", 12)])))
    \begin{tabular}{lr@{}l}
    \toprule
    who & \multicolumn{2}{r}{n} \\
    \midrule
    a\_b & 1 & .5 \\
    c & 12 & \\
    \bottomrule
    \end{tabular}
    """
    table = table.usual
    written = table.written()
    kept = [i for i, name in enumerate(table.header) if name or _filled(written, i)]
    layout = "".join("r@{}l" if table.columns[i].right else "l" for i in kept)
    heads = [
        rf"\multicolumn{{2}}{{r}}{{{_escaped(table.columns[i].name)}}}"
        if table.columns[i].right
        else _escaped(table.columns[i].name)
        for i in kept
    ]
    lines = [f"% {line}" for line in _lines(table.title)]
    lines += [rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
    lines += [" & ".join(heads) + r" \\", r"\midrule"] if any(table.header) else []
    for row in written:
        if row is None:
            if not lines[-1].startswith("\\midrule"):
                lines.append(r"\midrule")
            continue
        cells = [p for i in kept for p in _cells(row[i], table.columns[i].right)]
        line = " & ".join(cells).replace("  ", " ").rstrip() + r" \\"
        # the row end or rule before it would take a bracket or a star for its own
        lines.append("{}" * line.startswith(("[", "*")) + line)
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [f"% {line}" for note in table.notes for line in _lines(note)]
    return "\n".join(lines)


def _filled(rows: Sequence[list[Cell] | None], place: int) -> bool:
    return any(row[place].text for row in rows if row is not None)


def _lines(text: str) -> list[str]:
    return visible(text).splitlines()


def _cells(cell: Cell, right: bool) -> list[str]:
    """Write a cell; one of numbers as what stands before its point, and the rest."""
    text = " ".join(visible(cell.text).split())
    bold = r"\textbf{{{}}}" if cell.mark == HEADING else "{}"
    if not right:
        return [bold.format("--" if text == MISSING else _escaped(text))]
    found = _NUMBER.fullmatch(text)
    if text == MISSING or found is None:
        told = "--" if text == MISSING else bold.format(_escaped(text))
        return [rf"\multicolumn{{2}}{{r}}{{{told}}}"]
    before, decimals, power, rest = found.groups()
    sign = {"~": r"$\sim$", "-": "$-$"}
    head = "".join(sign.get(c, c) for c in before).replace("$$", "").replace("inf", r"$\infty$")
    tail = decimals or ""
    if power is not None:
        tail += rf"$\cdot 10^{{{int(power)}}}$"
    return [head, tail + _escaped(rest)]


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in visible(text))


def save_figure(
    draw: Draw, path: str | Path, *, width: str | float = "column", force: bool = False
) -> None:
    """Draw a figure to a .svg, .pdf or .png file, whole or not at all.

    Parameters
    ----------
    draw : callable
        Draws on a figure of matplotlib, and may set its height.
    path : str or Path
    width : {"column", "page"} or float
        Inches: 3.4 and 7.0.
    force : bool
        Replace whatever file is there.

    Raises
    ------
    ValueError
        For another ending or width, or a file there that is something else.
    """
    kind = ending(path, FIGURES)
    body = drawn(draw, inches(width), kind.removeprefix("."), mark("figure"))
    write_target(path, body.decode() if kind == ".svg" else body, "figure", force=force)


def inches(width: str | float) -> float:
    """Read the width of a figure.

    >>> inches("page"), inches(5)
    (7.0, 5.0)
    """
    if isinstance(width, str) and width not in WIDTHS:
        raise ValueError(f"width must be {' or '.join(WIDTHS)} or inches, got {width!r}")
    found = WIDTHS[width] if isinstance(width, str) else float(width)
    if not 1 <= found <= 40:
        raise ValueError(f"width must be 1 to 40 inches, got {width}")
    return found
