"""One self-contained HTML page: blocks of text, tables and plots, and what they become.

Whatever is put into a block is text, never markup: it is escaped here, in one place. The page names
no other file: style, scripts, pictures and plotly.js stand in it, and its Content-Security-Policy
forbids everything else, so that nothing in the data can load or run anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from string import Template
from typing import Any

ASSETS = "simulations.reporting"
LONG = 30
"""Rows above which a table scrolls under its header."""

NO_SCRIPT = (
    "The interactive plot needs JavaScript, which is off in this browser; the numbers stand in the "
    "tables of this page."
)


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
class Table:
    """A table of texts.

    Attributes
    ----------
    header : tuple of str
    rows : tuple of tuple of str
    numbers : frozenset of str
        Columns that are aligned to the right.
    caption : str
    folded : str
        What the reader clicks to see the table; empty shows it.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()
    caption: str = ""
    folded: str = ""


@dataclass(frozen=True)
class Picture:
    """A PNG file, for readers without JavaScript."""

    png: bytes
    title: str


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
    footer: str = field(default="")

    def to_html(self) -> str:
        """Return the whole page."""
        sections = [s for s in self.sections if s.blocks]
        names = {s.title: f"s{i}" for i, s in enumerate(sections, 1)}
        plotted = any(isinstance(b, Plot) for s in sections for b in s.blocks)
        scripts = [_plotly(), _asset("report.js")] if plotted else []
        return Template(_asset("page.html")).substitute(
            policy=_policy(scripts),
            title=escape(self.title),
            subtitle=escape(self.subtitle),
            warning=escape(self.warning),
            style=_asset("report.css"),
            contents=" ".join(f'<a href="#{i}">{escape(t)}</a>' for t, i in names.items()),
            sections="\n".join(_section(s, names[s.title]) for s in sections),
            footer=escape(self.footer),
            scripts="\n".join(f"<script>{s}</script>" for s in scripts),
        )


def in_plot(text: str) -> str:
    """Escape data for plotly.js, which reads a little markup in names and labels.

    >>> in_plot("<b>5 & 6</b>")
    '&lt;b&gt;5 &amp; 6&lt;/b&gt;'
    """
    return escape(text, quote=False)


def as_json(body: Any) -> str:
    """Write JSON that may stand inside a script element: without any "<"."""
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _section(section: Section, name: str) -> str:
    blocks = "\n".join(_block(b) for b in section.blocks)
    return f'<section id="{name}">\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Items(lines):
            return "<ul>" + "".join(f"<li>{escape(x)}</li>" for x in lines) + "</ul>"
        case Facts(rows):
            pairs = (f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows)
            return "<dl>" + "".join(pairs) + "</dl>"
        case Table():
            return _table(block)
        case Picture(png, title):
            data = base64.b64encode(png).decode()
            return (
                f"<details><summary>{escape(title)}</summary>"
                f'<img alt="{escape(title)}" src="data:image/png;base64,{data}"></details>'
            )
        case Plot():
            return _plot(block)


def _table(table: Table) -> str:
    kinds = [' class="number"' if name in table.numbers else "" for name in table.header]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>'
        for kind, name in zip(kinds, table.header, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(x)}</td>" for kind, x in zip(kinds, row, strict=True))
        + "</tr>"
        for row in table.rows
    )
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    size = " long" if len(table.rows) > LONG else ""
    body = (
        f'<div class="scroll{size}"><table>{caption}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )
    if not table.folded:
        return body
    return f"<details><summary>{escape(table.folded)}</summary>{body}</details>"


def _plot(plot: Plot) -> str:
    body = {
        "data": plot.data,
        "layout": plot.layout,
        "log": plot.log,
        "slices": plot.slices,
        "height": plot.height,
    }
    caption = f'<p class="caption">{escape(plot.caption)}</p>' if plot.caption else ""
    return (
        f'<figure class="interactive"><figcaption><h3>{escape(plot.title)}</h3>{caption}'
        f'</figcaption><div class="tools"></div>'
        f'<div class="plot" role="img" aria-label="{escape(plot.title)}"></div>'
        f"<noscript><p>{NO_SCRIPT}</p></noscript>"
        f'<script type="application/json">{as_json(body)}</script></figure>'
    )


def _policy(scripts: Sequence[str]) -> str:
    """Allow these scripts by their digests, inline style and pictures; nothing from elsewhere."""
    digests = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{d}'" for d in digests) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return resources.files(ASSETS).joinpath("assets", name).read_text(encoding="utf-8")


def _plotly() -> str:
    """Return plotly.js, as it may stand inside a script element."""
    from plotly.offline import get_plotlyjs  # half a second: for pages with plots only

    text: str = get_plotlyjs()
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
