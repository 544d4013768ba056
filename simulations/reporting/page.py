"""One self-contained HTML page: sections of text, tables and figures, without any script.

Whatever is put into a block is text, never markup: the template escapes it. Figures are SVG of our
own drawing. The page names no other file, and its Content-Security-Policy forbids everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from simulations.reporting.pictures import drawn
from simulations.reporting.table import Table

if TYPE_CHECKING:
    from jinja2 import Template
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Names and what they stand for."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Picture:
    """A figure, drawn once for a screen or paper and once for a telephone.

    Attributes
    ----------
    wide, narrow : str
        SVG.
    title : str
        What is seen, for who cannot see it.
    """

    wide: str
    narrow: str
    title: str

    @classmethod
    def of(cls, draw: Callable[[Figure], None], title: str) -> Picture:
        """Draw a figure at the width of a page and at that of a column."""
        wide, narrow = (drawn(draw, width, "svg").decode() for width in ("page", "column"))
        return cls(_inline(wide), _inline(narrow), title)


def _inline(svg: str) -> str:
    """Return SVG as it stands in a page: without its header, and with the digits that are seen."""
    return re.sub(r"(\d\.\d\d)\d+", r"\1", svg[svg.index("<svg") :])


Block = Text | Items | Facts | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; without blocks it is left out."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """What a page says.

    Attributes
    ----------
    title, subtitle : str
    warning : str
        What about the page is not private; stands at its top. Empty: nothing.
    sections : tuple of Section
    footer : str
    """

    title: str
    subtitle: str
    warning: str
    sections: tuple[Section, ...]
    footer: str = ""

    def to_html(self) -> str:
        """Return the whole page."""
        return _template().render(page=self, whole=True, sections=self.sections)


def fragment(title: str, sections: Sequence[Section], warning: str = "") -> str:
    """Return a part of somebody else's page: a title, tables with their notes, a warning."""
    page = Page(title, "", warning, tuple(sections))
    return _template().render(page=page, whole=False, sections=page.sections)


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
    templates.filters["kind"] = lambda block: type(block).__name__
    return templates.get_template("page.html")
