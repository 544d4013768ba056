"""Figures of estimates: readable in black and white, units on the axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fedhist.protocol import Estimate, Protocol
from fedhist.query import Array

WIDTH = 1.96
MOST_LABELS = 40
INTERVAL = "± 1.96 standard errors of the noise (clipping bias apart)"
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#555555"
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""


def draw_estimate(
    estimate: Estimate,
    truth: Array | None,
    protocol: Protocol,
    path: str | Path,
    not_private: Sequence[str] = (),
) -> None:
    """Draw an estimate with its intervals, over the truth where it is known, to a PNG file."""
    if estimate.value is None:
        raise ValueError(f"a {estimate.status} estimate has nothing to draw")
    value = np.atleast_1d(np.asarray(estimate.value, dtype=np.float64))
    half = None
    if estimate.stderr is not None:
        half = WIDTH * np.broadcast_to(np.asarray(estimate.stderr, dtype=np.float64), value.shape)
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(8, 2.2 if len(value) == 1 else 4.2), layout="constrained")
        axes = figure.subplots()
        if not len(value):
            axes.text(0.5, 0.5, "nothing was released", ha="center")
            axes.set_axis_off()
        elif len(value) == 1 and estimate.keys is None:
            _draw_number(axes, value, half, truth)
            axes.set_xlabel(f"{protocol.target} (units of the samples)")
        else:
            _draw_vector(axes, value, half, truth, estimate)
        title = [f"{protocol.name}: {protocol.guarantee}"]
        title += textwrap.wrap("; ".join(f"NOT PRIVATE: {x}" for x in not_private), 120)
        axes.set_title("\n".join(title), loc="left", fontsize=9)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False)
        figure.savefig(path, dpi=150)


def _draw_number(axes: Any, value: Array, half: Array | None, truth: Array | None) -> None:
    axes.errorbar(
        value,
        [0],
        xerr=half,
        fmt="o",
        color=BLUE,
        capsize=4,
        label="estimate ± 1.96 standard errors",
    )
    if truth is not None:
        x = float(np.atleast_1d(truth)[0])
        axes.axvline(x, color=ORANGE, linestyle="--", label="truth (NOT PRIVATE)")
    axes.set_yticks([])
    axes.margins(x=0.4)


def _draw_vector(
    axes: Any, value: Array, half: Array | None, truth: Array | None, estimate: Estimate
) -> None:
    order = np.argsort(-(value if truth is None else np.asarray(truth)), kind="stable")
    x = np.arange(1, len(value) + 1)
    labelled = len(value) <= MOST_LABELS
    if truth is not None:
        shape = "-" if not labelled else "_"
        axes.plot(
            x,
            np.asarray(truth)[order],
            shape,
            color=ORANGE,
            lw=1.5,
            ms=11,
            mew=2,
            label="truth (NOT PRIVATE)",
            zorder=2,
        )
    shown = value[order]
    if half is not None and labelled:
        axes.errorbar(
            x, shown, yerr=half[order], fmt="none", ecolor=GREY, capsize=2, zorder=3, label=INTERVAL
        )
    elif half is not None:
        low, high = shown - half[order], shown + half[order]
        axes.fill_between(x, low, high, color=GREY, alpha=0.25, lw=0, label=INTERVAL, zorder=1)
    axes.plot(x, shown, ".", color=BLUE, markersize=5, label="estimate", zorder=4)
    _scale(axes, value, half, truth)
    axes.set_ylabel("count (all users)")
    if estimate.keys is not None and labelled:
        axes.set_xticks(x, [_short(estimate.keys[int(i)]) for i in order], rotation=90)
    else:
        axes.set_xscale("log")
        axes.set_xlabel("item, by rank of its " + ("estimate" if truth is None else "true count"))


def _scale(axes: Any, value: Array, half: Array | None, truth: Array | None) -> None:
    """Choose the count axis: linear, logarithmic, or logarithmic above the noise."""
    shown = value if truth is None else np.concatenate([value, np.asarray(truth, np.float64)])
    top = float(shown.max())
    axes.yaxis.set_major_formatter("{x:,.0f}" if top >= 10 else "{x:g}")
    if top > 50 * max(float(np.median(shown)), 1e-12):
        if shown.min() > 0:
            axes.set_yscale("log")
            return
        noise = 1.0 if half is None else float(np.median(half))
        axes.set_yscale("symlog", linthresh=max(noise, 1e-3 * top, 1e-12))
    if (value >= 0).all():
        axes.set_ylim(bottom=0)


def _short(key: str, most: int = 24) -> str:
    return key if len(key) <= most else key[: most - 1] + "…"
