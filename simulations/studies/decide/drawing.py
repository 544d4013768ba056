"""The figure of a decision: expected errors as lines, answers as marks with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simulations.reporting.pictures import DASHES, list_marks, logarithmic, trust_look, wrapped
from simulations.reporting.table import number
from simulations.studies.decide.problem import Measure
from simulations.studies.decide.question import Question
from simulations.studies.decide.search import Finding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

APART, LEAST = 1.06, 1e-6
"""Factor between the marks of equal answers, so that none hides another; what stands for an error
of 0 on a logarithmic axis."""


def draw_decision(
    figure: Figure, title: str, q: Question, m: Measure, findings: Sequence[Finding]
) -> None:
    """Draw expected errors over epsilon as lines, and answers as marks with their intervals."""
    users = q.epsilon is not None and q.error is not None
    wide = figure.get_figwidth()
    axes = figure.subplots()
    axes.set_ylim(*_decided_limits(q, findings))
    if not users:
        axes.set_xlim(0.02, 80)
    logarithmic(axes, "x")
    logarithmic(axes, "y")
    marks = list[tuple[float, float]]()
    for f, line in zip(findings, DASHES, strict=False):
        _draw_answer(axes, f, _answer(q, m, f), marks, "" if users else line)
    if q.error is not None:
        axes.axhline(q.error, color="black", lw=0.9)
        place: Any = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
        axes.annotate(f"target {q.asked}", (0.01, q.error), xytext=(0, 2), **place)
    axes.yaxis.set_major_formatter(lambda y, _: m.write(y))
    told = "users" if users else "epsilon (user-level, replace-user)"
    axes.set_xlabel(f"{told}; marks of equal answers stand side by side")
    axes.set_ylabel("error; NOT PRIVATE")
    axes.grid(which="major", color="#e5e5e5", lw=0.5, zorder=0)
    axes.set_title(wrapped(title, wide), loc="left")
    figure.set_figheight(0.6 * wide)
    list_marks(figure, [axes])


def _decided_limits(q: Question, findings: Sequence[Finding]) -> tuple[float, float]:
    """Return the ends of the axis of errors: what was asked is in the middle of them."""
    errors = [e for f in findings for _, e in f.curve]
    errors += [f.trial.error for f in findings if f.trial is not None]
    errors = [max(e, LEAST) for e in errors if math.isfinite(e)] or [1.0]
    if q.error is None:
        return min(errors) / 1.5, max(errors) * 1.5
    low, high = max(min(errors), q.error / 20), min(max(errors), q.error * 50)
    return min(low, q.error) / 1.5, max(high, q.error) * 1.5


def _draw_answer(
    axes: Any, f: Finding, answer: str, marks: list[tuple[float, float]], line: Any
) -> None:
    colour, marker = trust_look(f.level.value)
    label = f"{f.level.value}: {answer}"
    if line and f.curve and not f.borrowed:
        axes.plot(*zip(*f.curve, strict=True), ls=line, color=colour, lw=1.3, zorder=2)
    t = f.trial
    if t is None or not math.isfinite(t.error):
        axes.plot([], [], marker=marker, color=colour, ls="none", label=label)
        return
    x, error = t.x, max(t.error, LEAST)
    while any(
        abs(math.log(x / a)) < math.log(APART) and abs(math.log(error / b)) < 0.1 for a, b in marks
    ):
        x *= APART
    marks.append((x, error))
    interval = [[max(t.error - t.low, 0.0)], [max(t.high - t.error, 0.0)]]
    face = colour if f.x is not None or f.status == "measured" else "white"
    look: Any = {"fmt": marker, "color": colour, "mfc": face, "ms": 6, "capsize": 2, "zorder": 4}
    half = interval if math.isfinite(t.high) else None
    axes.errorbar([x], [error], yerr=half, label=label, **look)


def _answer(q: Question, m: Measure, f: Finding) -> str:
    if f.trial is None:
        return "none"
    name = f.trial.candidate.name
    if f.status == "measured":
        return f"{m.write(f.trial.error)}, {name}"
    if f.x is None:
        return f"not reached, {name}"
    x = number(f.x, 3)
    return f"epsilon {x}, {name}" if q.epsilon is None else f"{x} users, {name}"
