"""What a study returns: an object that shows itself as tables, pictures, a page, and files.

A study says in :meth:`Shown.tables`, :meth:`Shown.sections` and :meth:`Shown.draw` what there is to
see; all else follows. :class:`Kept` is what :meth:`Shown.save` left in a folder.
"""

from __future__ import annotations

import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console

import fedhist
from simulations.reporting.charts import CHART, Chart
from simulations.reporting.files import json_text, numbers, whole_folder, write_json
from simulations.reporting.pictures import drawn, sketched
from simulations.reporting.table import (
    Column,
    Marked,
    Table,
    csv,
    frame,
    latex,
    markdown,
    print_lines,
    print_section,
    print_table,
    worded,
)

if TYPE_CHECKING:
    import polars as pl
    from jinja2 import Template
    from matplotlib.figure import Figure

TABLES, FIGURES = ("txt", "md", "tex", "csv"), ("svg", "pdf", "png")
KINDS = (*TABLES, *FIGURES, "html", "json")
"""What can be written, named as files end."""
RESULT = "result.json"
NOT_PRIVATE = "computed from the users' data, outside every guarantee"


class NoFigureError(ValueError):
    """There is nothing to draw; what is written besides the figure is written all the same."""


class Shown(ABC):
    """Base class of everything that a study returns."""

    kind: ClassVar[str] = "results"
    """What its folder is marked as: nothing else is replaced by another one."""
    not_private: ClassVar[str] = NOT_PRIVATE
    """Why what is shown is not private; empty where it is about no users."""

    @property
    def secret(self) -> str:
        """Why this is not private."""
        return self.not_private

    @property
    @abstractmethod
    def title(self) -> str:
        """One line: what was studied, of which users."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """Return what there is to read, the main table first.

        Values are numbers, which the columns write: :attr:`table` has them as they are.
        """

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Return what is said below the tables: titles, and sentences under each."""
        return ()

    def draw(self, figure: Figure) -> None:
        """Draw what there is to see on an empty figure, whose height may be set.

        Raises NoFigureError if there is nothing.
        """
        raise NoFigureError("its folder has no chart.npz to draw (--as png gives a figure.png)")

    @property
    def table(self) -> pl.DataFrame:
        """The main table as a polars frame: plain numbers, and null for what is missing."""
        return frame(self.tables()[0])

    def figure(self, width: str | float = "page") -> Figure:
        """Draw a matplotlib figure, "column" (3.4) or "page" (7) or so many inches wide."""
        return sketched(self.draw, width)

    def print_on(self, console: Console) -> None:
        """Print title, tables and what is said below."""
        console.print(self.title, markup=False, style="bold")
        for table in self.tables():
            if table.rows:
                print_table(console, table)
            else:
                print_lines(console, table.notes)
        for title, lines in self.sections():
            print_section(console, title, lines)

    def to_markdown(self) -> str:
        """Return title, tables and notes as Markdown."""
        blocks = [f"**{self.title}**"]
        for table in self.tables():
            blocks += [f"*{table.title}*"] * bool(table.title)
            blocks += [markdown(table), *table.notes]
        for title, lines in filter(lambda x: x[1], self.sections()):
            blocks += [f"*{title}*", "\n".join(f"- {line}" for line in lines)]
        if self.secret:
            blocks.append(f"NOT PRIVATE: {self.secret}.")
        return "\n\n".join(blocks) + "\n"

    def written(self, kind: str) -> bytes:
        """Return what there is to see as a file.

        ``kind``: "txt": everything as text; "md": as Markdown; "tex", "csv": the main table; "svg",
        "pdf", "png": the figure; "html": the page; "json": plain data.
        """
        if kind in FIGURES:
            return drawn(self.draw, "page", kind)
        if kind == "html":
            pictures = {}
            with suppress(NoFigureError):
                pictures = {s: _inline(drawn(self.draw, w, "svg")) for s, w in SCREENS.items()}
            return page(self.title, self.tables(), self.sections(), self.secret, pictures).encode()
        if kind == "json":
            return json_text(self.document()).encode()
        if kind == "txt":
            text = io.StringIO()
            self.print_on(Console(file=text, width=80, highlight=False))
            return text.getvalue().encode()
        if kind == "md":
            return self.to_markdown().encode()
        table = self.tables()[0]
        secret = (f"NOT PRIVATE: {self.secret}.",) * bool(self.secret)
        table = replace(table, title=table.title or self.title, notes=(*table.notes, *secret))
        return ((latex if kind == "tex" else csv)(table).rstrip("\n") + "\n").encode()

    def document(self) -> dict[str, Any]:
        """Return what is shown as plain data, from which :class:`Kept` is made again."""
        return {
            "kind": self.kind,
            "title": self.title,
            "not_private": self.secret,
            "tables": [_as_plain(t) for t in self.tables()],
            "sections": [[title, list(lines)] for title, lines in self.sections()],
        }

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a folder with everything, by force over whatever is there.

        Raises ValueError if something else is there.
        """
        with whole_folder(path, self.kind, shared=not self.secret, force=force) as part:
            self.write(part)
            if not (part / RESULT).exists():
                Shown.write(self, part)
            with suppress(NoFigureError):
                (part / "figure.png").write_bytes(self.written("png"))
            (part / "report.html").write_bytes(self.written("html"))

    def write(self, folder: Path) -> None:
        """Write what a folder holds beside figure.png and report.html."""
        write_json(folder / RESULT, {**Shown.document(self), **self.document()})

    def _repr_html_(self) -> str:
        return page(self.title, self.tables(), self.sections(), self.secret, whole=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"


def _as_plain(table: Table) -> dict[str, Any]:
    """Return a table as plain data: of every value what it is, how it is written, its mark."""
    values = [
        None if row is None else [v.value if isinstance(v, Marked) else v for v in row]
        for row in table.rows
    ]
    rows = [
        None if row is None else [[v, c.text, c.mark] for v, c in zip(own, row, strict=False)]
        for own, row in zip([v or [] for v in values], table.written(), strict=True)
    ]
    columns = [
        {"name": c.name, "right": c.right, "key": c.key, "more": c.more} for c in table.columns
    ]
    return {"title": table.title, "columns": columns, "rows": rows, "notes": list(table.notes)}


@dataclass(frozen=True, repr=False)
class Kept(Shown):
    """What :meth:`Shown.document` said."""

    body: dict[str, Any]
    chart: Path
    """The file of a run's figure, if it is there."""

    @classmethod
    def open(cls, folder: Path) -> Kept:
        """Read the result.json of a folder; ValueError where there is none."""
        try:
            body = numbers(json.loads((folder / RESULT).read_text(encoding="utf-8")))
        except (OSError, ValueError) as e:
            raise ValueError(f"{folder / RESULT} cannot be read: {e}") from None
        if not isinstance(body, dict) or "tables" not in body:
            raise ValueError(f"{folder / RESULT} holds nothing to show")
        return cls(body, folder / CHART)

    def draw(self, figure: Figure) -> None:
        """Draw the estimate of a run."""
        if self.chart.is_file():
            Chart.open(self.chart).draw(figure)
        else:
            super().draw(figure)

    def written(self, kind: str) -> bytes:
        """Return it as a file; a figure that cannot be drawn anew as it was written."""
        picture = self.chart.with_name("figure.png")
        if kind == "png" and picture.is_file():
            return picture.read_bytes()
        return super().written(kind)

    @property
    def secret(self) -> str:
        """Why it is not private."""
        return str(self.body.get("not_private", ""))

    @property
    def title(self) -> str:
        """What was studied."""
        return str(self.body.get("title", ""))

    def tables(self) -> Sequence[Table]:
        """Return the tables."""
        return [_table(t) for t in self.body["tables"]]

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Return what is said below them."""
        return [(str(t), tuple(lines)) for t, lines in dict(self.body.get("sections", ())).items()]

    def document(self) -> dict[str, Any]:
        """Return the plain data again."""
        return self.body


def _table(body: dict[str, Any]) -> Table:
    columns = [Column(**c) for c in body["columns"]]
    rows = [
        row if row is None else [worded(v, str(text), mark) for v, text, mark in row]
        for row in body["rows"]
    ]
    return Table.of(columns, rows, title=body["title"], notes=body["notes"])


# -- the page -------------------------------------------------------------------------------------

Sections = Sequence[tuple[str, Sequence[str]]]
"""Titles, and sentences under each."""


SCREENS = {"wide": "page", "narrow": "column"}
"""Widths of a page's figure: on a screen or paper; on a telephone, with type as large."""


def _inline(svg: bytes) -> str:
    """Return SVG as it stands in a page: without its header, and with the digits that are seen."""
    return re.sub(r"(\d\.\d\d)\d+", r"\1", svg[svg.index(b"<svg") :].decode())


def page(
    title: str,
    tables: Sequence[Table],
    sections: Sections,
    warning: str,
    pictures: Mapping[str, str] = {},
    *,
    whole: bool = True,
) -> str:
    """Return a page, or a part of somebody else's.

    ``sections``: what is said below them; those without sentences are left out; ``warning``: why it
    is not private; empty where it is; ``pictures``: SVG by screen.
    """
    return _template().render(
        title=title,
        tables=[t.usual for t in tables if t.rows or t.notes],
        sections=[(t[:1].upper() + t[1:], lines) for t, lines in sections if lines],
        warning=warning,
        pictures=pictures,
        whole=whole,
        version=fedhist.__version__,
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # for pages only

    templates = Environment(
        autoescape=True,
        loader=PackageLoader("simulations.reporting"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    return templates.get_template("page.html")
