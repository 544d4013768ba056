"""Estimates as files: tables of what was released, and figures over the truth.

In figures an estimate has the hue of its trust, the truth is black, and axes have units. Of a
folder the CSV and Parquet files alone are public.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.files import whole_file
from fedhist.model.display import Display
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import display_of
from fedhist.users.keys import Keys
from simulations.reporting.numbers import NORMAL, clipped, no_formula
from simulations.reporting.pictures import BLACK, GREY, drawn, trust_look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_QUOTED = re.compile(r'[",\r\n]')


def columns_of(estimate: Estimate) -> tuple[Keys, dict[str, Array]]:
    """Return a released estimate as a table: its keys, and by name the columns of numbers."""
    value = np.atleast_1d(np.asarray(estimate.value))
    columns = {"estimate": value}
    if estimate.stderr is not None:
        columns["stderr"] = np.atleast_1d(estimate.stderr)
    return estimate.keys if estimate.keys is not None else Keys.range(len(value)), columns


def write_estimate(folder: Path, estimate: Estimate, about: Mapping[str, str]) -> None:
    """Write a released estimate as CSV and Parquet, whose metadata say what it is about.

    In CSV a quotation mark stands before names that a spreadsheet would read as formulas.
    """
    keys, columns = columns_of(estimate)
    _write_parquet(folder / "estimate.parquet", keys, columns, about)
    names = map(_cell, map(no_formula, keys))
    rows = zip(names, *(map(_number, x.tolist()) for x in columns.values()), strict=True)
    lines: Iterable[str] = [",".join(["key", *columns]), *map(",".join, rows), ""]
    (folder / "estimate.csv").write_text("\n".join(lines), encoding="utf-8", newline="")


def write_table(folder: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write released numbers of several releases, as :func:`write_estimate` writes those of one."""
    import polars as pl

    frame = pl.DataFrame(columns)
    frame.write_parquet(folder / "estimate.parquet")
    names = frame.select(pl.col(pl.String)).columns
    safe = frame.with_columns(pl.Series(n, map(no_formula, frame[n])) for n in names)
    safe.write_csv(folder / "estimate.csv")


def _cell(name: str) -> str:
    """Quote what would be read as something else; nothing at all as a missing value."""
    return '"' + name.replace('"', '""') + '"' if not name or _QUOTED.search(name) else name


def _number(x: float) -> str:
    return "NaN" if x != x else repr(x)  # as most readers expect it


def _write_parquet(
    path: Path, keys: Keys, columns: Mapping[str, Array], about: Mapping[str, str]
) -> None:
    """Write buffers as they are: from lists pyarrow would make arrays with the help of pandas.

    And polars would take a tenth of a second to be imported.
    """
    import pyarrow as pa
    from pyarrow import parquet

    n = len(keys)
    buffers = (pa.py_buffer(keys.offsets), pa.py_buffer(keys.data))
    arrays: list[Any] = [pa.LargeStringArray.from_buffers(n, *buffers)]
    for column in map(np.ascontiguousarray, columns.values()):
        kind = pa.from_numpy_dtype(column.dtype)
        arrays.append(pa.Array.from_buffers(kind, n, [None, pa.py_buffer(column)]))
    table = pa.Table.from_arrays(arrays, ["key", *columns], metadata=dict(about))
    with path.open("wb") as file:  # pyarrow opens no name that is not UTF-8
        parquet.write_table(table, file, compression="zstd")


# -- figures ---------------------------------------------------------------------------------------

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
    what = (estimate, truth, protocol, not_private)
    whole_file(Path(path), drawn(lambda figure: draw_on(figure, *what), 8, "png"))


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
    figure.set_figheight(2.2 if len(value) == 1 else 4.2)
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


@dataclass
class _Series:
    """What is drawn: values, half the width of their intervals, and the truth, where known."""

    axes: Any
    value: Array
    half: Array | None
    truth: Array | None
    colour: str
    interval: str

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
    if "missed_below" in estimate.public:
        _draw_found(series, x, order, estimate.public)
    else:
        series.draw_at(x, order)
        _scale(series)
    if keys is not None and len(x) <= MOST_LABELS:
        axes.set_xticks(x, [clipped(keys[i], MOST_LETTERS) for i in order.tolist()], rotation=90)
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        what = "estimate" if truth is None else f"true {display.rank}"
        axes.set_xlabel(f"{display.entry}, by rank of its {what}")


def _draw_found(series: _Series, x: Array, order: Array, public: Mapping[str, float]) -> None:
    """Draw the items that were found, the truth of all, the threshold, and what may be missed."""
    named, axes, n = series.value[order] > 0, series.axes, public["n_report"]
    if series.truth is not None and not named.all():
        axes.plot(x, series.truth[order], "-", color=BLACK, lw=1.5, label=TRUTH)
        series.truth = None
    series.draw_at(x[named], order[named])
    below = {
        "threshold": ("more users must seem to name an item that is found", ":"),
        "missed_below": ("no missed item is named by more users (with probability 95%)", "--"),
    }
    for name, (told, style) in below.items():
        axes.axhline(n * public[name], color=GREY, linestyle=style, lw=1.2, label=told)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,.10g}")


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
