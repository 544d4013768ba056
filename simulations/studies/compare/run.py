"""Compare protocols of one target on the same users, at one total budget and one adjacency.

Every protocol is run with every seed; rows are ranked by their mean error in the common loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from simulations.reporting.export import save_figure
from simulations.reporting.shown import Shown
from simulations.reporting.table import Table
from simulations.studies.compare.figure import draw_comparison
from simulations.studies.compare.ladder_figure import draw_ladder
from simulations.studies.compare.output import write_parts
from simulations.studies.compare.rows import Ranked, Row
from simulations.studies.compare.setup import Ready
from simulations.studies.compare.tables import ranking
from simulations.studies.records.cells import Record
from simulations.studies.records.levels import premise_of
from simulations.studies.records.losses import in_loss
from simulations.studies.sweep.run import run_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Compared(Ranked, Shown):
    """A finished comparison, which shows itself."""

    kind: ClassVar[str] = "comparison"

    def tables(self) -> list[Table]:
        """Return the ranking, and who was left out and why.

        The notes of the ranking say what matters about the users and the budget.
        """
        table = ranking(self)
        told = (*(f"NOT PRIVATE: {f}" for f in self.ready.facts), *self.ready.doubts)
        out = [(x.label, x.reason) for x in self.ready.left_out]
        left = [Table.of(("protocol", "reason"), out, title="left out")] if out else []
        return [replace(table, notes=(*table.notes, *told)), *left]

    def draw(self, figure: Figure) -> None:
        """Draw errors with their intervals and predictions, by level of trust where several are."""
        draw = draw_ladder if self.ready.comparison.levels else draw_comparison
        draw(self, figure)

    def write(self, folder: Path) -> None:
        """Write settings, records, table and figure into a folder."""
        write_parts(self, folder)
        save_figure(self.draw, folder / "figure.png", width=8.0)


def run_comparison(
    ready: Ready,
    *,
    workers: int | None = 0,
    address: str | None = None,
    progress: Callable[[], None] | None = None,
) -> Compared:
    """Run every protocol with every fraction and every seed, and rank those of one fraction.

    Parameters
    ----------
    ready : Ready
    workers : int, optional
        Processes on Ray; 0 runs in this process; None takes all cores.
    address : str, optional
        Join this Ray cluster.
    progress : callable, optional
        Called after every run.
    """
    found: dict[tuple[str, float | None, int | None], Record] = {}
    for record in run_all(ready.cells, workers, address):
        place = record.label, _share(ready, record), record.seed
        found[place] = in_loss(record, ready.loss)
        if progress is not None:
            progress()
    rows: list[Row] = []
    for fraction in ready.fractions:
        for level in ready.comparison.levels or (None,):
            part = []
            for c in ready.contenders:
                if c.level is not level:
                    continue
                records = tuple(found[c.label, fraction, s] for s in ready.comparison.seeds)
                row = Row(None, c.label, c.protocol.name, c.flags, records, fraction, c.bounds)
                believed = None if level is None else premise_of(c.protocol)
                part.append(replace(row, level=level, believed=believed))
            rows += ranked(part)
    return Compared(ready, tuple(rows))


def _share(ready: Ready, record: Record) -> float | None:
    """Return a record's share of misbehaving users where several are compared."""
    return float(record.cell["adversary"][0]["fraction"]) if ready.comparison.fractions else None


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Put rows in order and number them.

    By mean error; after those that always answered come those that sometimes did not, whose mean
    is over their good runs, and then those that never answered. Rows with flags follow, without
    a rank.
    """

    def order(row: Row) -> tuple[bool, bool, bool, float]:
        mean = math.inf if row.mean is None or math.isnan(row.mean) else row.mean
        return bool(row.flags), row.mean is None, bool(row.missing), mean

    out: list[Row] = []
    for row in sorted(rows, key=order):
        rank = None if row.flags or row.mean is None else len(out) + 1
        out.append(replace(row, rank=rank))
    return out
