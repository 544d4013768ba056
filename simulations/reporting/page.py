"""One self-contained HTML page: figures, tables and sentences, without any script.

Whatever is said is text, never markup: the template escapes it. Figures are SVG of our own drawing.
The page names no other file, and its Content-Security-Policy forbids everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import fedhist
from simulations.reporting.pictures import drawn
from simulations.reporting.table import Table

if TYPE_CHECKING:
    from jinja2 import Template
    from matplotlib.figure import Figure

Sections = Sequence[tuple[str, Sequence[str]]]
"""Titles, and sentences under each."""


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, drawn once for a screen or paper and once for a telephone."""

    wide: str
    narrow: str

    @classmethod
    def of(cls, draw: Callable[[Figure], None]) -> Picture:
        """Draw a figure at the width of a page and at that of a column."""
        return cls(*(_inline(drawn(draw, width, "svg").decode()) for width in ("page", "column")))


def _inline(svg: str) -> str:
    """Return SVG as it stands in a page: without its header, and with the digits that are seen."""
    return re.sub(r"(\d\.\d\d)\d+", r"\1", svg[svg.index("<svg") :])


def page(
    title: str,
    tables: Sequence[Table],
    sections: Sections,
    warning: str,
    picture: Picture | None = None,
    *,
    whole: bool = True,
) -> str:
    """Return a page, or a part of somebody else's.

    Parameters
    ----------
    title : str
    tables : sequence of Table
    sections : sequence of (str, sequence of str)
        What is said below them; those without sentences are left out.
    warning : str
        Why it is not private; empty where it is.
    picture : Picture, optional
    whole : bool
    """
    return _template().render(
        title=title,
        tables=[t.usual for t in tables if t.rows or t.notes],
        sections=[(t[:1].upper() + t[1:], lines) for t, lines in sections if lines],
        warning=warning,
        picture=picture,
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
