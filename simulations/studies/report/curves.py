"""The plots of a run's estimate and of an experiment's curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from simulations.reporting.page import Plot, in_plot
from simulations.reporting.pictures import COLOURS, GREY
from simulations.reporting.statistics import NORMAL
from simulations.studies.report.data import thin
from simulations.studies.report.plots import (
    FEW,
    READ,
    bars,
    buttons,
    layout,
    look,
    rounded,
    scale,
    trace,
)
from simulations.studies.report.study import is_number

MOST_POINTS = 50_000
"""Points of a page; what is more is thinned, with a note."""


def estimate_plot(frame: pl.DataFrame, y_title: str, title: str) -> Plot:
    """Draw a released estimate by rank, with the intervals of its noise."""
    frame = frame.sort("estimate", descending=True, maintain_order=True)
    chosen = thin(len(frame), MOST_POINTS)
    part = frame[chosen.tolist()]
    values = [rounded(v) for v in part["estimate"].to_list()]
    ranks = (chosen + 1).tolist()
    drawn = trace(
        "estimate",
        ranks,
        values,
        "markers",
        text=[in_plot(k) for k in part["key"].cast(pl.String).to_list()],
        hovertemplate="<b>%{text}</b><br>rank %{x:,}<br>estimate %{y:,.5g}<extra></extra>",
        marker={"color": COLOURS[0], "size": 8 if len(ranks) <= 100 else 4},
    )
    caption = ""
    if "stderr" in frame.columns:
        errors = [NORMAL * v for v in part["stderr"].to_list()]
        drawn["error_y"] = bars(errors, GREY) | {"width": 3 if len(ranks) <= 100 else 0}
        if (
            len(set(errors)) == 1
        ):  # the usual case; a number each would make the page a tenth longer
            del drawn["error_y"]["array"]
            drawn["error_y"] |= {"type": "constant", "value": rounded(errors[0])}
        caption = "Bars: ± 1.96 standard errors of the noise; clipping bias apart. "
    if len(chosen) < len(frame):
        caption += f"{len(chosen):,} of {len(frame):,} points are drawn, those of the top ranks. "
    seen = [v for v in values if v is not None]
    positive = [v for v in seen if v > 0]
    vertical = scale(seen, y_title, 50.0)
    few = len(ranks) <= FEW * 4
    horizontal: dict[str, Any] = {"title": {"text": "rank of the estimate"}, "type": "linear"}
    if few:
        horizontal = {"tickvals": ranks, "ticktext": [t[:24] for t in drawn["text"]]}
        horizontal |= {"title": {"text": "item, by its estimate"}, "type": "linear"}
    elif len(ranks) > 500:
        horizontal |= {"type": "log", "dtick": 1}
    log = ("" if few else "x") + ("y" if positive else "")
    return Plot(title, [drawn], layout(horizontal, vertical), caption, log)


def curve_plots(curves: pl.DataFrame, figure: Mapping[str, Any]) -> list[Plot]:
    """Draw an experiment's curves, a plot per panel.

    Parameters
    ----------
    curves : polars.DataFrame
        Columns panel, label, x, y, stderr.
    figure : mapping
        Axes of the experiment's figure: "x", "y", "log", "panels" (titles of y axes of their own)
        and "lines" (labels that are lines without markers). Empty where the folder has none.
    """
    labels = curves["label"].unique(maintain_order=True).to_list()
    n_curves = len(curves.select("panel", "label").unique())
    most = max(MOST_POINTS // max(n_curves, 1), 2)
    plots = []
    for panel in curves["panel"].unique(maintain_order=True).to_list():
        rows, traces, thinned = curves.filter(pl.col("panel") == panel), [], 0
        for label in rows["label"].unique(maintain_order=True).to_list():
            own = rows.filter(pl.col("label") == label)
            chosen = thin(len(own), most)
            thinned += len(own) - len(chosen)
            line = label in figure.get("lines", ())
            traces.append(_curve(own[chosen.tolist()], label, labels.index(label), line))
        xs = [v for t in traces for v in t["x"] if v is not None]
        ys = [v for t in traces for v in t["y"] if v is not None]
        log, y_title = str(figure.get("log", "")), str(figure.get("y", "y"))
        axes = [
            scale(xs, str(figure.get("x", "x"))),
            scale(ys, str(figure.get("panels", {}).get(panel, y_title))),
        ]
        for letter, axis, values in zip("xy", axes, (xs, ys), strict=True):
            if "log" in figure:
                positive = [v for v in values if v > 0]
                axis |= {"type": "linear"}
                if letter in log and positive:
                    axis |= scale(positive, "", 1.0) | {"title": axis["title"]}
        caption = (
            "Bars: standard errors, unless the legend says otherwise. "
            if any("error_y" in t for t in traces)
            else ""
        )
        if thinned:
            caption += f"{thinned:,} points are left out for the page's size. "
        plots.append(Plot(panel, traces, layout(*axes), caption + READ, buttons(xs, ys)))
    return plots


def _curve(rows: pl.DataFrame, label: str, index: int, line: bool) -> dict[str, Any]:
    seen = look(index)
    errors = [e if e is not None and is_number(e) and e > 0 else None for e in rows["stderr"]]
    marked = not line and len(rows) <= 60
    x, y = ([rounded(v) for v in rows[name].to_list()] for name in ("x", "y"))
    more: dict[str, Any] = (
        {"error_y": bars(errors, seen["colour"])} if any(e is not None for e in errors) else {}
    )
    return trace(
        label,
        x,
        y,
        "lines+markers" if marked else "lines",
        theory=line,
        line={"color": seen["colour"], "dash": seen["dash"], "width": 1.6},
        marker={"color": seen["colour"], "symbol": seen["marker"], "size": 7},
        hovertemplate="x %{x:,.5g}<br>y %{y:.5g}",
        **more,
    )
