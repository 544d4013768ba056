"""Figures of estimates. A run writes what its figure shows; ``fedhist show`` draws it.

An estimate has the hue of its trust, the truth is black, and axes have units.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.files import whole_file
from fedhist.model.display import Display
from simulations.reporting.pictures import BLACK, GREY, logarithmic, trust_look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHART = "chart.npz"
"""The file of a run's folder."""
MOST_LABELS = 40
TRUTH = "truth (NOT PRIVATE)"
ARRAYS = ("value", "half", "truth", "places")


@dataclass(frozen=True)
class Chart:
    """The figure of an estimate.

    ``value``, ``half``, ``truth``: the estimates, half the width of their intervals, and the true
    values, (d,) float; ``interval``: what the intervals are; ``names``: of the entries, if these
    are at most MOST_LABELS items; ``places``: where entries stand on their axis; ``n_nonzero``: of
    a sparse vector, 0 otherwise; ``public``: what the protocol says besides.
    """

    value: Array
    title: str
    trust: str
    interval: str
    display: Display
    half: Array | None = None
    truth: Array | None = None
    places: Array | None = None
    names: Sequence[str] = ()
    n_nonzero: int = 0
    public: Mapping[str, float] = field(default_factory=dict)

    @property
    def colour(self) -> str:
        """The hue of its trust."""
        return trust_look(self.trust)[0]

    def save(self, path: Path) -> None:
        """Write it as NumPy's arrays, with the words beside them as JSON."""
        fields = {**vars(self), "display": asdict(self.display)}
        arrays = {k: fields.pop(k) for k in ARRAYS}
        known = {k: v for k, v in arrays.items() if v is not None}
        body = io.BytesIO()
        np.savez(body, words=np.array(json.dumps(fields, default=float)), **known)
        whole_file(path, body.getvalue())

    @classmethod
    def open(cls, path: Path) -> Chart:
        """Read what :meth:`save` wrote; ValueError if it is something else."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {k: file[k] for k in ARRAYS if k in file}
                words = json.loads(str(file["words"]))
            return cls(**words | {"display": Display(**words["display"])}, **arrays)
        except (OSError, EOFError, ValueError, LookupError, TypeError, BadZipFile):
            raise ValueError(f"{path} cannot be read: is it a run's chart.npz, whole?") from None

    def draw(self, figure: Figure) -> None:
        """Draw on an empty figure."""
        figure.set_figheight(2.2 if len(self.value) == 1 else 4.2)
        axes = figure.subplots()
        display = self.display
        if not len(self.value):
            axes.text(0.5, 0.5, "nothing was released", ha="center")
            axes.set_axis_off()
        elif len(self.value) == 1:
            self._draw_number(axes)
            axes.set_xlabel("".join(f"{name}: " for name in self.names) + display.label)
        elif display.form == "quantiles" and self.places is not None:
            self._draw_over(axes, self.places)
            axes.set_xlabel(display.label)
            axes.set_ylabel(f"{display.entry}: share at or below")
        else:
            axes.set_ylabel(display.label)
            if display.form == "items":
                self._draw_items(axes)
            elif display.form == "cells":
                self._draw_steps(axes)
                axes.set_xlabel(display.entry)
            else:
                self._draw_coordinates(axes)
        axes.set_title(self.title, loc="left", fontsize=9)
        if axes.get_legend_handles_labels()[1]:
            axes.legend()

    def _draw_number(self, axes: Any) -> None:
        """Draw a single number with its interval."""
        label = "estimate" if self.half is None else f"estimate {self.interval}"
        look: Any = {"fmt": "o", "color": self.colour, "capsize": 4, "label": label}
        axes.errorbar(self.value, [0], xerr=self.half, **look)
        if self.truth is not None:
            axes.axvline(float(self.truth[0]), color=BLACK, linestyle="--", label=TRUTH)
        axes.set_yticks([])
        axes.margins(x=0.4)

    def _draw_truth(self, axes: Any, x: Array, of: Array) -> None:
        """Draw the truth of some entries at places: marks where they are few, or else a line."""
        if self.truth is not None:
            look: Any = {"color": BLACK, "lw": 1.5, "ms": 11, "mew": 2, "label": TRUTH}
            axes.plot(x, self.truth[of], "_" if len(x) <= MOST_LABELS else "-", zorder=2, **look)

    def _draw_at(self, axes: Any, x: Array, of: Array) -> None:
        """Draw some entries at places: with bars where they are few, a band where they are many."""
        value = self.value[of]
        if self.half is not None and len(x) <= MOST_LABELS:
            bar: Any = {"fmt": "none", "ecolor": GREY, "capsize": 2, "label": self.interval}
            axes.errorbar(x, value, yerr=self.half[of], zorder=3, **bar)
        elif self.half is not None:
            self._draw_band(axes, x, value, self.half[of])
        axes.plot(x, value, ".", color=self.colour, markersize=5, label="estimate", zorder=4)

    def _draw_steps(self, axes: Any) -> None:
        """Draw a function on equal cells of [0, 1]."""
        x = (np.arange(len(self.value)) + 0.5) / len(self.value)
        if self.half is not None:
            self._draw_band(axes, x, self.value, self.half, step="mid")
        steps: Any = {"drawstyle": "steps-mid"}
        if self.truth is not None:
            axes.plot(x, self.truth, "--", color=BLACK, label=TRUTH, **steps)
        axes.plot(x, self.value, color=self.colour, label="estimate", **steps)
        axes.set_xlim(0, 1)

    def _draw_over(self, axes: Any, levels: Array) -> None:
        """Draw a cumulative distribution function through its quantiles: levels over values."""
        few = len(levels) <= MOST_LABELS
        if self.truth is not None:
            look: Any = {"color": BLACK, "lw": 1.2, "ms": 7, "mfc": "none", "label": TRUTH}
            axes.plot(self.truth, levels, "D-" if few else "-", zorder=2, **look)
        look = {"color": self.colour, "lw": 1, "ms": 4, "label": "estimate", "zorder": 3}
        axes.plot(self.value, levels, "o--" if few else "--", **look)
        axes.set_ylim(0, 1)

    def _draw_band(self, axes: Any, x: Array, value: Array, half: Array, **more: Any) -> None:
        look: Any = {"color": GREY, "alpha": 0.25, "lw": 0, "zorder": 1, "label": self.interval}
        axes.fill_between(x, value - half, value + half, **look, **more)

    def _draw_items(self, axes: Any) -> None:
        """Draw counts or shares, the largest first."""
        order = np.argsort(-(self.value if self.truth is None else self.truth), kind="stable")
        x = np.arange(1, len(order) + 1)
        if "missed_below" in self.public:
            self._draw_heavy_hitters(axes, x, order)
        else:
            self._draw_truth(axes, x, order)
            self._draw_at(axes, x, order)
            self._scale(axes)
        if self.names:
            axes.set_xticks(x, [self.names[i] for i in order.tolist()], rotation=90)
        else:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:,.0f}")
            what = "estimate" if self.truth is None else f"true {self.display.rank}"
            axes.set_xlabel(f"{self.display.entry}, by rank of its {what}")

    def _draw_heavy_hitters(self, axes: Any, x: Array, order: Array) -> None:
        """Draw the items that were found, the truth of all, the threshold, what may be missed."""
        named = self.value[order] > 0
        self._draw_truth(axes, x, order)
        self._draw_at(axes, x[named], order[named])
        below = {
            "threshold": ("more users must seem to name an item that is found", ":"),
            "missed_below": ("no missed item is named by more users (with probability 95%)", "--"),
        }
        for name, (told, style) in below.items():
            level = self.public["n_report"] * self.public[name]
            axes.axhline(level, color=GREY, linestyle=style, lw=1.2, label=told)
        logarithmic(axes, "y")
        axes.yaxis.set_major_formatter("{x:,.10g}")

    def _draw_coordinates(self, axes: Any) -> None:
        """Draw a vector over its coordinates, of a sparse one those that count."""
        from matplotlib.ticker import MaxNLocator

        d = len(self.value)
        at, note = np.arange(d), ""
        if 0 < self.n_nonzero < d:
            shown, note = self.value != 0, ": those of the estimate that are not 0"
            if self.truth is not None:
                shown[np.argsort(-np.abs(self.truth), kind="stable")[: self.n_nonzero]] = True
                note += f", and the {self.n_nonzero} largest of the truth"
            at = np.flatnonzero(shown)
            axes.axhline(0, color=GREY, lw=0.8)
            axes.set_xlim(-0.02 * d - 0.5, 1.02 * d - 0.5)
        x = at if self.places is None else self.places[at]
        self._draw_truth(axes, x, at)
        self._draw_at(axes, x, at)
        if self.places is None:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"{self.display.entry}{note}")

    def _scale(self, axes: Any) -> None:
        """Choose the axis of counts or shares: linear, logarithmic, or so above the noise."""
        shown = self.value if self.truth is None else np.concatenate([self.value, self.truth])
        top = float(shown.max())
        if top > 50 * max(float(np.median(shown)), 1e-12):
            if shown.min() > 0:
                logarithmic(axes, "y")
            else:
                noise = 1.0 if self.half is None else float(np.median(self.half))
                axes.set_yscale("symlog", linthresh=max(noise, 1e-3 * top, 1e-12))
        # after the scale, which brings a formatter of its own: powers, set as mathematics
        axes.yaxis.set_major_formatter("{x:,.10g}")
        if axes.get_yscale() != "log" and (self.value >= 0).all():
            axes.set_ylim(bottom=0)
