"""The picture of a decision: errors by epsilon, a line and a marker for each level of trust."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedhist.privacy.guarantee import Trust
from simulations.reporting.numbers import number
from simulations.reporting.pictures import COLOURS
from simulations.studies.decide.problem import Measure
from simulations.studies.decide.question import Question
from simulations.studies.decide.search import HIGH, Finding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = {
    Trust.CENTRAL: ("o", COLOURS[0], "-"),
    Trust.AGGREGATE: ("D", COLOURS[2], "--"),
    Trust.SHUFFLE: ("^", COLOURS[3], "-."),
    Trust.LOCAL: ("s", COLOURS[1], ":"),
}
APART, LEAST = 1.06, 1e-6
"""Factor between the marks of equal answers, so that none hides another; what stands for an error
of 0 on a logarithmic axis."""


def draw_decision(
    figure: Figure, title: str, q: Question, m: Measure, findings: Sequence[Finding]
) -> None:
    """Draw expected errors as lines, and answers as marks with their intervals."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    users = q.epsilon is not None and q.error is not None
    wide = float(figure.get_size_inches()[0])
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = _limits(q, findings)
    axes.set_ylim(low, high)
    if not users:
        axes.set_xlim(0.02, HIGH * 1.2)
    marks = list[tuple[float, float]]()
    for f in findings:
        _draw_level(axes, f, _answer(q, m, f), marks, lines=not users)
    if q.error is not None:
        axes.axhline(q.error, color="black", lw=0.9)
        axes.annotate(
            f"target {q.asked}",
            (0.01, q.error),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            xytext=(0, 2),
        )
    if not users:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.set_xticks([0.03, 0.1, 0.3, 1, 3, 10, 30])
        axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: m.write(y)))
    told = "users" if users else "epsilon (user-level, replace-user)"
    axes.set_xlabel(f"{told}; marks of equal answers stand side by side")
    axes.set_ylabel("error; NOT PRIVATE")
    axes.grid(axis="both", which="major", color="#e5e5e5", lw=0.5, zorder=0)
    axes.set_title("\n".join(textwrap.wrap(title, int(wide * 14))), loc="left")
    columns = 1 if wide < 5 else 2
    figure.set_size_inches(wide, 0.6 * wide + 0.2 * math.ceil(len(findings) / columns))
    figure.legend(loc="outside lower left", ncols=columns, frameon=False)


def _limits(q: Question, findings: Sequence[Finding]) -> tuple[float, float]:
    """Return the ends of the axis of errors: what was asked is in the middle of them."""
    errors = [e for f in findings for _, e in f.curve]
    errors += [f.trial.error for f in findings if f.trial is not None]
    errors = [max(e, LEAST) for e in errors if math.isfinite(e)] or [1.0]
    if q.error is None:
        return min(errors) / 1.5, max(errors) * 1.5
    low, high = max(min(errors), q.error / 20), min(max(errors), q.error * 50)
    return min(low, q.error) / 1.5, max(high, q.error) * 1.5


def _draw_level(
    axes: Any, f: Finding, answer: str, marks: list[tuple[float, float]], *, lines: bool
) -> None:
    marker, colour, line = STYLE[f.level]
    label = f"{f.level.value}: {answer}"
    if lines and f.curve and not f.borrowed:
        axes.plot(*zip(*f.curve, strict=True), ls=line, color=colour, lw=1.3, zorder=2)
    t = f.trial
    if t is None or not math.isfinite(t.error):
        axes.plot([], [], marker=marker, color=colour, ls="none", label=label)
        return
    x, error = t.x, max(t.error, LEAST)
    while any(abs(math.log(x / a)) < math.log(APART) and abs(math.log(error / b)) < 0.1
              for a, b in marks):  # fmt: skip
        x *= APART
    marks.append((x, error))
    interval = [[max(t.error - t.low, 0.0)], [max(t.high - t.error, 0.0)]]
    axes.errorbar(
        [x],
        [error],
        yerr=interval if math.isfinite(t.high) else None,
        fmt=marker,
        color=colour,
        mfc=colour if f.x is not None or f.status == "measured" else "white",
        ms=6,
        capsize=2,
        zorder=4,
        label=label,
    )


def _answer(q: Question, m: Measure, f: Finding) -> str:
    if f.trial is None:
        return "none"
    name = f.trial.candidate.name
    if f.status == "measured":
        return f"{m.write(f.trial.error)}, {name}"
    if f.x is None:
        return f"not reached, {name}"
    unit = "users" if q.epsilon is not None else "epsilon"
    x = number(f.x, 3)
    return f"{x} users, {name}" if unit == "users" else f"epsilon {x}, {name}"
