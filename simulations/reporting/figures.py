"""Figures of estimates: readable in black and white, units on the axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedhist.base.arrays import Array
from fedhist.model.display import Display
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import display_of

WIDTH = 1.96
MOST_LABELS = 40
INTERVAL = "± 1.96 standard errors"
TRUTH = "truth (NOT PRIVATE)"
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
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        estimate_figure(estimate, truth, protocol, not_private).savefig(path, dpi=150)


def estimate_figure(
    estimate: Estimate,
    truth: Array | None,
    protocol: Protocol,
    not_private: Sequence[str] = (),
) -> Figure:
    """Make the figure of :func:`draw_estimate`; the protocol's class says what the axes are."""
    if estimate.value is None:
        raise ValueError(f"a {estimate.status} estimate has nothing to draw")
    value = np.atleast_1d(np.asarray(estimate.value, dtype=np.float64))
    true = None if truth is None else np.atleast_1d(np.asarray(truth, dtype=np.float64))
    half = None
    if estimate.stderr is not None:
        half = WIDTH * np.broadcast_to(np.asarray(estimate.stderr, dtype=np.float64), value.shape)
    display = protocol.display or display_of(protocol.target)
    display = display if display.label else replace(display, label=protocol.target)
    number = len(value) == 1
    figure = Figure(figsize=(8, 2.2 if number else 4.2), layout="constrained")
    axes = figure.subplots()
    if not len(value):
        axes.text(0.5, 0.5, "nothing was released", ha="center")
        axes.set_axis_off()
    elif number:
        _draw_number(axes, value, half, true, display)
        what = "" if estimate.keys is None else f"{_short(estimate.keys[0])}: "
        axes.set_xlabel(what + display.label)
    elif display.form == "items":
        _draw_items(axes, value, half, true, estimate, display)
    elif display.form == "cells":
        _draw_cells(axes, value, half, true, display)
    else:
        _draw_coordinates(axes, value, half, true, protocol, display)
    title = [f"{protocol.name}: {protocol.guarantee}"]
    title += textwrap.wrap("; ".join(f"NOT PRIVATE: {x}" for x in not_private), 120)
    axes.set_title("\n".join(title), loc="left", fontsize=9)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False)
    return figure


def _interval(display: Display) -> str:
    """Say what the intervals are, and what they leave out."""
    return f"{INTERVAL} {display.interval}".rstrip()


def _draw_number(
    axes: Any, value: Array, half: Array | None, truth: Array | None, display: Display
) -> None:
    label = "estimate" if half is None else f"estimate {_interval(display)}"
    axes.errorbar(value, [0], xerr=half, fmt="o", color=BLUE, capsize=4, label=label)
    if truth is not None:
        axes.axvline(float(truth[0]), color=ORANGE, linestyle="--", label=TRUTH)
    axes.set_yticks([])
    axes.margins(x=0.4)


def _draw_items(
    axes: Any,
    value: Array,
    half: Array | None,
    truth: Array | None,
    estimate: Estimate,
    display: Display,
) -> None:
    """Draw counts or shares, the largest first."""
    order = np.argsort(-(value if truth is None else truth), kind="stable")
    x = np.arange(1, len(value) + 1)
    _draw_series(
        axes,
        x,
        value[order],
        None if half is None else half[order],
        None if truth is None else truth[order],
        _interval(display),
    )
    _scale(axes, value, half, truth)
    axes.set_ylabel(display.label)
    if estimate.keys is not None and len(value) <= MOST_LABELS:
        axes.set_xticks(x, [_short(estimate.keys[int(i)]) for i in order], rotation=90)
    else:
        axes.set_xscale("log")
        what = "estimate" if truth is None else f"true {display.rank}"
        axes.set_xlabel(f"{display.entry}, by rank of its {what}")


def _draw_coordinates(
    axes: Any,
    value: Array,
    half: Array | None,
    truth: Array | None,
    protocol: Protocol,
    display: Display,
) -> None:
    """Draw a vector over its coordinates, of a sparse one those that count."""
    at, note, places = np.arange(len(value)), "", protocol.positions
    sparsity = protocol.n_nonzero
    if 0 < sparsity < len(value):
        shown, note = value != 0, ": those of the estimate that are not 0"
        if truth is not None:
            shown[np.argsort(-np.abs(truth), kind="stable")[:sparsity]] = True
            note += f", and the {sparsity} largest of the truth"
        at = np.flatnonzero(shown)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set_xlim(-0.02 * len(value) - 0.5, 1.02 * len(value) - 0.5)
    _draw_series(
        axes,
        at if places is None else places[at],
        value[at],
        None if half is None else half[at],
        None if truth is None else truth[at],
        _interval(display),
    )
    if places is None:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"{display.entry}{note}")
    axes.set_ylabel(display.label)


def _draw_series(
    axes: Any, x: Array, value: Array, half: Array | None, truth: Array | None, interval: str
) -> None:
    """Draw points with bars where they are few, and with a band where they are many."""
    few = len(value) <= MOST_LABELS
    if truth is not None:
        shape = "_" if few else "-"
        axes.plot(x, truth, shape, color=ORANGE, lw=1.5, ms=11, mew=2, label=TRUTH, zorder=2)
    if half is not None and few:
        axes.errorbar(
            x, value, yerr=half, fmt="none", ecolor=GREY, capsize=2, zorder=3, label=interval
        )
    elif half is not None:
        low, high = value - half, value + half
        axes.fill_between(x, low, high, color=GREY, alpha=0.25, lw=0, label=interval, zorder=1)
    axes.plot(x, value, ".", color=BLUE, markersize=5, label="estimate", zorder=4)


def _draw_cells(
    axes: Any, value: Array, half: Array | None, truth: Array | None, display: Display
) -> None:
    """Draw a function on equal cells of [0, 1]."""
    middle = (np.arange(len(value)) + 0.5) / len(value)
    if half is not None:
        axes.fill_between(
            middle,
            value - half,
            value + half,
            step="mid",
            color=GREY,
            alpha=0.25,
            lw=0,
            label=_interval(display),
        )
    if truth is not None:
        axes.plot(middle, truth, "--", drawstyle="steps-mid", color=ORANGE, label=TRUTH)
    axes.plot(middle, value, drawstyle="steps-mid", color=BLUE, label="estimate")
    axes.set_xlim(0, 1)
    axes.set_xlabel(display.entry)
    axes.set_ylabel(display.label)


def _scale(axes: Any, value: Array, half: Array | None, truth: Array | None) -> None:
    """Choose the axis of counts or shares: linear, logarithmic, or logarithmic above the noise."""
    shown = value if truth is None else np.concatenate([value, truth])
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
