"""The figures of studies: a ranking, levels of trust side by side, errors over an axis.

A hue is a level of trust in all of them; marker, line and shade tell protocols apart, so that no
colour is needed. Black is what needs no run, grey what is not ranked.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedhist.base.errors import visible
from simulations.reporting.pictures import (
    DASHES,
    GREY,
    list_marks,
    logarithmic,
    shades,
    trust_look,
    wrapped,
)
from simulations.reporting.table import clipped, fixed, short, shown
from simulations.studies.losses import unit_of
from simulations.studies.summary import LEVEL, Line
from simulations.studies.tables import in_setting, missing_in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "os^Dv<>PX*"
MOST_LETTERS = 34
MOST_PANELS = 12
GAP = 0.27
"""Between two rows of a level, in levels."""

About = Mapping[str, Any]


def draw(about: About, lines: Sequence[Line], figure: Figure) -> None:
    """Draw the lines that have records, as high as they take."""
    lines = [line for line in lines if line.records]
    drawn = [line for line in lines if line.mean is not None]
    numeric = [a for a in about["axes"] if all(type(x.setting[a]) in (int, float) for x in drawn)]
    finite = [x for x in drawn if all(math.isfinite(x.setting[a]) for a in numeric)]
    if numeric and finite:
        _draw_curves(about, finite, numeric, figure)
    elif about["levels"] and not about["axes"]:
        _draw_levels(about, lines, figure)
    else:
        _draw_ranking(about, lines, figure)


def _draw_ranking(about: About, lines: Sequence[Line], figure: Figure) -> None:
    """Draw a row for each line, the best first."""
    title = wrapped(visible(about["title"]), figure.get_figwidth())
    wide = int(figure.get_figwidth() * 5)
    names = [_row_name(about, line, min(MOST_LETTERS, wide)) for line in lines]
    height = sum(0.12 + 0.14 * (n.count("\n") + 1) for n in names)
    figure.set_figheight(1.4 + 0.13 * title.count("\n") + height)
    panel = figure.subplots()
    low, high = _limits(lines)
    panel.set_xlim(low, high)
    if low > 0:
        logarithmic(panel, "x")
    for y, line in enumerate(lines):
        if line.mean is None:
            at: Any = {"va": "center", "transform": panel.get_yaxis_transform()}
            panel.text(0.02, y, "; ".join(missing_in_words(line)), **at)
            continue
        panel.errorbar([line.mean], [y], xerr=line.half_width or 0.0, **_look(line))
        if line.predicted is not None:
            panel.plot([line.predicted], [y], "k|", ms=12, mew=1.5, zorder=4, label="theory")
    panel.set_yticks(range(len(lines)), names)
    panel.set_ylim(len(lines) - 0.5, -0.5)
    panel.grid(axis="x", color="#dddddd", lw=0.6, zorder=0)
    panel.set_xlabel(_error_label(about, lines), loc="left")
    figure.suptitle(title, x=0.01, ha="left", fontsize=8)
    list_marks(figure, [panel])


def _row_name(about: About, line: Line, letters: int) -> str:
    """Write a row's rank and label; a hollow marker's runs are counted."""
    at = in_setting(line, about["axes"])
    text = clipped(f"{line.label} ({at})" if at else line.label, 2 * letters)
    text = textwrap.fill(text if line.rank is None else f"{line.rank}. {text}", letters)
    return "\n".join([text, *(missing_in_words(line) if line.mean is not None else [])])


def _look(line: Line) -> dict[str, Any]:
    """Return how a row is marked, and what that stands for; hollow where runs gave no estimate."""
    trust = line.first.trust
    colour, marker = (GREY, "x") if line.flags else trust_look(trust)
    label = "not ranked: another guarantee" if line.flags else f"{trust} trust"
    look = {"fmt": marker, "color": colour, "mfc": "white" if line.missing else colour}
    return look | {"ms": 5, "capsize": 2, "zorder": 3, "label": label}


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    """Choose the ends of the axis; the lower one is 0, for a linear axis, where an error is 0.

    An interval that reaches below 0 runs out of the picture.
    """
    ends = [(x.mean, x.half_width or 0.0) for x in lines if x.mean is not None]
    marks = [m for m, _ in ends] + [x.predicted for x in lines if x.predicted is not None]
    marks = [m for m in marks if math.isfinite(m)]
    high = max([*marks, *(m + half for m, half in ends if math.isfinite(m + half))], default=0.0)
    if not ends or min(m for m, _ in ends) <= 0:
        return 0.0, 1.1 * high or 1.0
    inside = [m - half for m, half in ends if half < m]
    return min(x for x in (*marks, *inside) if x > 0) / 1.5, 1.5 * high


def _error_label(about: About, lines: Sequence[Line]) -> str:
    unit = unit_of(about["loss"], about["target"])
    runs = max(len(line.records) for line in lines)
    return f"{unit}; NOT PRIVATE\nmean of {runs} runs, {LEVEL:.0%} interval"


# -- levels of trust -------------------------------------------------------------------------------


def _draw_levels(about: About, lines: Sequence[Line], figure: Figure) -> None:
    """Draw errors by what must be believed, as high as the notes below them take."""
    levels = about["levels"]
    letters = int(14.5 * figure.get_figwidth() / max(len(levels), 1))
    notes = [_notes(about, lines, t, letters) for t in levels]
    title = wrapped(visible(about["title"]), figure.get_figwidth())
    figure.set_figheight(2.9 + 0.125 * max(map(len, notes)) + 0.13 * title.count("\n"))
    panel = figure.subplots()
    low, high = _limits(lines)
    panel.set_ylim(low, 1.6 * high)  # for what is written above the marks
    if low > 0:
        logarithmic(panel, "y")
    panel.set_xlim(-0.5, len(levels) - 0.5)
    least, best = next((x.mean for x in lines if x.rank == 1), None), []
    for x, level in enumerate(levels):
        own = [line for line in lines if line.level == level]
        gap = min(GAP, 0.9 / max(len(own), 1))
        for i, line in enumerate(own):
            at = x + gap * (i - (len(own) - 1) / 2)
            if line.mean is None:
                continue
            half = line.half_width or 0.0
            panel.errorbar([at], [line.mean], yerr=half, **_look(line) | {"label": None})
            if line.predicted is not None and math.isfinite(line.predicted):
                ends = at - 0.055, at + 0.055
                panel.hlines(line.predicted, *ends, "k", lw=1.8, zorder=4, label="theory")
            text = str(i + 1) * (len(own) > 1 and bool(i))
            if line.rank == 1 and least:
                best.append((at, line.mean))
                ratio = line.mean / least
                times = "" if ratio == 1 else f"\n× {fixed(ratio, 0 if ratio >= 10 else 2)}"
                text = short(line.mean, 3) + times
            where: Any = {"ha": "center", "textcoords": "offset points", "fontsize": 7.5}
            panel.annotate(text, (at, line.mean + half), (0, 6), **where)
        if not own:
            across = panel.get_xaxis_transform()
            panel.text(x, 0.5, "not reached", color=GREY, transform=across, ha="center")
    if best:
        panel.plot(*zip(*best, strict=True), ls=":", color=GREY, lw=1, zorder=1)
    panel.set_xticks(range(len(levels)), ["\n".join(n) for n in notes], fontsize=7)
    panel.tick_params(axis="x", length=0)
    panel.grid(axis="y", color="#dddddd", lw=0.6, zorder=0)
    panel.set_ylabel(wrapped(_error_label(about, lines), 2.6))
    figure.suptitle(title, x=0.01, ha="left", fontsize=8)
    list_marks(figure, [panel])


def _notes(about: About, lines: Sequence[Line], level: str, letters: int) -> list[str]:
    """Write what stands below a level: its name, what must be believed, its rows in order."""
    own = [line for line in lines if line.level == level]
    out = [level.upper()]
    if not own:
        why = about.get("unreached", {}).get(level, "")
        return [*out, *textwrap.wrap(why, letters, max_lines=6, placeholder=" ...")]
    premises = list(dict.fromkeys(x.believed.short for x in own if x.believed is not None))
    told = [f"believe {premises[0][0]}", *premises[0][1:]] if len(premises) == 1 else []
    for i, line in enumerate(own, 1):
        rank = " (not ranked)" if line.flags else ""
        told.append(f"{i} " * (len(own) > 1) + visible(line.title) + rank)
        told += missing_in_words(line)
        if len(premises) > 1 and line.believed is not None:
            told.append(f"({', '.join(line.believed.short)})")
    return out + [part for text in told for part in textwrap.wrap(text, letters)]


# -- errors over an axis ---------------------------------------------------------------------------


def _draw_curves(
    about: About, lines: Sequence[Line], numeric: Sequence[str], figure: Figure
) -> None:
    """Draw a panel for each setting of the other axes, and a curve for each protocol."""
    x = max(numeric, key=lambda a: len({line.setting[a] for line in lines}))
    others = [a for a in about["axes"] if a != x]
    parts: dict[str, list[Line]] = {}
    for line in lines:
        parts.setdefault(in_setting(line, others), []).append(line)
    left = max(0, len(parts) - MOST_PANELS)
    parts = dict(list(parts.items())[:MOST_PANELS])
    looks = _curve_looks(lines)
    wide = figure.get_figwidth()
    columns = max(1, min(len(parts), int(wide / 2.1)))
    rows = math.ceil(len(parts) / columns)
    more = f"; {left} more settings are in the table" if left else ""
    title = wrapped(visible(about["title"]) + more, wide)
    figure.set_figheight(0.6 + 0.13 * title.count("\n") + rows * min(2.4, 0.8 * wide / columns))
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for panel, (name, own) in zip(grid, parts.items(), strict=False):
        _draw_panel(panel, x, own, looks)
        panel.set_title(textwrap.fill(name, int(13 * wide / columns)), loc="left", fontsize=7.5)
    for panel in grid[len(parts) :]:
        panel.set_axis_off()
    values = sorted({float(line.setting[x]) for line in lines})
    means = [line.mean for line in lines if line.mean is not None]
    for panel in grid[: len(parts)]:
        if min(means, default=0.0) > 0:
            logarithmic(panel, "y")
        _mark_values(panel, values)
        panel.grid(color="#eeeeee", lw=0.6, zorder=0)
    for i, panel in enumerate(grid[: len(parts)]):
        if i + columns >= len(parts):  # the lowest of its column
            panel.tick_params(labelbottom=True)
            panel.set_xlabel(x.partition(".")[2].replace("_", " "))
    figure.supylabel(wrapped(_error_label(about, lines), 2.3 * rows), fontsize=8)
    figure.suptitle(title, x=0.01, ha="left", fontsize=8)
    list_marks(figure, list(grid[: len(parts)]))


def _curve_looks(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """Choose for each protocol a shade of its trust's hue, a marker and a line of its own."""
    of: dict[str, list[str]] = {}
    for line in lines:
        own = of.setdefault("" if line.flags else line.first.trust, [])
        own += [line.label] * (line.label not in own)
    out: dict[str, dict[str, Any]] = {}
    for trust, labels in of.items():
        for label, colour in zip(labels, shades(trust_look(trust)[0], len(labels)), strict=True):
            i = len(out)
            look = {"marker": MARKERS[i % len(MARKERS)], "ls": DASHES[i % len(DASHES)]}
            out.setdefault(label, {"color": colour, **look})
    return out


def _draw_panel(
    panel: Any, x: str, lines: Sequence[Line], looks: Mapping[str, dict[str, Any]]
) -> None:
    curves: dict[str, list[Line]] = {}
    for line in lines:
        curves.setdefault(line.label, []).append(line)
    for label, own in curves.items():
        own.sort(key=lambda line: float(line.setting[x]))
        at = [line.setting[x] for line in own]
        means = [line.mean for line in own]
        half = [line.half_width or 0.0 for line in own]
        look = dict(looks[label])
        name = clipped(label, MOST_LETTERS) + " (not ranked)" * bool(own[0].flags)
        look |= {"ms": 3.5, "lw": 1.3, "elinewidth": 0.7, "capsize": 1.5, "zorder": 3}
        panel.errorbar(at, means, half, label=name, **look)
        told = [(line.setting[x], line.predicted) for line in own]
        told = [(a, y) for a, y in told if y is not None and math.isfinite(y)]
        if told:
            panel.plot(*zip(*told, strict=True), color=look["color"], lw=0.6, alpha=0.7, zorder=2)
            panel.plot([], [], color=GREY, lw=0.6, label="theory: a thin line")


def _mark_values(panel: Any, values: Sequence[float]) -> None:
    """Mark the values that were run; on a logarithmic axis where they reach far."""
    from matplotlib.ticker import FixedLocator, NullFormatter

    far = values[0] > 0 and values[-1] >= 8 * values[0]
    if far:
        panel.set_xscale("log")
    place = math.log if far else float
    room = (place(values[-1]) - place(values[0])) / 6
    ticks = [values[0]]
    for v in values[1:]:
        if place(v) - place(ticks[-1]) >= room:
            ticks.append(v)
    panel.set_xticks(ticks, [shown(int(v)) if v == int(v) else f"{v:g}" for v in ticks])
    panel.xaxis.set_minor_locator(FixedLocator([v for v in values if v not in ticks]))
    panel.xaxis.set_minor_formatter(NullFormatter())
