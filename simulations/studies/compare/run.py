"""Compare protocols of one target on the same users, at one total budget and one adjacency.

Every protocol is run with every seed; rows are ranked by their mean error in the common loss.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedhist.model.error_bounds import LowerBound
from fedhist.privacy.guarantee import Trust
from simulations.reporting.shown import Shown
from simulations.reporting.table import Table
from simulations.studies.compare.setup import Ready
from simulations.studies.records.cells import Record
from simulations.studies.records.levels import Premise, premise_of, suffix
from simulations.studies.records.losses import in_loss
from simulations.studies.records.runs import Runs
from simulations.studies.sweep.run import run_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Row(Runs):
    """One protocol's runs together.

    Attributes
    ----------
    rank : int or None
        From 1; None where nothing was released, or where flags forbid a rank.
    label, protocol : str
    flags : tuple of str
    records : tuple of Record
        In the order of the seeds, in the common loss.
    fraction : float or None
        Share of misbehaving users, where several are compared: a rank is among the rows of one.
    bounds : tuple of LowerBound
        What no protocol of this guarantee can beat for such users, in the common loss.
    level : Trust or None
        The level of trust, where several are compared: a rank is among the rows of one.
    believed : Premise or None
        What must be believed on that level for this row's guarantee.
    """

    rank: int | None
    label: str
    protocol: str
    flags: tuple[str, ...]
    records: tuple[Record, ...]
    fraction: float | None = None
    bounds: tuple[LowerBound, ...] = ()
    level: Trust | None = None
    believed: Premise | None = None

    @property
    def at_least(self) -> LowerBound | None:
        """The largest of the lower bounds."""
        return max(self.bounds, key=lambda b: b.value, default=None)

    @property
    def title(self) -> str:
        """Label without the level of trust, for where that stands beside it."""
        return self.label if self.level is None else self.label.removesuffix(suffix(self.level))

    @property
    def name(self) -> str:
        """Label, with the share of misbehaving users."""
        return self.label if self.fraction is None else f"{self.label} at {self.fraction:g}"

    @property
    def missing(self) -> Counter[str]:
        """How many runs ended otherwise, and how."""
        return Counter(r.status for r in self.records if r.loss is None)

    @property
    def off(self) -> float | None:
        """How far the protocol's own truth is from the common one; None where they are one."""
        found = [r.off[r.loss_name] for r in self.records if r.loss_name in r.off]
        return float(np.mean(found)) if found else None

    def item_measure(self, name: str) -> float | None:
        """Average what is measured of items: "per item", "recall", "top off", "k"."""
        found = [r.items[name] for r in self.records if name in r.items]
        return float(np.mean(found)) if found else None

    def in_norm(self, name: str) -> float | None:
        """Average a distance from the truth in another norm."""
        found = [r.losses[name] for r in self.records if name in r.losses]
        return float(np.mean(found)) if found else None

    @property
    def rounds(self) -> int:
        """Most rounds of any run."""
        return max(r.rounds for r in self.records)

    @property
    def bytes_per_user(self) -> float | None:
        """Bytes that a user sends, averaged over the runs that asked."""
        found = [r.bytes_per_user for r in self.records if r.bytes_per_user is not None]
        return float(np.mean(found)) if found else None

    @property
    def seconds(self) -> float:
        """Mean wall time of a run."""
        return float(np.mean([r.seconds for r in self.records]))


@dataclass(frozen=True, repr=False)
class Compared(Shown):
    """A finished comparison; rows are in the order of the table."""

    kind: ClassVar[str] = "comparison"

    ready: Ready
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """What was compared, of which users, at which budget."""
        c = self.ready.comparison
        budget = f"epsilon = {c.epsilon:g}, delta = {c.delta:g}, {c.adjacency.value}"
        return f"{c.target}: {self.ready.title}; {budget}"

    def tables(self) -> list[Table]:
        """Return the ranking, and who was left out and why.

        The notes of the ranking say what matters about the users and the budget.
        """
        from simulations.studies.compare.tables import ranking

        table = ranking(self)
        told = (*(f"NOT PRIVATE: {f}" for f in self.ready.facts), *self.ready.doubts)
        out = [(x.label, x.reason) for x in self.ready.left_out]
        left = [Table.of(("protocol", "reason"), out, title="left out")] if out else []
        return [replace(table, notes=(*table.notes, *told)), *left]

    def draw(self, figure: Figure) -> None:
        """Draw errors with their intervals and predictions, by level of trust where several are."""
        if self.ready.comparison.levels:
            from simulations.studies.compare.ladder_figure import draw_ladder as draw
        else:
            from simulations.studies.compare.figure import draw_comparison as draw
        draw(self, figure)

    def write(self, folder: Path) -> None:
        """Write settings, records, table and figure into a folder."""
        from simulations.studies.compare.output import write_parts

        write_parts(self, folder)

    @property
    def trivial(self) -> dict[str, float]:
        """Losses of the answers that need no data, by name; equal ones under one name."""
        names: dict[float, list[str]] = {}
        for name, loss in next((row.trivial for row in self.rows if row.trivial), {}).items():
            names.setdefault(loss, []).append(name)
        return {", ".join(same): loss for loss, same in names.items()}

    @property
    def size(self) -> float | None:
        """Loss of the answer that is 0 everywhere."""
        return next((s for row in self.rows for r in row.records if (s := r.size)), None)

    @property
    def records(self) -> list[Record]:
        """All records, row by row."""
        return [r for row in self.rows for r in row.records]


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
