"""Heat maps: one number for every pair of settings, and the table that it comes from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fedhist.base.arrays import Floats
from simulations.reporting.pictures import GREY, picture


@dataclass(frozen=True, eq=False)
class Square:
    """One heat map: the worst of all points that share a column and a row.

    Attributes
    ----------
    title, x_label, y_label : str
    columns, rows : sequence of str
    values : (rows, columns) float64
        At least 1; NaN where nothing was measured.
    words : (rows, columns) of str
        What stands in each field under its number.
    """

    title: str
    x_label: str
    y_label: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Floats
    words: Sequence[Sequence[str]]


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A figure of heat maps, and the points behind it, each a row of a table.

    Attributes
    ----------
    name : str
        Of the files, map-NAME.png and map-NAME.csv.
    title : str
    squares : tuple of Square
    points : sequence of mapping
        With the same keys each.
    top : float
        Values from here on have the last colour.
    """

    name: str
    title: str
    squares: tuple[Square, ...]
    points: Sequence[Mapping[str, str | float]]
    top: float = 3.0


def write_maps(maps: Sequence[HeatMap], folder: Path) -> None:
    """Write every map's picture and table."""
    for one in maps:
        pl.DataFrame([dict(p) for p in one.points]).write_csv(folder / f"map-{one.name}.csv")
        draw_map(one, folder / f"map-{one.name}.png")


def draw_map(one: HeatMap, path: Path) -> None:
    """Draw a map to a PNG file, logarithmic colours from 1 to ``top``."""
    widths = [2.2 + 1.05 * len(s.columns) for s in one.squares]
    height = 1.6 + 0.5 * max(len(s.rows) for s in one.squares)
    with picture(path, sum(widths) + 0.8, height) as figure:
        grid = np.atleast_1d(figure.subplots(1, len(widths), width_ratios=widths))
        for axes, square in zip(grid, one.squares, strict=True):
            shown = np.log(np.clip(square.values, 1.0, one.top))
            image = axes.imshow(
                shown, cmap="YlOrRd", vmin=0.0, vmax=float(np.log(one.top)), aspect="auto"
            )
            for (i, j), value in np.ndenumerate(square.values):
                if np.isnan(value):
                    axes.text(j, i, "·", ha="center", va="center", color=GREY)
                    continue
                dark = value > 0.75 * one.top
                axes.text(
                    j, i, f"{value:.2f}\n{square.words[i][j]}".strip(), ha="center", va="center",
                    fontsize=6.5, color="white" if dark else "black",
                )  # fmt: skip
            axes.set_xticks(range(len(square.columns)), square.columns)
            axes.set_yticks(range(len(square.rows)), square.rows)
            axes.set_xlabel(square.x_label)
            axes.set_ylabel(square.y_label)
            axes.set_title(square.title, loc="left", fontsize=9)
        ticks = [t for t in (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0) if t <= one.top]
        bar = figure.colorbar(image, ax=grid[-1], ticks=np.log(ticks))
        bar.ax.set_yticklabels([f"{t:g}" for t in ticks])
        figure.suptitle(textwrap.fill(one.title, int(12 * sum(widths))), fontsize=10)
