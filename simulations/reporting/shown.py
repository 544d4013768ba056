"""What a study returns: an object that shows itself as tables, pictures, HTML, Markdown, files.

A study says in :meth:`Shown.tables` and :meth:`Shown.draw` what there is to see; all else follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from simulations.reporting.export import (
    FIGURES,
    TABLES,
    WIDTHS,
    ending,
    frame,
    inches,
    latex,
    save_figure,
    save_table,
)
from simulations.reporting.page import Block, Page, Picture, Section, fragment
from simulations.reporting.pictures import PAPER, drawn, fit
from simulations.reporting.table import Table, markdown
from simulations.reporting.targets import (
    check_file,
    check_folder,
    mark,
    whole_folder,
    write_target,
)

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

PAGE = ".html"
NOT_PRIVATE = "computed from the users' data, outside every guarantee"


def is_file_name(path: str | Path) -> bool:
    """Whether a path names a file: its ending begins with a letter, and it is no folder.

    >>> is_file_name("a/table.tex"), is_file_name("results/epsilon-0.5")
    (True, False)
    """
    return Path(path).suffix[1:2].isalpha() and not Path(path).is_dir()


def check_output(path: str | Path, kind: str, *, force: bool = False) -> None:
    """Check a path that :meth:`Shown.save` is to write to, before anything is computed.

    Raises
    ------
    ValueError
        For another ending, and if something else is there.
    """
    if not is_file_name(path):
        check_folder(path, kind, force=force)
        return
    found = ending(path, (*TABLES, *FIGURES, PAGE))
    what = kind if found == PAGE else "figure" if found in FIGURES else "table"
    check_file(path, what, force=force)


class NoFigureError(ValueError):
    """There is nothing to draw; what is written besides the figure is written all the same."""


class Shown(ABC):
    """Base class of everything that a study returns."""

    kind: ClassVar[str] = "results"
    """What its folder is marked as: nothing else is replaced by another one."""
    not_private: ClassVar[str] = NOT_PRIVATE
    """Why what is shown is not private; empty where it is about no users."""

    @property
    @abstractmethod
    def title(self) -> str:
        """One line: what was studied, of which users."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """Return what there is to read, the main table first.

        Values are numbers, which the columns write: :attr:`table` has them as they are.
        """

    def draw(self, figure: Figure) -> None:
        """Draw what there is to see on an empty figure, whose height may be set.

        Raises
        ------
        NoFigureError
            If there is nothing.
        """
        raise NoFigureError(f"{type(self).__name__} has no figure: its tables say it all")

    @property
    def table(self) -> pl.DataFrame:
        """The main table as a polars frame: plain numbers, and null for what is missing."""
        return frame(self.tables()[0])

    def figure(self, width: str | float = "page") -> Figure:
        """Draw a matplotlib figure.

        Parameters
        ----------
        width : {"column", "page"} or float
            Inches: 3.4 and 7.0.
        """
        import matplotlib as mpl  # half a second: only where something is drawn

        from simulations.reporting.drawn import Drawn

        wide = inches(width)
        with mpl.rc_context(PAPER):
            figure = Drawn(figsize=(wide, 0.62 * wide), layout="constrained")
            self.draw(figure)
            fit(figure)
        return figure

    def to_html(self) -> str:
        """Return a part of a page: title, tables, notes; all of it escaped, nothing loaded."""
        return fragment(self.title, self.tables(), self.not_private)

    def page(self) -> Page:
        """Return a whole page: the figure, if there is one, and all tables."""
        blocks: list[Block] = []
        with suppress(NoFigureError):
            png = drawn(self.draw, WIDTHS["page"], "png", mark("figure"))
            blocks.append(Picture(png, self.title, folded=False))
        sections = Section("Figure", tuple(blocks)), Section("Tables", tuple(self.tables()))
        why = self.not_private and f"{self.not_private[:1].upper()}{self.not_private[1:]}."
        return Page(self.title[:1].upper() + self.title[1:], "", why, sections)

    def to_markdown(self) -> str:
        """Return title, tables and notes as Markdown."""
        blocks = [f"**{self.title}**"]
        for table in self.tables():
            blocks += [f"*{table.title}*"] * bool(table.title)
            blocks += [markdown(table), *table.notes]
        if self.not_private:
            blocks.append(f"NOT PRIVATE: {self.not_private}.")
        return "\n\n".join(blocks) + "\n"

    def to_latex(self) -> str:
        """Return the main table as LaTeX: a tabular of booktabs, its notes as comments."""
        return latex(self._alone()) + "\n"

    def save(
        self,
        path: str | Path,
        *,
        columns: Sequence[str] | None = None,
        digits: int | None = None,
        width: str | float = "column",
        force: bool = False,
    ) -> None:
        """Write the main table, the figure, or a folder with everything, by the path's ending.

        Parameters
        ----------
        path : path
            .md, .tex, .csv, .parquet: the main table; .svg, .pdf, .png: the figure; .html: a page
            of all; without an ending: a folder.
        columns, digits
            Of a table: names of columns, in this order; significant digits.
        width : {"column", "page"} or float
            Of a figure; inches.
        force : bool
            Replace whatever is there.

        Raises
        ------
        ValueError
            For another ending, or if something else is there.
        """
        if not is_file_name(path):
            with whole_folder(path, self.kind, shared=not self.not_private, force=force) as part:
                self.write(part)
        elif ending(path, (*TABLES, *FIGURES, PAGE)) == PAGE:
            write_target(path, self.page().to_html(), self.kind, force=force)
        elif ending(path, FIGURES + TABLES) in FIGURES:
            save_figure(self.draw, path, width=width, force=force)
        else:
            save_table(self._alone(), path, columns=columns, digits=digits, force=force)

    def write(self, folder: Path) -> None:
        """Write everything into a new folder."""
        (folder / "tables.md").write_text(self.to_markdown(), encoding="utf-8")
        for i, table in enumerate(self.tables()):
            save_table(table, folder / f"table{i or ''}.csv")
        with suppress(NoFigureError):
            save_figure(self.draw, folder / "figure.png", width="page")

    def _alone(self) -> Table:
        """Return the main table as it stands alone: with a title, and with what is not private."""
        table = self.tables()[0]
        secret = (f"NOT PRIVATE: {self.not_private}.",) if self.not_private else ()
        return replace(table, title=table.title or self.title, notes=(*table.notes, *secret))

    def _repr_html_(self) -> str:
        return self.to_html()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"
