"""A reproduced table or figure as an object, which saves itself as files for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from simulations.experiments.base import Request, Result
from simulations.experiments.catalogue import Experiment
from simulations.experiments.report import EXPERIMENT, causes, draw_on, write_parts
from simulations.reporting.shown import NoFigureError, Shown
from simulations.reporting.table import Column, Table, numeric

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Reproduced(Shown):
    """What an experiment found, and what it was asked."""

    kind: ClassVar[str] = EXPERIMENT

    what: Experiment
    request: Request
    result: Result

    @property
    def title(self) -> str:
        """What is reproduced, of which paper."""
        return f"{self.result.paper}: {self.result.title}"

    def tables(self) -> Sequence[Table]:
        """Return a line per check: the paper's value, ours, what is allowed, the verdict."""
        numbers = numeric(("paper", "ours", "stderr", "difference", "low", "high"))
        rows = [
            (c.setting, c.quantity, c.paper, c.ours, c.stderr, c.difference, c.low, c.high,
             c.verdict if c.judged else "", c.claim)
            for c in self.result.checks
        ]  # fmt: skip
        columns = ["setting", "quantity", *numbers, Column("verdict"), Column("claim", more=True)]
        notes = (*causes(self.result), *self.result.notes, *self.result.not_judged)
        return [Table.of(columns, rows, title=self.title, notes=notes)]

    def draw(self, figure: Figure) -> None:
        """Draw the curves, a panel for each of the paper's."""
        if not self.result.curves:
            raise NoFigureError(f"{self.title} has no curves to draw")
        draw_on(figure, self.result)

    def write(self, folder: Path) -> None:
        """Write the files of the experiment's folder."""
        write_parts(self.what, self.request, self.result, folder)
