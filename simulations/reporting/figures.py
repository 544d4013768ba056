"""Figures of estimates: readable in black and white, units on the axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.model.display import Display
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import display_of
from simulations.reporting.numbers import clipped
from simulations.reporting.pictures import BLUE, GREY, ORANGE, picture
from simulations.reporting.statistics import NORMAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LABELS = 40
MOST_LETTERS = 24
INTERVAL = "± 1.96 standard errors"
TRUTH = "truth (NOT PRIVATE)"


@dataclass(frozen=True)
class _Series:
    """What is drawn: values, half the width of their intervals, and the truth, where known."""

    value: Array
    half: Array | None
    truth: Array | None

    def at(self, places: Array) -> _Series:
        """Choose entries, in this order."""
        half, truth = (None if a is None else a[places] for a in (self.half, self.truth))
        return _Series(self.value[places], half, truth)


def draw_estimate(
    estimate: Estimate,
    truth: Array | None,
    protocol: Protocol,
    path: str | Path,
    not_private: Sequence[str] = (),
) -> None:
    """Draw an estimate with its intervals, over the truth where it is known, to a PNG file."""
    with picture(path, 8, 2.2 if np.size(np.asarray(estimate.value)) == 1 else 4.2) as figure:
        draw_on(figure, estimate, truth, protocol, not_private)


def draw_on(
    figure: Figure,
    estimate: Estimate,
    truth: Array | None,
    protocol: Protocol,
    not_private: Sequence[str] = (),
) -> None:
    """Draw on a figure as :func:`draw_estimate`; the protocol's class says what the axes are."""
    if estimate.value is None:
        raise ValueError(f"a {estimate.status} estimate has nothing to draw")
    value = np.atleast_1d(np.asarray(estimate.value, dtype=np.float64))
    true = None if truth is None else np.atleast_1d(np.asarray(truth, dtype=np.float64))
    half = None
    if estimate.stderr is not None:
        half = NORMAL * np.broadcast_to(np.asarray(estimate.stderr, dtype=np.float64), value.shape)
    series = _Series(value, half, true)
    display = protocol.display or display_of(protocol.target)
    display = display if display.label else replace(display, label=protocol.target)
    axes = figure.subplots()
    if not len(value):
        axes.text(0.5, 0.5, "nothing was released", ha="center")
        axes.set_axis_off()
    elif len(value) == 1:
        _draw_number(axes, series, display)
        what = "" if estimate.keys is None else f"{clipped(estimate.keys[0], MOST_LETTERS)}: "
        axes.set_xlabel(what + display.label)
    elif display.form == "items":
        _draw_items(axes, series, estimate, display)
    elif display.form == "cells":
        _draw_cells(axes, series, display)
    elif display.form == "quantiles" and protocol.positions is not None:
        _draw_quantiles(axes, series, protocol, display)
    else:
        _draw_coordinates(axes, series, protocol, display)
    title = [f"{protocol.name}: {protocol.guarantee}"]
    title += textwrap.wrap("; ".join(f"NOT PRIVATE: {x}" for x in not_private), 120)
    axes.set_title("\n".join(title), loc="left", fontsize=9)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False)


def _interval(display: Display) -> str:
    """Say what the intervals are, and what they leave out."""
    return f"{INTERVAL} {display.interval}".rstrip()


def _draw_number(axes: Any, series: _Series, display: Display) -> None:
    label = "estimate" if series.half is None else f"estimate {_interval(display)}"
    axes.errorbar(series.value, [0], xerr=series.half, fmt="o", color=BLUE, capsize=4, label=label)
    if series.truth is not None:
        axes.axvline(float(series.truth[0]), color=ORANGE, linestyle="--", label=TRUTH)
    axes.set_yticks([])
    axes.margins(x=0.4)


def _draw_items(axes: Any, series: _Series, estimate: Estimate, display: Display) -> None:
    """Draw counts or shares, the largest first."""
    keys, truth = estimate.keys, series.truth
    order = np.argsort(-(series.value if truth is None else truth), kind="stable")
    x = np.arange(1, len(order) + 1)
    _draw_series(axes, x, series.at(order), _interval(display))
    _scale(axes, series)
    axes.set_ylabel(display.label)
    if keys is not None and len(x) <= MOST_LABELS:
        names = [clipped(keys[i], MOST_LETTERS) for i in order.tolist()]
        axes.set_xticks(x, names, rotation=90)
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        what = "estimate" if truth is None else f"true {display.rank}"
        axes.set_xlabel(f"{display.entry}, by rank of its {what}")


def _draw_coordinates(axes: Any, series: _Series, protocol: Protocol, display: Display) -> None:
    """Draw a vector over its coordinates, of a sparse one those that count."""
    from matplotlib.ticker import MaxNLocator

    d = len(series.value)
    at, note, places = np.arange(d), "", protocol.positions
    sparsity = protocol.n_nonzero
    if 0 < sparsity < d:
        drawn, note = series.value != 0, ": those of the estimate that are not 0"
        if series.truth is not None:
            drawn[np.argsort(-np.abs(series.truth), kind="stable")[:sparsity]] = True
            note += f", and the {sparsity} largest of the truth"
        at = np.flatnonzero(drawn)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set_xlim(-0.02 * d - 0.5, 1.02 * d - 0.5)
    _draw_series(axes, at if places is None else places[at], series.at(at), _interval(display))
    if places is None:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"{display.entry}{note}")
    axes.set_ylabel(display.label)


def _draw_series(axes: Any, x: Array, series: _Series, interval: str) -> None:
    """Draw points with bars where they are few, and with a band where they are many."""
    few, value, half = len(x) <= MOST_LABELS, series.value, series.half
    if series.truth is not None:
        shape = "_" if few else "-"
        axes.plot(x, series.truth, shape, color=ORANGE, lw=1.5, ms=11, mew=2, label=TRUTH, zorder=2)
    if half is not None and few:
        bar: dict[str, Any] = {"fmt": "none", "ecolor": GREY, "capsize": 2}
        axes.errorbar(x, value, yerr=half, zorder=3, label=interval, **bar)
    elif half is not None:
        _draw_band(axes, x, series, interval)
    axes.plot(x, value, ".", color=BLUE, markersize=5, label="estimate", zorder=4)


def _draw_band(axes: Any, x: Array, series: _Series, interval: str, **more: Any) -> None:
    low, high = series.value - series.half, series.value + series.half
    style = {"color": GREY, "alpha": 0.25, "lw": 0, "zorder": 1}
    axes.fill_between(x, low, high, label=interval, **style, **more)


def _draw_cells(axes: Any, series: _Series, display: Display) -> None:
    """Draw a function on equal cells of [0, 1]."""
    middle = (np.arange(len(series.value)) + 0.5) / len(series.value)
    if series.half is not None:
        _draw_band(axes, middle, series, _interval(display), step="mid")
    steps: dict[str, Any] = {"drawstyle": "steps-mid"}
    if series.truth is not None:
        axes.plot(middle, series.truth, "--", color=ORANGE, label=TRUTH, **steps)
    axes.plot(middle, series.value, color=BLUE, label="estimate", **steps)
    axes.set_xlim(0, 1)
    axes.set_xlabel(display.entry)
    axes.set_ylabel(display.label)


def _draw_quantiles(axes: Any, series: _Series, protocol: Protocol, display: Display) -> None:
    """Draw a cumulative distribution function through its quantiles: levels over values."""
    levels = np.asarray(protocol.positions, dtype=np.float64)
    few = len(levels) <= MOST_LABELS
    if series.truth is not None:
        mark = "D-" if few else "-"
        axes.plot(
            series.truth,
            levels,
            mark,
            color=ORANGE,
            lw=1.2,
            ms=7,
            mfc="none",
            label=TRUTH,
            zorder=2,
        )
    axes.plot(
        series.value,
        levels,
        "o--" if few else "--",
        color=BLUE,
        lw=1,
        ms=4,
        label="estimate",
        zorder=3,
    )
    axes.set_ylim(0, 1)
    axes.set_xlabel(display.label)
    axes.set_ylabel(f"{display.entry}: share at or below")


def _scale(axes: Any, series: _Series) -> None:
    """Choose the axis of counts or shares: linear, logarithmic, or logarithmic above the noise."""
    value, truth, half = series.value, series.truth, series.half
    shown = value if truth is None else np.concatenate([value, truth])
    top = float(shown.max())
    if top > 50 * max(float(np.median(shown)), 1e-12):
        if shown.min() > 0:
            axes.set_yscale("log")
        else:
            noise = 1.0 if half is None else float(np.median(half))
            axes.set_yscale("symlog", linthresh=max(noise, 1e-3 * top, 1e-12))
    # after the scale, which brings a formatter of its own: powers, set as mathematics
    axes.yaxis.set_major_formatter("{x:,.10g}")
    if axes.get_yscale() != "log" and (value >= 0).all():
        axes.set_ylim(bottom=0)
