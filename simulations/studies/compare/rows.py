"""What a comparison found: a row for each protocol, as data that tables and figures are made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from fedhist.model.prediction import LowerBound
from fedhist.privacy.guarantee import Trust
from simulations.studies.compare.setup import Ready
from simulations.studies.records.cells import Record
from simulations.studies.records.levels import Premise, suffix
from simulations.studies.records.runs import Runs


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


@dataclass(frozen=True)
class Ranked:
    """A finished comparison; rows are in the order of the table."""

    ready: Ready
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """What was compared, of which users, at which budget."""
        c = self.ready.comparison
        budget = f"epsilon = {c.epsilon:g}, delta = {c.delta:g}, {c.adjacency.value}"
        return f"{c.target}: {self.ready.title}; {budget}"

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
