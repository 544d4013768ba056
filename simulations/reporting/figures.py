"""Figures of estimates: the estimate in the hue of its trust, the truth in black, units on axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.model.display import Display
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import display_of
from simulations.reporting.numbers import clipped
from simulations.reporting.pictures import BLACK, GREY, picture, trust_look
from simulations.reporting.statistics import NORMAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LABELS = 40
MOST_LETTERS = 24
INTERVAL = "± 1.96 standard errors"
TRUTH = "truth (NOT PRIVATE)"


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
    display = protocol.display or display_of(protocol.target)
    display = display if display.label else replace(display, label=protocol.target)
    colour = trust_look(protocol.guarantee.trust.value)[0]
    axes = figure.subplots()
    series = _Series(axes, value, half, true, colour, f"{INTERVAL} {display.interval}".rstrip())
    if not len(value):
        axes.text(0.5, 0.5, "nothing was released", ha="center")
        axes.set_axis_off()
    elif len(value) == 1:
        series.draw_number()
        what = "" if estimate.keys is None else f"{clipped(estimate.keys[0], MOST_LETTERS)}: "
        axes.set_xlabel(what + display.label)
    elif display.form == "quantiles" and protocol.positions is not None:
        series.draw_over(np.asarray(protocol.positions, dtype=np.float64))
        axes.set_xlabel(display.label)
        axes.set_ylabel(f"{display.entry}: share at or below")
    else:
        axes.set_ylabel(display.label)
        if display.form == "items":
            _draw_items(series, estimate, display)
        elif display.form == "cells":
            series.draw_steps((np.arange(len(value)) + 0.5) / len(value))
            axes.set_xlabel(display.entry)
        else:
            _draw_coordinates(series, protocol, display)
    title = [f"{protocol.name}: {protocol.guarantee}"]
    title += textwrap.wrap("; ".join(f"NOT PRIVATE: {x}" for x in not_private), 120)
    axes.set_title("\n".join(title), loc="left", fontsize=9)
    if axes.get_legend_handles_labels()[1]:
        axes.legend()


class _Series:
    """What is drawn: values, half the width of their intervals, and the truth, where known."""

    def __init__(
        self,
        axes: Any,
        value: Array,
        half: Array | None,
        truth: Array | None,
        colour: str,
        interval: str,
    ) -> None:
        self.axes, self.value, self.half, self.truth = axes, value, half, truth
        self.colour, self.interval = colour, interval

    def draw_number(self) -> None:
        """Draw a single number with its interval."""
        label = "estimate" if self.half is None else f"estimate {self.interval}"
        look: Any = {"fmt": "o", "color": self.colour, "capsize": 4, "label": label}
        self.axes.errorbar(self.value, [0], xerr=self.half, **look)
        if self.truth is not None:
            self.axes.axvline(float(self.truth[0]), color=BLACK, linestyle="--", label=TRUTH)
        self.axes.set_yticks([])
        self.axes.margins(x=0.4)

    def draw_at(self, x: Array, of: Array) -> None:
        """Draw some entries at places: with bars where they are few, a band where they are many."""
        few, value = len(x) <= MOST_LABELS, self.value[of]
        if self.truth is not None:
            look: Any = {"color": BLACK, "lw": 1.5, "ms": 11, "mew": 2, "label": TRUTH}
            self.axes.plot(x, self.truth[of], "_" if few else "-", zorder=2, **look)
        if self.half is not None and few:
            bar: Any = {"fmt": "none", "ecolor": GREY, "capsize": 2, "label": self.interval}
            self.axes.errorbar(x, value, yerr=self.half[of], zorder=3, **bar)
        elif self.half is not None:
            self._draw_band(x, value, self.half[of])
        self.axes.plot(x, value, ".", color=self.colour, markersize=5, label="estimate", zorder=4)

    def draw_steps(self, x: Array) -> None:
        """Draw a function on equal cells of [0, 1]."""
        if self.half is not None:
            self._draw_band(x, self.value, self.half, step="mid")
        steps: Any = {"drawstyle": "steps-mid"}
        if self.truth is not None:
            self.axes.plot(x, self.truth, "--", color=BLACK, label=TRUTH, **steps)
        self.axes.plot(x, self.value, color=self.colour, label="estimate", **steps)
        self.axes.set_xlim(0, 1)

    def draw_over(self, levels: Array) -> None:
        """Draw a cumulative distribution function through its quantiles: levels over values."""
        few = len(levels) <= MOST_LABELS
        if self.truth is not None:
            look: Any = {"color": BLACK, "lw": 1.2, "ms": 7, "mfc": "none", "label": TRUTH}
            self.axes.plot(self.truth, levels, "D-" if few else "-", zorder=2, **look)
        look = {"color": self.colour, "lw": 1, "ms": 4, "label": "estimate", "zorder": 3}
        self.axes.plot(self.value, levels, "o--" if few else "--", **look)
        self.axes.set_ylim(0, 1)

    def _draw_band(self, x: Array, value: Array, half: Array, **more: Any) -> None:
        look: Any = {"color": GREY, "alpha": 0.25, "lw": 0, "zorder": 1, "label": self.interval}
        self.axes.fill_between(x, value - half, value + half, **look, **more)


def _draw_items(series: _Series, estimate: Estimate, display: Display) -> None:
    """Draw counts or shares, the largest first."""
    keys, truth, axes = estimate.keys, series.truth, series.axes
    order = np.argsort(-(series.value if truth is None else truth), kind="stable")
    x = np.arange(1, len(order) + 1)
    series.draw_at(x, order)
    _scale(series)
    missed = estimate.public.get("missed_below", 0.0) * estimate.public.get("n_report", 0.0)
    if missed > 0:
        told = "no missed item is named by more users (with probability 95%)"
        axes.axhline(missed, color=GREY, linestyle="--", lw=1, label=told)
    if keys is not None and len(x) <= MOST_LABELS:
        axes.set_xticks(x, [clipped(keys[i], MOST_LETTERS) for i in order.tolist()], rotation=90)
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        what = "estimate" if truth is None else f"true {display.rank}"
        axes.set_xlabel(f"{display.entry}, by rank of its {what}")


def _draw_coordinates(series: _Series, protocol: Protocol, display: Display) -> None:
    """Draw a vector over its coordinates, of a sparse one those that count."""
    from matplotlib.ticker import MaxNLocator

    d, axes = len(series.value), series.axes
    at, note, places = np.arange(d), "", protocol.positions
    if 0 < (sparsity := protocol.n_nonzero) < d:
        drawn, note = series.value != 0, ": those of the estimate that are not 0"
        if series.truth is not None:
            drawn[np.argsort(-np.abs(series.truth), kind="stable")[:sparsity]] = True
            note += f", and the {sparsity} largest of the truth"
        at = np.flatnonzero(drawn)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set_xlim(-0.02 * d - 0.5, 1.02 * d - 0.5)
    series.draw_at(at if places is None else places[at], at)
    if places is None:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"{display.entry}{note}")


def _scale(series: _Series) -> None:
    """Choose the axis of counts or shares: linear, logarithmic, or logarithmic above the noise."""
    value, truth, half, axes = series.value, series.truth, series.half, series.axes
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
