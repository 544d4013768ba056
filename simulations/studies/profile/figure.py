"""The figure of a profile: how much users hold, and the items by frequency or the values."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.text import visible
from simulations.reporting.numbers import short
from simulations.reporting.pictures import BLUE, GREY, ORANGE
from simulations.studies.profile.profiled import Profiled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 40
SIDE_BY_SIDE = 5.0
"""Inches from which on the two panels stand beside each other."""


def draw_profile(profile: Profiled, figure: Figure) -> None:
    """Draw two panels, beside or above each other."""
    from matplotlib.ticker import FuncFormatter

    wide = figure.get_figwidth() >= SIDE_BY_SIDE
    figure.set_figheight(2.8 if wide else 5.0)
    left, right = figure.subplots(1, 2) if wide else figure.subplots(2, 1)
    for axes in (left, right):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))
    _draw_sizes(left, profile)
    if profile.n_items is None:
        _draw_values(right, profile)
    else:
        _draw_items(right, profile)
    told = textwrap.fill(f"{profile.population}; NOT PRIVATE", int(16 * figure.get_figwidth()))
    figure.suptitle(visible(told), x=0.01, ha="left", fontsize=8)


def _draw_sizes(axes: Any, p: Profiled) -> None:
    held = p.held[p.held > 0]
    if not len(held):
        return
    low, high = float(held.min()), float(held.max())
    edges = np.geomspace(low, high * (1 + 1e-9), BINS + 1) if high > low else _around(low)
    if 1 < high - low < BINS:  # one bar for each number
        edges = np.arange(low, high + 2) - 0.5
    elif high > 10 * low:
        _logarithmic(axes, low, high)
    axes.hist(held, edges, color=BLUE)
    axes.set_xlabel(f"{p.what} of a user")
    axes.set_ylabel("users")
    for name, style in (("samples_per_user", "--"), ("clip", "-")):
        if name in p.suggested and (name != "clip" or not p.budget.delta):
            value = p.suggested[name]
            label = f"{name.replace('_', ' ')} {short(value, 3)}"
            axes.axvline(value, color=ORANGE, ls=style, lw=1, label=f"suggested {label}")
    _legend(axes)


def _draw_items(axes: Any, p: Profiled) -> None:
    rank = np.arange(1, len(p.ranked) + 1)
    axes.plot(rank, np.cumsum(p.ranked) / max(p.ranked.sum(), 1.0), color=BLUE)
    _logarithmic(axes, 1, len(p.ranked))
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("most frequent items")
    axes.set_ylabel("share of the events")
    if p.domain_size is not None:
        axes.axvline(p.domain_size, color=GREY, ls=":", lw=1, label=f"{p.domain_size:,} in domain")
    if "top" in p.suggested:
        top = p.suggested["top"]
        axes.axvline(top, color=ORANGE, lw=1, label=f"suggested top {top:,.0f}")
    _legend(axes)


def _draw_values(axes: Any, p: Profiled) -> None:
    if not len(p.drawn):
        return
    low, high = p.values["least"], p.values["most"]
    value, times = np.unique(p.drawn, return_counts=True)
    if len(value) <= BINS:  # grades, say: a bar for each
        axes.bar(value, times, 0.6 * float(np.diff(value).min(initial=1.0)), color=BLUE)
    else:
        axes.hist(p.drawn, np.linspace(low, high, BINS + 1), color=BLUE)
    axes.set_xlabel("value")
    axes.set_ylabel("samples")
    ends = [p.suggested[e] for e in ("low", "high") if e in p.suggested]
    if ends:
        told = f"suggested range {ends[0]:g} to {ends[1]:g}"
        axes.axvline(ends[0], color=ORANGE, lw=1, label=told)
        axes.axvline(ends[1], color=ORANGE, lw=1)
    _legend(axes)


def _legend(axes: Any) -> None:
    """Name the lines above the panel, where no bar is."""
    if axes.get_legend_handles_labels()[0]:
        where: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
        axes.legend(frameon=False, borderaxespad=0.2, labelspacing=0.2, **where)


def _logarithmic(axes: Any, low: float, high: float) -> None:
    """Make a logarithmic axis with plain numbers, as many as have room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    if high < 500 * low:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))


def _around(x: float) -> Floats:
    return np.array([x - 0.5, x + 0.5])
