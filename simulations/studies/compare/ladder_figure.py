"""The figure of a comparison of levels of trust: error against what must be believed.

Readable without colour: every level has its place and its marker, a prediction is a bar, and the
region below the users' own sampling error is hatched.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedhist.base.text import visible
from fedhist.privacy.guarantee import Trust
from simulations.reporting.numbers import short
from simulations.reporting.pictures import COLOURS, GREY
from simulations.reporting.terminal import wrap
from simulations.studies.compare.columns import least_error, missing_in_words, times
from simulations.studies.compare.figure import error_limits, hatch_below, list_marks
from simulations.studies.compare.rows import Ranked, Row
from simulations.studies.records.runs import LEVEL
from simulations.studies.records.summary import unit_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = {
    Trust.CENTRAL: ("o", COLOURS[0]),
    Trust.AGGREGATE: ("D", COLOURS[2]),
    Trust.SHUFFLE: ("^", COLOURS[3]),
    Trust.LOCAL: ("s", COLOURS[1]),
}
LETTERS = 14.5
"""Of the size of the notes, that an inch has room for."""
GAP = 0.27
"""Between two rows of a level, in levels."""


def draw_ladder(found: Ranked, figure: Figure) -> None:
    """Draw errors by level of trust, as high as the notes below them take."""
    ready, c = found.ready, found.ready.comparison
    room = int(LETTERS * figure.get_figwidth() / max(len(c.levels), 1))
    notes = [_notes(found, t, room) for t in c.levels]
    figure.set_figheight(min(3.6, 0.9 * figure.get_figwidth()) + 0.14 * max(map(len, notes)))
    axes = figure.subplots()
    low, high = error_limits(found)
    if low > 0:
        axes.set_yscale("log")
        high *= 1.6  # for what is written above the marks
    axes.set_ylim(low, high)
    axes.set_xlim(-0.5, len(c.levels) - 0.5)
    least = least_error(found, ready.fractions[0])
    best = []
    for x, level in enumerate(c.levels):
        rows = _rows(found, level)
        _draw_level(axes, x, rows)
        first = next((r for r in rows if r.rank == 1), None)
        if first is not None and first.mean:
            best.append((_place(x, 0, len(rows)), first.mean))
            _write_times(axes, best[-1], first, times(first, least))
        elif not rows:
            axes.text(x, 0.5, "not reached", color=GREY, transform=_across(axes), **_CENTRED)
    axes.plot(*zip(*best, strict=True), ls=":", color=GREY, lw=1, zorder=1) if best else None
    hatch_below(axes, ready.sampling, low, vertical=True)
    names = ["\n".join(lines) for lines in notes]
    axes.set_xticks(range(len(c.levels)), names, fontsize=7.5)
    for label in axes.get_xticklabels():
        label.set_linespacing(1.25)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", which="major", color="#dddddd", lw=0.6, zorder=0)
    axes.set_ylabel(
        f"{unit_of(ready.loss, c.target)}; NOT PRIVATE\n"
        f"mean of {len(c.seeds)} runs with its {LEVEL:.0%} interval"
    )
    title = f"{c.target}: epsilon = {c.epsilon:g}, delta = {c.delta:g}, {c.adjacency.value}"
    axes.set_title(f"{title}\n{ready.title}", loc="left", fontsize=9)
    list_marks(figure, axes)


def _rows(found: Ranked, level: Trust) -> list[Row]:
    return [r for r in found.rows if r.level is level]


def _across(axes: Any) -> Any:
    return axes.get_xaxis_transform()


def _place(x: int, i: int, n: int) -> float:
    """Return where the i-th of n rows of a level stands."""
    gap = min(GAP, 0.9 / max(n, 1))
    return x + gap * (i - (n - 1) / 2)


def _draw_level(axes: Any, x: int, rows: Sequence[Row]) -> None:
    """Draw the rows of a level side by side, the best first, by their numbers where several are."""
    for i, row in enumerate(rows):
        at = _place(x, i, len(rows))
        if row.mean is None or row.level is None:
            continue
        marker, colour = ("x", GREY) if row.flags else MARKERS[row.level]
        half = row.half_width or 0.0
        face = "white" if row.missing else colour
        style = {"fmt": marker, "color": colour, "mfc": face, "ms": 7, "capsize": 3, "zorder": 3}
        axes.errorbar([at], [row.mean], yerr=half, **style)
        if row.predicted is not None and math.isfinite(row.predicted):
            wide = 0.055
            axes.hlines(row.predicted, at - wide, at + wide, "k", lw=2, zorder=4, label="theory")
        if len(rows) > 1 and i:
            top = (at, row.mean + half)
            axes.annotate(str(i + 1), top, (0, 8), textcoords="offset points", **_CENTRED)


_CENTRED: dict[str, Any] = {
    "ha": "center",
    "fontsize": 8,
    "zorder": 2,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
}


def _write_times(axes: Any, at: tuple[float, float], row: Row, ratio: str) -> None:
    """Write the error of a level's best row above it, and how many times the first it is."""
    text = short(row.mean) + (f"\n× {ratio}" if ratio != "1.00" else "")
    top = (at[0], at[1] + (row.half_width or 0.0))
    axes.annotate(text, top, (0, 8), textcoords="offset points", weight="bold", **_CENTRED)


def _notes(found: Ranked, level: Trust, wide: int) -> list[str]:
    """Write what stands below a level: its name, what must be believed, its rows in order."""
    rows = _rows(found, level)
    lines = [level.value.upper()]
    if not rows:
        reason = next((u.reason for u in found.ready.unreached if u.trust is level), "")
        return [*lines, *textwrap.wrap(reason, wide, max_lines=6, placeholder=" ...")]
    premises = list(dict.fromkeys(r.believed.short for r in rows if r.believed is not None))
    if len(premises) == 1:
        for text in ("believe " + premises[0][0], *premises[0][1:]):
            lines += wrap(text, wide)
    for i, row in enumerate(rows, 1):
        number = f"{i} " if len(rows) > 1 else ""
        rank = " (not ranked)" if row.flags else ""
        told = [row.title + rank, *missing_in_words(row)]
        if len(premises) > 1 and row.believed is not None:
            told += [f"({', '.join(row.believed.short)})"]
        for text in (number + told[0], *told[1:]):
            lines += wrap(visible(text), wide)
    return lines
