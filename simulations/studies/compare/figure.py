"""The figure of a comparison: errors with intervals and predictions, best first.

Readable without colour: trust is told by the marker, a prediction is a bar, and the region below
the users' own sampling error is hatched.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from simulations.reporting.numbers import clipped
from simulations.reporting.pictures import BLUE, GREY, ORANGE
from simulations.studies.compare.columns import missing_in_words
from simulations.studies.compare.rows import Ranked, Row
from simulations.studies.records.runs import LEVEL
from simulations.studies.records.summary import unit_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = {
    "central": ("o", BLUE, "central trust"),
    "local": ("s", ORANGE, "local trust"),
    "flagged": ("^", GREY, "another guarantee: not ranked"),
}
MOST_LETTERS = 34


def draw_comparison(found: Ranked, figure: Figure) -> None:
    """Draw a comparison, as high as its rows take."""
    figure.set_figheight(1.9 + 0.34 * len(found.rows))
    rows, ready = found.rows, found.ready
    c = ready.comparison
    axes = figure.subplots()
    low, high = error_limits(found)
    if low > 0:
        axes.set_xscale("log")
    axes.set_xlim(low, high)
    for y, row in enumerate(rows):
        _draw_row(axes, y, row)
    hatch_below(axes, ready.sampling, low)
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", which="major", color="#dddddd", lw=0.6, zorder=0)
    axes.set_xlabel(
        f"{unit_of(ready.loss, c.target)}; NOT PRIVATE\n"
        f"mean of {len(c.seeds)} runs with its {LEVEL:.0%} interval",
        loc="left",
    )
    title = f"{c.target}: epsilon = {c.epsilon:g}, delta = {c.delta:g}, {c.adjacency.value}"
    axes.set_title(f"{title}\n{ready.title}", loc="left", fontsize=9)
    list_marks(figure, axes)


def hatch_below(axes: Any, sampling: float | None, low: float, *, vertical: bool = False) -> None:
    """Hatch what lies below the users' own sampling error."""
    if sampling:
        hatched: Any = {"facecolor": "none", "edgecolor": "#bbbbbb", "hatch": "////", "lw": 0}
        span = axes.axhspan if vertical else axes.axvspan
        span(low, sampling, zorder=0, label="below the users' own sampling error", **hatched)


def error_limits(found: Ranked) -> tuple[float, float]:
    """Choose the ends of the axis; the lower one is 0, for a linear axis, where an error is 0.

    An interval that reaches below 0 runs out of the picture.
    """
    means = [r.mean for r in found.rows if r.mean is not None]
    marks = [*means, *(r.predicted for r in found.rows if r.predicted is not None)]
    marks += [found.ready.sampling] if found.ready.sampling else []
    ends = [(r.mean, r.half_width or 0.0) for r in found.rows if r.mean is not None]
    high = max([*marks, *(mean + half for mean, half in ends)], default=0.0)
    if not means or min(means) <= 0 or not math.isfinite(high):
        return 0.0, 1.1 * high if 0 < high < math.inf else 1.0
    inside = [mean - half for mean, half in ends if half < mean]
    return min(x for x in (*marks, *inside) if x > 0) / 1.5, 1.5 * high


def _draw_row(axes: Any, y: int, row: Row) -> None:
    if row.mean is None:
        place = {"va": "center", "transform": axes.get_yaxis_transform()}
        axes.text(0.02, y, "; ".join(missing_in_words(row)), **place)
        return
    kind = "flagged" if row.flags else row.records[0].trust
    marker, colour, label = MARKERS.get(kind, MARKERS["flagged"])
    style = {"fmt": marker, "color": colour, "mfc": "white" if row.missing else colour}
    half = row.half_width or 0.0
    axes.errorbar([row.mean], [y], xerr=half, capsize=3, zorder=3, label=label, **style)
    if row.predicted is not None:
        theory = {"color": "black", "ms": 15, "mew": 1.5, "zorder": 4, "label": "theory"}
        axes.plot([row.predicted], [y], "|", **theory)


def _name(row: Row) -> str:
    """Write a row's rank and label; a hollow marker's runs are counted."""
    label = clipped(row.label, MOST_LETTERS)
    if row.fraction is not None:
        label += f" at {row.fraction:g}"
    text = label if row.rank is None else f"{row.rank}. {label}"
    counted = missing_in_words(row) if row.mean is not None else []
    return "\n".join([text, *counted])


def list_marks(figure: Any, axes: Any) -> None:
    """List every kind of mark once, below the axes."""
    marks: dict[str, Any] = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        marks.setdefault(label, handle)
    if marks:
        figure.legend(
            marks.values(), marks.keys(), loc="outside lower left", ncols=3, frameon=False
        )
