"""A finished plan as an object: its answers, and what simulations of them gave."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from simulations.reporting.numbers import clipped
from simulations.reporting.pictures import BLUE, ORANGE
from simulations.reporting.shown import NoFigureError, Shown
from simulations.reporting.table import Table
from simulations.runs.config import Config
from simulations.studies.plan.planner import Answer, plan_levels, plans
from simulations.studies.plan.tables import WORDS, name_of, plans_table, question, verified_table
from simulations.studies.plan.template import PlanTable
from simulations.studies.plan.verify import Verified, verify

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LETTERS = 34


@dataclass(frozen=True, repr=False)
class Planned(Shown):
    """What a target takes, a line per protocol.

    Attributes
    ----------
    answers : tuple of Answer
        At least one; ``x`` of those that do not reach the target is None.
    verified : tuple of Verified
        Simulations of answers; empty where none were asked for.
    """

    kind: ClassVar[str] = "plan"
    not_private: ClassVar[str] = "theory on a template population, which users may have made"

    answers: tuple[Answer, ...]
    verified: tuple[Verified, ...] = ()

    @property
    def title(self) -> str:
        """What was to be found."""
        return question(self.answers[0])

    def tables(self) -> Sequence[Table]:
        """Return the answers, and below how far off they were."""
        found = [plans_table(self.answers)]
        return [*found, verified_table(self.verified)] if self.verified else found

    def draw(self, figure: Figure) -> None:
        """Draw the answers, a row for each, and what simulation needed; NOT PRIVATE."""
        rows = self.answers
        if all(a.x is None for a in rows):
            raise NoFigureError(f"there is nothing to draw: no answer to {self.title}")
        figure.set_figheight(1.2 + 0.3 * len(rows))
        axes = figure.subplots()
        needed = {id(v.answer): v.needed for v in self.verified if math.isfinite(v.needed)}
        for y, a in enumerate(rows):
            if a.x is None:
                axes.text(0.02, y, "not reached", va="center", transform=axes.get_yaxis_transform())
                continue
            axes.plot([a.x], [y], "o", color=BLUE, label="planned")
            if id(a) in needed:
                axes.plot([needed[id(a)]], [y], "|", color=ORANGE, ms=14, mew=2, label="simulated")
        axes.set_xscale("log")
        axes.margins(x=0.2)
        names = [clipped(name_of(a), MOST_LETTERS) for a in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="x", color="#dddddd", lw=0.6)
        axes.set_xlabel(f"{WORDS[rows[0].unknown]}; NOT PRIVATE")
        axes.set_title(self.title, loc="left")
        marks = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        if self.verified:
            figure.legend(marks.values(), marks.keys(), loc="outside lower left", ncols=2)


def answered(template: Config, asked: PlanTable) -> Planned:
    """Plan what a table [plan] asks; errors are those of :func:`plan`."""
    if asked.error is None:
        raise ValueError("a plan needs a target: plan.error")
    names = [*asked.protocols] or [str(template.protocol["name"])]
    more: dict[str, Any] = {"relative": asked.relative, "most": asked.most}
    if asked.levels:
        found = plan_levels(template, names, asked.levels, asked.error, asked.solve, **more)
    else:
        found = plans(template, names, asked.error, asked.solve, **more)
    return Planned(tuple(found))


def simulated(
    found: Planned, asked: PlanTable, progress: Callable[[Answer], None] | None = None
) -> Planned:
    """Simulate the answers of a plan; those that are too large to make are left out.

    Parameters
    ----------
    found : Planned
    asked : PlanTable
    progress : callable, optional
        Called with the answer after each of its runs.
    """
    verified = []
    for a in found.answers:
        told = None if progress is None else partial(progress, a)
        one = verify(a, asked.seeds, most=asked.most, progress=told)
        verified += [] if one is None else [one]
    return replace(found, verified=tuple(verified))
