"""One self-contained HTML page: blocks of text, tables and plots, and what they become.

Whatever is put into a block is text, never markup: the templates escape it. The page names no other
file: style, scripts, pictures and plotly.js stand in it, and its Content-Security-Policy forbids
everything else, so that nothing in the data can load or run anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from simulations.reporting.table import Table

if TYPE_CHECKING:
    from jinja2 import Environment

ROOM = "simulations.reporting"


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
    """A PNG file; folded, it is for readers without JavaScript."""

    png: bytes
    title: str
    folded: bool = True


@dataclass(frozen=True)
class Plot:
    """An interactive plot.

    Attributes
    ----------
    title, caption : str
    data : sequence of dict
        Traces as plotly.js spells them. Each has ``meta.slice``, the slice that it belongs to;
        None for all.
    layout : mapping
    log : {"", "x", "y", "xy"}
        Axes with a button that switches between logarithmic and linear.
    slices : tuple of str
        Parts of which the reader sees one at a time.
    height : int
        Of the axes, without the legend; px.
    """

    title: str
    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    caption: str = ""
    log: str = ""
    slices: tuple[str, ...] = ()
    height: int = 400

    @property
    def body(self) -> dict[str, Any]:
        """What the script of the page reads."""
        names = ("data", "layout", "log", "slices", "height")
        return {name: getattr(self, name) for name in names}


Block = Text | Items | Facts | Table | Picture | Plot


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """What a page says.

    Attributes
    ----------
    title, subtitle : str
    warning : str
        What about the page is not private; stands at its top.
    sections : tuple of Section
        Those without blocks are left out.
    footer : str
    """

    title: str
    subtitle: str
    warning: str
    sections: tuple[Section, ...]
    footer: str = ""

    def to_html(self) -> str:
        """Return the whole page."""
        from markupsafe import Markup

        sections = [s for s in self.sections if s.blocks]
        plotted = any(isinstance(b, Plot) for s in sections for b in s.blocks)
        scripts = [_plotly(), _asset("report.js")] if plotted else []
        return (
            _templates()
            .get_template("page.html")
            .render(
                page=self,
                policy=_policy(scripts),
                scripts=map(Markup, scripts),
                sections=sections,
                style=Markup(_asset("report.css")),
            )
        )


def fragment(title: str, tables: Sequence[Table], warning: str = "") -> str:
    """Return a part of somebody else's page: a title, tables with their notes, a warning.

    Parameters
    ----------
    title : str
    tables : sequence of Table
    warning : str
        What about it is not private.
    """
    from markupsafe import Markup

    style = Markup(_asset("fragment.css"))
    template = _templates().get_template("fragment.html")
    return template.render(
        style=style, tables=[t.usual for t in tables], title=title, warning=warning
    )


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # for pages only

    templates = Environment(
        autoescape=True,
        loader=PackageLoader(ROOM),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    templates.filters["base64"] = lambda data: base64.b64encode(data).decode()
    templates.filters["kind"] = lambda block: type(block).__name__
    templates.policies["json.dumps_kwargs"] = {
        "allow_nan": False,
        "ensure_ascii": False,
        "separators": (",", ":"),
    }
    return templates


def in_plot(text: str) -> str:
    """Escape data for plotly.js, which reads a little markup in names and labels.

    >>> in_plot("<b>5 & 6</b>")
    '&lt;b&gt;5 &amp; 6&lt;/b&gt;'
    """
    return escape(text, quote=False)


def _policy(scripts: Sequence[str]) -> str:
    """Allow these scripts by their digests, inline style and pictures; nothing from elsewhere."""
    digests = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{d}'" for d in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return resources.files(ROOM).joinpath("assets", name).read_text(encoding="utf-8")


def _plotly() -> str:
    """Return plotly.js, as it may stand inside a script element."""
    from plotly.offline import get_plotlyjs  # half a second: for pages with plots only

    text: str = get_plotlyjs()
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
