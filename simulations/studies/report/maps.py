"""Maps over two axes of a study: which series has the least error, and by what factor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulations.reporting.numbers import MISSING, shown
from simulations.reporting.page import Plot, in_plot
from simulations.reporting.pictures import COLOURS
from simulations.reporting.table import TIE, Marked, Table
from simulations.studies.report.plots import layout, look, trace
from simulations.studies.report.study import SAMPLES, Point, View, axis_name, short, title_of, words

MOST_CELLS = 4_000
"""Cells of all maps of a page; what is more is left out, with a note."""

MOST_MAPS = 6
TIE_COLOUR = "#d0d0d0"
PALE = 0.6
"""Share of white in a map's colours, so that black letters can be read on all of them."""


@dataclass(frozen=True)
class Winner:
    """The series of least mean loss at one setting.

    Attributes
    ----------
    series : str
    loss : float
    runner_up : str
        The second; empty if there is none.
    margin : float
        The second's loss over the winner's, at least 1; 1 without a second.
    told_apart : bool
        Whether the difference is larger than its 95 % interval; False too where there is none.
    tied : bool
        Whether the intervals do not tell the two apart, or the losses are equal: nobody wins.
    """

    series: str
    loss: float
    runner_up: str = ""
    margin: float = 1.0
    told_apart: bool = True
    tied: bool = False

    def __str__(self) -> str:
        if not self.runner_up:
            return self.series
        if self.tied:
            return f"{TIE}: {self.series}, {self.runner_up} ×{self.margin:.3g}"
        return f"{self.series} ×{self.margin:.3g}{'' if self.told_apart else ' ≈'}"


def winner(points: Sequence[Point]) -> Winner | None:
    """Rank the points of one setting; None where none can win.

    Whoever refused or failed in some run cannot win, and neither can a reference (one without
    privacy for a user, or with settings that read the data), nor a server that checks no message.
    """
    able = [p for p in points if p.complete and p.private and p.safe and p.mean is not None]
    able.sort(key=lambda p: (p.mean or 0.0, p.series))
    if not able:
        return None
    first, best = able[0], float(able[0].mean or 0.0)
    if len(able) == 1:
        return Winner(first.series, best)
    second, next_ = able[1], float(able[1].mean or 0.0)
    margin = next_ / best if best > 0 else (1.0 if next_ == 0 else math.inf)
    halves = [p.half_width for p in (first, second)]
    told = None not in halves and next_ - best > math.hypot(*(h or 0.0 for h in halves))
    tied = next_ == best or (None not in halves and not told)
    return Winner(first.series, best, second.series, margin, told, tied)


def winners(view: View, x: str, y: str, at: Mapping[str, Any]) -> list[list[Winner | None]]:
    """Return the winners at one slice: a row per value of ``y``, a column per value of ``x``."""
    return [[winner(view.where({**at, x: a, y: b})) for a in view.axes[x]] for b in view.axes[y]]


def pairs(view: View) -> list[tuple[str, str]]:
    """Return the pairs of axes, samples per user against epsilon first."""

    def place(key: str) -> tuple[int, str]:
        names = [*SAMPLES, "n_users", "epsilon"]
        return (names.index(short(key)) if short(key) in names else len(names), key)

    axes = sorted(view.axes, key=place)
    found = list(itertools.combinations(axes, 2))
    wanted = [p for p in found if short(p[0]) in SAMPLES and short(p[1]) == "epsilon"]
    return wanted + [p for p in found if p not in wanted]


def winner_maps(view: View) -> tuple[list[Plot | Table], list[str]]:
    """Draw a map for each pair of axes, with its table below; also return what was left out."""
    if len(view.series) < 2:
        return [], []
    found, blocks, notes, cells = pairs(view), list[Plot | Table](), list[str](), 0
    for x, y in found[:MOST_MAPS]:
        size = len(view.axes[x]) * len(view.axes[y])
        slices = view.slices((x, y))
        room = max((MOST_CELLS - cells) // size, 0)
        if room < len(slices):
            notes.append(
                f"winner map of {short(x)} and {short(y)}: {room:,} of {len(slices):,} slices"
            )
        if not room:
            continue
        cells += size * min(room, len(slices))
        blocks += _map(view, x, y, slices[:room])
    if len(found) > MOST_MAPS:
        notes.append(f"{len(found) - MOST_MAPS} more pairs of axes have no winner map")
    return blocks, notes


def _map(view: View, x: str, y: str, slices: Sequence[Mapping[str, Any]]) -> list[Plot | Table]:
    xs = [shown(v) for v in view.axes[x]]
    ys = [shown(v) for v in view.axes[y]]
    grids = [winners(view, x, y, at) for at in slices]
    names = [words(at) for at in slices]
    traces = [_heat(view, xs, ys, grid, i) for i, grid in enumerate(grids)]
    found = [w for grid in grids for row in grid for w in row if w is not None]
    won = {w.series for w in found if not w.tied}
    for index, series in enumerate(view.series):
        if series in won:
            traces.append(_key(series, pale(COLOURS[index % len(COLOURS)])))
    if any(w.tied for w in found):
        traces.append(_key(TIE, TIE_COLOUR))
    title = f"Least error at each {axis_name(x)} and {axis_name(y)}"
    caption = (
        "Each cell names the mechanism of least mean error, and the factor by which the next one's "
        "error is larger. Grey: a tie, which the 95 % intervals do not tell apart; its mechanisms "
        "are in the table. ≈: single runs, which have no intervals. Whoever refused or failed in "
        "some run cannot win; what is not private per user, was set by looking at the data, or has "
        "a server that checks no message, cannot either."
    )
    horizontal = {"type": "category", "title": {"text": in_plot(title_of(x))}}
    vertical = {"type": "category", "title": {"text": in_plot(title_of(y))}}
    if len(slices) == 1 and len(traces) < 2:
        return []
    table = Table.of(
        (*([] if names == [""] else ["slice"]), f"{short(y)} \\ {short(x)}", *xs),
        [
            (*([] if names == [""] else [name]), value, *map(_cell, row))
            for name, grid in zip(names, grids, strict=True)
            for value, row in zip(ys, grid, strict=True)
        ],
        folded="The map as a table",
    )
    plot = Plot(
        title,
        traces,
        layout(horizontal, vertical) | {"hovermode": "closest", "showlegend": True},
        caption,
        slices=tuple(names) if len(names) > 1 else (),
        height=120 + 56 * len(ys),
    )
    return [plot, table]


def _heat(
    view: View, xs: list[str], ys: list[str], grid: list[list[Winner | None]], part: int
) -> dict[str, Any]:
    places = {s: i for i, s in enumerate(view.series)}
    steps = [*(pale(look(i)["colour"]) for i in range(len(places))), TIE_COLOUR]
    last = len(steps)
    return {
        "type": "heatmap",
        "x": xs,
        "y": ys,
        "z": [
            [None if w is None else last - 1 if w.tied else places[w.series] for w in row]
            for row in grid
        ],
        "zmin": -0.5,
        "zmax": last - 0.5,
        "colorscale": [
            stop
            for i, colour in enumerate(steps)
            for stop in ([i / last, colour], [(i + 1) / last, colour])
        ],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "text": [[_written(w) for w in row] for row in grid],
        "texttemplate": "%{text}",
        "textfont": {"color": "#000"},
        "hovertext": [
            [_told(w, a, b) for w, a in zip(row, xs, strict=True)]
            for row, b in zip(grid, ys, strict=True)
        ],
        "hoverinfo": "text",
        "showlegend": False,
        "meta": {"slice": part, "theory": False},
    }


def _key(series: str, colour: str) -> dict[str, Any]:
    """Return an entry of the legend: a map has none of its own."""
    marker = {"symbol": "square", "size": 14, "color": colour}
    return trace(series, [None], [None], "markers", marker=marker, hoverinfo="skip")


def pale(colour: str) -> str:
    """Mix a colour with white.

    >>> pale("#000000")
    '#999999'
    """
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{math.ceil(255 * PALE + (1 - PALE) * p):02x}" for p in parts)


def _cell(found: Winner | None) -> Marked | str:
    return MISSING if found is None else Marked(str(found), TIE if found.tied else "")


def _written(found: Winner | None) -> str:
    if found is None:
        return ""
    if found.tied:
        return f"{TIE}<br>×{found.margin:.3g}"
    name = in_plot(found.series)
    if not found.runner_up:
        return name
    return f"{name}<br>×{found.margin:.3g}{'' if found.told_apart else ' ≈'}"


def _told(found: Winner | None, x: str, y: str) -> str:
    if found is None:
        return "nobody"
    lines = [f"<b>{in_plot(found.series)}</b>", f"error {shown(found.loss)}"]
    if found.tied:
        lines.insert(0, f"<b>{TIE}</b>")
    if found.runner_up:
        lines.append(f"next {in_plot(found.runner_up)}, ×{found.margin:.4g}")
        if not found.told_apart:
            lines.append("not told apart by the 95 % intervals")
    return "<br>".join([*lines, in_plot(f"at {x}, {y}")])
