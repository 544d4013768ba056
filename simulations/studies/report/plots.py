"""The plots of a study: errors against an axis, and of each mechanism; and how all plots look.

Traces and layouts are plain data as plotly.js spells them. Series differ by colour (Okabe and
Ito's, which colour-blind readers can tell apart), by marker and by dashes, for black and white.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from simulations.reporting.numbers import shown
from simulations.reporting.page import Plot, in_plot
from simulations.reporting.pictures import COLOURS
from simulations.studies.records.losses import as_shares
from simulations.studies.report.study import Point, View, short, title_of, words

MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "8px 2px", "2px 6px")

MOST_SETTINGS = 8_000
"""Points of a study's page: each has a text of its own to hover over."""

FEW = 10
"""Values of an axis up to which each has its tick."""

DIGITS = 8
INTERVALS = (
    "Markers: measured means with 95 % intervals over the seeds; where an interval reaches 0, only "
    "its upper half is drawn. "
)
READ = "Click a name in the legend to hide or show it, drag to zoom, double-click to go back."


def look(index: int) -> dict[str, Any]:
    """Return colour, marker and dashes of series number ``index``."""
    return {
        "colour": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[(index + index // len(COLOURS)) % len(MARKERS)],
        "dash": DASHES[index % len(DASHES)],
    }


def layout(x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    """Return the common layout with two axes."""
    axis = {
        "gridcolor": "#e5eaee",
        "linecolor": "#8795a1",
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": "#8795a1",
        "automargin": True,
        "exponentformat": "power",
    }
    return {
        "font": {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "size": 13},
        "paper_bgcolor": "#fff",
        "plot_bgcolor": "#fff",
        "margin": {"l": 72, "r": 16, "t": 8, "b": 56},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "bgcolor": "#fff", "font": {"color": "#1b2733"}},
        "legend": {"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
        "xaxis": {**axis, **x},
        "yaxis": {**axis, **y},
    }


def scale(values: Sequence[float], title: str, least: float = 4.0) -> dict[str, Any]:
    """Choose an axis: logarithmic where positive values spread by ``least`` or more."""
    found: dict[str, Any] = {"title": {"text": in_plot(title)}, "type": "linear"}
    if values and min(values) > 0:
        ratio = max(values) / min(values)
        if ratio >= least:
            found |= {"type": "log", "dtick": 1 if ratio > 300 else "D2"}
            if min(values) >= 1e-4 and max(values) < 1e6:
                found |= {"tickformat": ",~g"}
    return found


def buttons(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Name the axes that have something to show on a logarithmic scale."""
    return "".join(n for n, v in (("x", xs), ("y", ys)) if any(w > 0 for w in v))


def rounded(value: float | None) -> float | None:
    """Round a number for the page; what is not finite has no place in a plot."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def trace(
    name: str,
    x: Sequence[Any],
    y: Sequence[Any],
    mode: str,
    *,
    part: int | None = None,
    theory: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Return points or a line; ``part`` is the slice that it belongs to, None for all."""
    meta = {"slice": part, "theory": theory}
    usual = {"type": "scatter", "name": in_plot(name), "x": x, "y": y, "mode": mode, "meta": meta}
    return usual | more


def error_plot(view: View, x: str, by: str, y_title: str, title: str, most: int) -> Plot:
    """Draw losses against an axis, with theory's curves.

    Parameters
    ----------
    view : View
    x : str
        A numeric axis.
    by : str
        Another axis that tells the lines apart; empty for the series of the view.
    y_title, title : str
    most : int
        Points up to which slices are drawn.
    """
    if short(x) == "n_users":
        view, y_title = _shares(view, y_title)
    slices = view.slices((x, by))
    if by and len(view.series) > 1:
        slices = [{"series": s, **at} for s in view.series for at in slices]
    traces: list[dict[str, Any]] = []
    names: list[str] = []
    drawn = 0
    for at in slices:
        rest = {k: v for k, v in at.items() if k != "series"}
        points = [p for p in view.where(rest) if at.get("series", p.series) == p.series]
        points = [p for p in points if p.mean is not None]
        if not points or (drawn and drawn + len(points) > most):
            continue
        drawn += len(points)
        lines = list(view.axes[by]) if by else list(view.series)
        for index, line in enumerate(lines):
            own = [p for p in points if (p.at[by] if by else p.series) == line]
            name = words({by: line}) if by else str(line)
            traces += _line(sorted(own, key=lambda p: p.at[x]), x, name, index, len(names))
        told = ", ".join([*([str(at["series"])] if "series" in at else []), words(rest)])
        names.append(told.strip(", "))
    xs = [float(v) for v in view.axes[x]]
    ys = [float(v) for t in traces for v in t["y"] if v is not None]
    horizontal = scale(xs, title_of(x))
    if len(xs) <= FEW:
        horizontal |= {"tickvals": xs, "ticktext": [f"{v:,g}" for v in xs]}
    caption = INTERVALS
    if any(t["meta"]["theory"] for t in traces):
        caption += "Lines: theory. "
    left = len(slices) - len(names)
    if left > 0:
        caption += f"{left:,} of {len(slices):,} slices are empty or left out for their size. "
    return Plot(
        title,
        traces,
        layout(horizontal, scale(ys, y_title, 3.0)),
        caption + READ,
        buttons(xs, ys),
        tuple(names),
    )


def _shares(view: View, y_title: str) -> tuple[View, str]:
    """Put relative errors in the place of losses: those in counts grow with the users."""
    points = []
    for point in view.points:
        shares = as_shares(point.records)
        if shares is None and point.mean is not None:
            return view, y_title
        points.append(point if shares is None else replace(point, records=tuple(shares)))
    return replace(view, points=tuple(points)), "error relative to the answer's size"


def _line(
    points: Sequence[Point], x: str, name: str, index: int, part: int
) -> list[dict[str, Any]]:
    """Return the traces of one line: theory's, then what was measured."""
    if not points:
        return []
    seen, xs = look(index), [p.at[x] for p in points]
    predicted = [rounded(p.predicted) for p in points]
    told = any(v is not None for v in predicted)
    common: dict[str, Any] = {"part": part, "legendgroup": f"{part}-{index}"}
    line = {"color": seen["colour"], "dash": seen["dash"]}
    measured = trace(
        name,
        xs,
        [rounded(p.mean) for p in points],
        "markers" if told else "lines+markers",
        marker={"color": seen["colour"], "symbol": seen["marker"], "size": 9},
        line=line | {"width": 1},
        error_y=bars([p.half_width for p in points], seen["colour"], [p.mean for p in points]),
        hovertext=[_hover(p, name, q, x) for p, q in zip(points, [None, *points], strict=False)],
        hoverinfo="text",
        **common,
    )
    if not told:
        return [measured]
    hidden: dict[str, Any] = {"showlegend": False, "hoverinfo": "skip"}
    style: dict[str, Any] = {"line": line | {"width": 2}, "theory": True}
    return [trace(name, xs, predicted, "lines", **style, **hidden, **common), measured]


def bars(
    halves: Sequence[float | None], colour: str, around: Sequence[float | None] = ()
) -> dict[str, Any]:
    """Return error bars; an interval ``around`` a loss that reaches 0 loses its lower half."""
    upper = [rounded(h) for h in halves]
    lower: dict[str, Any] = {}
    if any(h is not None and y is not None and h >= y for h, y in zip(upper, around, strict=False)):
        cut = [
            0.0 if h is not None and y is not None and h >= y else h
            for h, y in zip(upper, around, strict=True)
        ]
        lower = {"symmetric": False, "arrayminus": cut}
    return {
        "type": "data",
        "array": upper,
        **lower,
        "color": colour,
        "thickness": 1.2,
        "width": 4,
        "visible": any(h is not None for h in halves),
    }


def _hover(point: Point, name: str, before: Point | None, x: str) -> str:
    """Say all about a point, with the slope from the one before on logarithmic axes."""
    half = point.half_width
    lines = [f"<b>{in_plot(name)}</b>"]
    if point.series not in name:
        lines.append(in_plot(point.series))
    if point.at:
        lines.append(in_plot(words(point.at)))
    lines.append(f"measured {shown(point.mean)}" + ("" if half is None else f" ± {half:.2g}"))
    if point.predicted is not None:
        ratio = point.ratio
        lines.append(
            f"theory {shown(point.predicted)}" + ("" if ratio is None else f", ratio {ratio:.3g}")
        )
    if before is not None and point.mean and before.mean:
        steps = (point.at[x], before.at[x])
        if min(steps) > 0 and point.mean > 0 and before.mean > 0 and steps[0] != steps[1]:
            slope = math.log(point.mean / before.mean) / math.log(steps[0] / steps[1])
            lines.append(f"log-log slope from the left {slope:.2f}")
    runs = ", ".join(f"{n} {s}" for s, n in sorted(point.statuses.items()))
    return "<br>".join([*lines, f"runs: {runs}"])


def ranking_plot(view: View, y_title: str, title: str, order: Sequence[str] = ()) -> Plot:
    """Draw one loss per series, the best at the top: a comparison at one setting."""
    points = [p for p in view.points if p.mean is not None]
    places = {name: i for i, name in enumerate(order)}
    points.sort(key=lambda p: (places.get(p.series, len(places)), p.mean))
    traces: list[dict[str, Any]] = []
    for index, p in enumerate(points):
        seen, row = look(index), [in_plot(p.series)]
        common: dict[str, Any] = {
            "legendgroup": p.series,
            "hovertext": [_hover(p, p.series, None, "")],
            "hoverinfo": "text",
        }
        mark = {"color": seen["colour"], "symbol": seen["marker"], "size": 11}
        spread = bars([p.half_width], seen["colour"], [p.mean])
        own: dict[str, Any] = {"error_x": spread, "marker": mark}
        traces.append(trace(p.series, [rounded(p.mean)], row, "markers", **own, **common))
        if p.predicted is not None:
            mark = {"color": "#000", "symbol": "line-ns-open", "size": 18, "line": {"width": 2}}
            own = {"theory": True, "marker": mark, "showlegend": False}
            traces.append(trace(p.series, [rounded(p.predicted)], row, "markers", **own, **common))
    xs = [float(v) for t in traces for v in t["x"] if v is not None]
    positive = [v for v in xs if v > 0]
    caption = INTERVALS
    if any(t["meta"]["theory"] for t in traces):
        caption += "Upright strokes: theory. "
    if len(positive) < len(xs):
        caption += "An error of 0 has no place on a logarithmic axis. "
    rows = {"type": "category", "autorange": "reversed", "gridcolor": "#eef2f5"}
    axes = layout(scale(positive, y_title, 3.0), rows)
    log, height = "x" if positive else "", 120 + 34 * len(points)
    return Plot(title, traces, axes, caption + READ, log, height=height)
