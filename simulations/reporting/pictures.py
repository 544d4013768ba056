"""How all pictures look: colours, markers, and the style of those that are files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.base.files import whole_file
from simulations.reporting.glyphs import make_legible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#7f7f7f")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""
BLUE, ORANGE = COLOURS[:2]
GREY = "#555555"


@contextmanager
def picture(
    path: str | Path, width: float, height: float, *, dpi: int = 150, **style: Any
) -> Iterator[Figure]:
    """Yield a figure to draw on; afterwards it is written to a PNG file, whole or not at all.

    Parameters
    ----------
    path : str or Path
    width, height : float
        Inches.
    dpi : int
    **style
        Settings of matplotlib, with underscores for dots: ``font_size=8``.
    """
    import matplotlib as mpl  # half a second: only where something is drawn
    from matplotlib.figure import Figure

    usual = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(usual | {k.replace("_", "."): v for k, v in style.items()}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        make_legible(figure)
        body = io.BytesIO()
        figure.savefig(body, format="png", dpi=dpi)
    whole_file(Path(path), body.getvalue())


PAPER: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "hatch.linewidth": 0.4,
    "pdf.fonttype": 42,  # journals take no type 3
    "svg.hashsalt": "fedhist",
}
"""The style of figures for a paper: no type below 7 points at the width of a column."""


def drawn(draw: Callable[[Figure], None], width: float, kind: str, by: str) -> bytes:
    """Draw a figure for a paper and return the file; the same figure gives the same bytes.

    Parameters
    ----------
    draw : callable
        Draws on the figure, and may set its height; .62 of the width otherwise.
    width : float
        Inches.
    kind : {"svg", "pdf", "png"}
    by : str
        What the file's metadata say of who made it.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    about: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": by},
        "pdf": {"CreationDate": None, "Creator": by, "Producer": None},
        "png": {"Software": by},
    }
    with mpl.rc_context(PAPER):
        figure = Figure(figsize=(width, 0.62 * width), layout="constrained")
        draw(figure)
        make_legible(figure)
        body = io.BytesIO()
        figure.savefig(body, format=kind, dpi=300, metadata=about[kind])
    return body.getvalue()


def letters_across(width: float) -> int:
    """Return how many letters of a title a figure of so many inches has room for.

    >>> letters_across(3.4)
    53
    """
    return int(15.8 * width)
