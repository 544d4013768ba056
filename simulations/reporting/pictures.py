"""How all pictures look: colours, markers, and the style of those that are files."""

from __future__ import annotations

import io
import textwrap
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
"""The style of figures for a paper."""
LEAST_TYPE = 7.0
"""Points."""
LINE = 0.14
"""Height of a line, inches."""


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
        fit(figure)
        body = io.BytesIO()
        figure.savefig(body, format=kind, dpi=300, metadata=about[kind])
    return body.getvalue()


def letters_across(width: float) -> int:
    """Return how many letters of a title a figure of so many inches has room for.

    >>> letters_across(3.4)
    53
    """
    return int(15.8 * width)


def fit(figure: Figure) -> None:
    """Bring what is written into a figure's width, which grows in height for it.

    Titles and labels get more lines, legends fewer columns, and no type is below 7 points.
    """
    from matplotlib.text import Text

    make_legible(figure)  # what is measured is drawn
    wide = figure.get_figwidth()
    for text in figure.findobj(Text):
        if isinstance(text, Text) and 0 < float(text.get_fontsize()) < LEAST_TYPE:
            text.set_fontsize(LEAST_TYPE)
    added = 0
    figure.draw_without_rendering()
    for axes in figure.axes:
        for title in (axes._left_title, axes.title):  # type: ignore[attr-defined]
            box, said = title.get_window_extent(), title.get_text()
            if not said or (box.x0 >= 0 and box.x1 <= figure.bbox.width):
                continue
            if len(figure.axes) == 1:  # the figure's title begins above the names of rows
                title.set_text("")
                figure.suptitle(said, x=0.01, ha="left", fontsize=8, parse_math=False)
            else:
                spec = axes.get_subplotspec()
                across = spec.get_gridspec().ncols if spec is not None else 1
                title.set_text(_wrapped(said, letters_across(0.85 * wide / across)))
    if figure.get_suptitle():
        old = figure.get_suptitle()
        new = _wrapped(old, letters_across(wide))
        figure._suptitle.set_text(new)  # type: ignore[attr-defined]
        added += new.count("\n") - old.count("\n")
    figure.set_figheight(figure.get_figheight() + LINE * added)
    figure.draw_without_rendering()
    for legend in list(figure.legends):
        handles: dict[str, Any] = {}
        for axes in figure.axes:
            handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        labels = [t.get_text() for t in legend.get_texts()]
        height, columns = legend.get_window_extent().height, len(labels)
        while legend.get_window_extent().width > figure.bbox.width and columns > 1:
            columns = min(columns - 1, 3)
            legend.remove()
            legend = figure.legend(  # set_ncols changes nothing once it is made
                [handles[n] for n in labels], labels, loc="outside lower left", ncols=columns,
                frameon=False,
            )  # fmt: skip
            make_legible(figure)
            figure.draw_without_rendering()
        grown = (legend.get_window_extent().height - height) / figure.dpi
        figure.set_figheight(figure.get_figheight() + max(0.0, grown))
    figure.draw_without_rendering()
    for axes in figure.axes:
        for label, room, span in (
            (axes.xaxis.label, figure.bbox.width, wide),
            (axes.yaxis.label, figure.bbox.height, figure.get_figheight()),
        ):
            box = label.get_window_extent()
            low, high = (box.x0, box.x1) if label is axes.xaxis.label else (box.y0, box.y1)
            if label.get_text() and (low < 0 or high > 0.97 * room):
                label.set_text(_wrapped(label.get_text(), letters_across(0.7 * span)))
                if label is axes.xaxis.label:
                    label.set_horizontalalignment("right")
                    label.set_x(1.0)
    make_legible(figure)  # new titles and legends, too


def _wrapped(text: str, letters: int) -> str:
    return "\n".join(textwrap.fill(line, letters) for line in text.split("\n"))
