"""The one picture of a decision: error against epsilon, a line and a marker for each level.

Readable without colour: levels differ in lines and markers. Lines are theory, markers simulations.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fedhist.privacy.guarantee import Trust
from simulations.reporting.numbers import number
from simulations.reporting.pictures import COLOURS
from simulations.studies.decide.findings import Decided, Finding
from simulations.studies.decide.search import HIGH, LOW
from simulations.studies.decide.words import asked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = {
    Trust.CENTRAL: ("o", COLOURS[0], "-"),
    Trust.AGGREGATE: ("D", COLOURS[2], "--"),
    Trust.SHUFFLE: ("^", COLOURS[3], "-."),
    Trust.LOCAL: ("s", COLOURS[1], ":"),
}
MOST = 4.0
"""Errors beyond this many times the answer's size are not drawn."""


def draw_decision(d: Decided, figure: Figure) -> None:
    """Draw theory's curves, what was simulated, the target and the answers."""
    import textwrap

    from matplotlib.ticker import FuncFormatter

    q, m = d.settled.question, d.settled.measure
    users = q.epsilon is not None and q.error is not None
    wide = float(figure.get_size_inches()[0])
    figure.set_size_inches(wide, max(2.9, 0.62 * wide))
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    for f in d.findings:
        _level(axes, d, f)
    share = m.divides
    if q.error is not None:
        axes.axhline(q.error, color="black", lw=0.9)
        axes.annotate(
            f"target {q.asked}",
            (0.01, q.error),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            xytext=(0, 2),
        )
    if q.epsilon is not None and not users:
        axes.axvline(q.epsilon, color="black", lw=0.9)
    low, high = _limits(d)
    axes.set_ylim(low, high)
    if share and high > 1.3:
        axes.axhspan(1, high, facecolor="none", edgecolor="#bbbbbb", hatch="////", lw=0)
        axes.annotate(
            "worse than answering 0 everywhere",
            (0.99, 1),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            xytext=(0, 3),
            ha="right",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    if not users:
        axes.set_xlim(0.03, HIGH * 1.15)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.set_xticks([x for x in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 64) if x >= LOW * 3])
        axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: m.write(y)))
    what = "number of users" if users else "epsilon per user (replace-user)"
    axes.set_xlabel(f"{what}; lines: theory, marks: simulated, with 95% intervals")
    axes.set_ylabel(f"{m.axis}; NOT PRIVATE")
    axes.grid(axis="both", which="major", color="#e5e5e5", lw=0.5, zorder=0)
    axes.set_title("\n".join(textwrap.wrap(asked(d), int(wide * 14))), loc="left")
    figure.legend(loc="outside lower left", ncols=1 if wide < 5 else 2, frameon=False)


def _level(axes: Any, d: Decided, f: Finding) -> None:
    marker, colour, line = STYLE[f.level]
    label = f"{f.level.value}: {_answer(d, f)}"
    drawn = False
    if f.curve:
        theory = {t.x: t.theory for t in f.trials if t.ratio is not None and t.row is not None}
        line_of = sorted((dict(f.curve) | theory).items())
        axes.plot(*zip(*line_of, strict=True), ls=line, color=colour, lw=1.3, label=label, zorder=2)
        drawn = True
    points = [t for t in f.trials if t.error is not None and t.candidate.level is f.level]
    if d.settled.question.error is not None and d.settled.question.epsilon is not None:
        points = [t for t in points if t is f.trial or t.row is not None][-1:]
    for t in points:
        face = colour if t is f.trial else "white"
        style = {"fmt": marker, "color": colour, "mfc": face, "ms": 6, "capsize": 2, "zorder": 4}
        axes.errorbar(
            [t.x], [t.error], yerr=t.half_width or 0.0, label=None if drawn else label, **style
        )
        drawn = True
    if not drawn:
        axes.plot([], [], marker=marker, color=colour, ls=line, label=label)
    if f.status == "reached" and f.x is not None and d.settled.question.epsilon is None:
        axes.plot(
            [f.x, f.x], [1e-12, f.trial.error if f.trial else 1], color=colour, lw=0.8, ls=line
        )


def _answer(d: Decided, f: Finding) -> str:
    q = d.settled.question
    if f.candidate is None or f.trial is None:
        return "not available"
    if q.error is None:
        return f"{d.settled.measure.write(f.trial.error)}, {f.candidate.title}"
    if f.status == "reached":
        what = "epsilon" if q.epsilon is None else "users"
        value = number(f.x, 3)
        told = f"{what} = {value}" if q.epsilon is None else f"{value} users"
        return f"{told}, {f.candidate.title}"
    if f.status == "unsimulated":
        return f"about {number(f.x, 3)} users, by theory"
    return "not reached"


def _limits(d: Decided) -> tuple[float, float]:
    """Return the ends of the axis of errors."""
    q = d.settled.question
    values = [t.error for f in d.findings for t in f.trials if t.error]
    values += [e for f in d.findings for _, e in f.curve if e > 0]
    values += [q.error] if q.error is not None else []
    top = MOST if d.settled.measure.divides else math.inf
    seen = [v for v in values if 0 < v < top]
    low, high = min(seen, default=0.01), max(seen, default=1.0)
    if q.error is not None:
        low = max(low, q.error / 30)
    return 0.7 * low, min(1.4 * high, top)
