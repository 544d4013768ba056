"""How all pictures look: what a colour means, the type, and what a figure is written as."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#7f7f7f")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""
BLUE, ORANGE, GREEN, PINK, BLACK = COLOURS[:5]
GREY = "#666666"
TRUST: Mapping[str, tuple[str, str]] = {
    "central": (BLUE, "o"),
    "aggregate": (GREEN, "D"),
    "shuffle": (PINK, "^"),
    "local": (ORANGE, "s"),
}
"""Colour and marker of each level of trust; black is what is known without a run (a truth, theory),
and grey what is compared with nothing."""
WIDTHS = {"column": 3.4, "page": 7.0}
"""Inches."""
STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "pdf.fonttype": 42,  # journals take no type 3
    "svg.fonttype": "none",  # letters as letters: small, searchable, in any script
    "svg.hashsalt": "fedhist",
}
DASHES: Sequence[Any] = (
    "-",
    "--",
    "-.",
    ":",
    (0, (6, 1, 1, 1, 1, 1)),
    (0, (3, 1, 1, 1)),
    (0, (1, 3)),
)
"""Lines that tell curves apart without colours."""


def trust_look(trust: str) -> tuple[str, str]:
    """Return colour and marker of a level of trust."""
    return TRUST.get(trust, (GREY, "x"))


def shades(colour: str, n: int) -> list[str]:
    """Return n shades of a colour, itself first, then lighter and darker ones in turn.

    >>> shades("#0072b2", 2)
    ['#0072b2', '#60a7cf']
    """
    base = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    out = [colour]
    for i in range(1, n):
        step = (i + 1) // 2 / (n // 2 + 1)
        mixed = [x + (255 - x) * 0.75 * step if i % 2 else x * (1 - 0.7 * step) for x in base]
        out.append("#" + "".join(f"{round(x):02x}" for x in mixed))
    return out


def logarithmic(axes: Any, letter: str) -> None:
    """Make an axis logarithmic, with labels that are plain numbers; the fewer powers, the more."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    getattr(axes, f"set_{letter}scale")("log")
    axis = getattr(axes, f"{letter}axis")
    low, high = axis.get_view_interval()
    ratio = high / max(low, 1e-300)
    few = (1.0, 2.0, 5.0) if ratio < 100 else (1.0, 3.0) if ratio < 1e3 else (1.0,)
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if ratio < 5 else few
    axis.set_major_locator(MaxNLocator(5) if ratio < 2 else LogLocator(subs=steps, numticks=12))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def letters_across(width: float) -> int:
    """Return how many letters of a title a figure of so many inches has room for.

    >>> letters_across(3.4)
    53
    """
    return int(15.8 * width)


def wrapped(text: str, width: float) -> str:
    """Break a title into lines that a figure of so many inches has room for."""
    return "\n".join(textwrap.fill(line, letters_across(width)) for line in text.split("\n"))


def inches(width: str | float) -> float:
    """Read the width of a figure.

    >>> inches("page"), inches(5)
    (7.0, 5.0)
    """
    if isinstance(width, str) and width not in WIDTHS:
        raise ValueError(f"width must be {' or '.join(WIDTHS)} or inches, got {width!r}")
    wide = WIDTHS[width] if isinstance(width, str) else float(width)
    if not 1 <= wide <= 40:
        raise ValueError(f"width must be 1 to 40 inches, got {width}")
    return wide


def sketched(draw: Callable[[Figure], None], width: str | float) -> Figure:
    """Draw a figure, which a notebook shows where it is the value of a cell.

    ``draw``: draws on the figure, and may set its height; .62 of the width otherwise; ``width``:
    inches.
    """
    import matplotlib as mpl  # half a second: only where something is drawn
    from matplotlib.figure import Figure

    class Drawn(Figure):
        def _repr_png_(self) -> bytes:
            return encoded(self, "png")

    wide = inches(width)
    with mpl.rc_context(STYLE):
        figure = Drawn(figsize=(wide, 0.62 * wide), layout="constrained")
        draw(figure)
    return figure


def drawn(draw: Callable[[Figure], None], width: str | float, kind: str) -> bytes:
    """Draw a figure and return the file of a kind: "svg", "pdf" or "png"."""
    return encoded(sketched(draw, width), kind)


def encoded(figure: Figure, kind: str) -> bytes:
    """Return a figure as a file; the same figure gives the same bytes."""
    import matplotlib as mpl
    from matplotlib.text import Text

    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    body = io.BytesIO()
    for text in figure.findobj(Text):
        if isinstance(text, Text) and "$" in text.get_text() and "\\math" not in text.get_text():
            text.set_parse_math(False)  # a name, no formula
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font has not
        figure.savefig(body, format=kind, dpi=200, metadata=dates.get(kind))
    return body.getvalue()


def list_marks(figure: Any, panels: Sequence[Any]) -> None:
    """List every kind of mark once, below the panels."""
    marks: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            marks.setdefault(label, handle)
    if marks:
        each = 0.5 + 0.062 * max(map(len, marks))  # inches that the longest label takes
        columns = max(1, min(len(marks), int(figure.get_figwidth() / each)))
        rows = math.ceil(len(marks) / columns)
        figure.set_figheight(figure.get_figheight() + 0.16 * rows)
        figure.legend(marks.values(), marks.keys(), loc="outside lower left", ncols=columns)
