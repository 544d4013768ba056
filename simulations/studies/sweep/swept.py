"""A sweep's records as an object: what the file of a study holds, a line per setting."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from simulations.reporting.numbers import clipped, shown
from simulations.reporting.pictures import COLOURS
from simulations.reporting.shown import NoFigureError, Shown
from simulations.reporting.table import Table
from simulations.studies.records.cells import Record
from simulations.studies.records.filters import select
from simulations.studies.records.losses import as_shares, in_one_loss
from simulations.studies.records.settings_table import notes_of, summary_tables
from simulations.studies.records.store import Store, frame_of
from simulations.studies.records.summary import Group, axes, groups, unit_of

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

MARKERS = "os^Dv<>P"
MOST_LETTERS = 40


@dataclass(frozen=True, repr=False)
class Swept(Shown):
    """Records of a study, in the common order of its cells or of its file.

    Attributes
    ----------
    name : str
    records : tuple of Record
        At least one.
    left_out : tuple of str
        Levels of trust that a protocol has not, with the reason.
    """

    kind: ClassVar[str] = "records"

    name: str
    records: tuple[Record, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Read the file of a study, to which another process may be writing.

        Raises
        ------
        ValueError
            If there is no such file, or it has no records.
        """
        with Store(path, create=False) as store:
            records = tuple(store.records())
        if not records:
            raise ValueError(f"{path} has no records yet")
        return cls(Path(path).stem, records)

    @property
    def title(self) -> str:
        """Its name, and how its cells ended."""
        counts = Counter(r.status for r in self.records)
        told = ", ".join(f"{n:,} {status}" for status, n in sorted(counts.items()))
        return f"{self.name}: {len(self.records):,} cells ({told})"

    @property
    def frame(self) -> pl.DataFrame:
        """All records, a row each: settings, losses, predictions, guarantees."""
        return frame_of(self.records)

    def where(self, *conditions: str) -> Self:
        """Keep the records for which all conditions hold.

        Parameters
        ----------
        *conditions : str
            "epsilon = 1", "n_users >= 1000", as of ``fedhist results --where``.

        Raises
        ------
        ValueError
            For a condition that cannot be meant, or if no record is left.
        """
        kept = set(select(self.frame, conditions)["key"].to_list())
        records = tuple(r for r in self.records if r.key in kept)
        if not records:
            raise ValueError(f"no record of {self.name} has {' and '.join(conditions)}")
        return replace(self, records=records)

    def tables(self) -> Sequence[Table]:
        """Return a line per setting: the mean loss over the seeds, theory's, their ratio.

        A table for each target, whose losses are one; the last has what is said of all.
        """
        *others, last = summary_tables(self.records)
        left = tuple(f"left out: {line}" for line in self.left_out)
        return [*others, replace(last, notes=(*last.notes, *notes_of(self.records), *left))]

    def draw(self, figure: Figure) -> None:
        """Draw errors and theory against the axis of numbers that has most values; NOT PRIVATE."""
        records, _, _ = in_one_loss(self.records)
        found = [g for g in groups(records) if g.mean is not None]
        names = axes(found)
        x = max(
            (n for n in names if all(_is_number(g.setting.get(n)) for g in found)),
            key=lambda n: len({g.setting[n] for g in found}),
            default=None,
        )
        if x is None:
            raise NoFigureError(f"{self.name} has no axis of numbers to draw errors against")
        shares = as_shares(records) if x.endswith(".n_users") else None
        if shares is not None:  # an error in counts grows with the users
            found = [g for g in groups(shares) if g.mean is not None]
        lines: dict[str, list[Group]] = {}
        for g in found:
            others = [f"{n.partition('.')[2]} = {shown(g.setting.get(n))}" for n in names if n != x]
            lines.setdefault(", ".join([g.label, *others]), []).append(g)
        panel = figure.subplots()
        for i, (label, own) in enumerate(lines.items()):
            _draw_line(panel, i, clipped(label, MOST_LETTERS), x, own)
        figure.set_figheight(0.55 * figure.get_figwidth() + 0.16 * len(lines))
        if min(g.mean or 0.0 for g in found) > 0:
            panel.set_yscale("log")
        values = sorted({float(g.setting[x]) for g in found})
        if values[0] > 0 and values[-1] >= 8 * values[0]:
            panel.set_xscale("log")
            marked = _apart(values)
            panel.set_xticks(marked, [f"{v:g}" for v in marked])
            between = [v for v in values if v not in marked]
            panel.set_xticks(between, [""] * len(between), minor=True)
        panel.set_xlabel(x.partition(".")[2].replace("_", " "))
        losses, targets = {g.loss_name for g in found}, {r.target for r in self.records}
        unit = unit_of(*losses, *targets) if len(losses) == len(targets) == 1 else "error"
        unit = unit if shares is None else "error relative to the answer's size"
        panel.set_ylabel(f"{unit}; NOT PRIVATE")
        panel.set_title(self.title, loc="left")
        figure.legend(*panel.get_legend_handles_labels(), loc="outside lower left", frameon=False)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _apart(values: Sequence[float]) -> list[float]:
    """Choose the values of a logarithmic axis that have room for a label.

    >>> _apart([0.5, 1.0, 1.1, 2.0, 4.0])
    [0.5, 1.0, 2.0, 4.0]
    """
    room = math.log(values[-1] / values[0]) / 6
    kept = [values[0]]
    for v in values[1:]:
        if math.log(v / kept[-1]) >= room:
            kept.append(v)
    return kept


def _draw_line(panel: Any, i: int, label: str, x: str, found: Sequence[Group]) -> None:
    """Draw one line of points with the intervals of their means, and theory as dashes."""
    own = sorted(found, key=lambda g: float(g.setting[x]))
    at, means = [g.setting[x] for g in own], [g.mean for g in own]
    half = [g.half_width or 0.0 for g in own]
    look = {"color": COLOURS[i % len(COLOURS)]}
    panel.errorbar(
        at, means, half, fmt=f"{MARKERS[i % len(MARKERS)]}-", ms=4, capsize=2, **look, label=label
    )
    told = [(g.setting[x], g.predicted) for g in own if g.predicted]
    if told:
        theory = None if i else "theory"
        panel.plot(*zip(*told, strict=True), "--", lw=0.9, **look, label=theory)
