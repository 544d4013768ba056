"""The lines of a study: what records that differ by their seeds alone say together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedhist.model.truths import LowerBound
from simulations.reporting.intervals import far_off, half_width
from simulations.studies.cells import Record
from simulations.studies.levels import Premise
from simulations.studies.losses import relative, worse_than

LEVEL = 0.95
"""Of the intervals around the mean losses."""


@dataclass(frozen=True)
class Line:
    """A line of a study: one protocol in one setting, over its seeds.

    Attributes
    ----------
    label, protocol : str
    keys : tuple of str
        Of its cells.
    setting : mapping
        Values of the study's axes, by "table.key".
    flags : tuple of str
        Why it cannot be ranked with the others; empty if it can.
    level : str
        The level of trust, where several are compared: a rank is among the lines of one level and
        one setting.
    believed : Premise or None
        What must be believed on that level.
    bounds : tuple of LowerBound
        What no protocol of this guarantee can beat for such users, in the study's loss.
    records : tuple of Record
        Those that are there, in the order of the keys, in the study's loss.
    rank : int or None
        From 1; None where nothing was released, where flags forbid it, and in a grid of settings
        that are no comparison.
    """

    label: str
    protocol: str
    keys: tuple[str, ...] = ()
    setting: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    level: str = ""
    believed: Premise | None = None
    bounds: tuple[LowerBound, ...] = ()
    records: tuple[Record, ...] = ()
    rank: int | None = None

    def plan(self) -> dict[str, Any]:
        """Return what is known before anything is run, as plain data."""
        told = asdict(replace(self, records=(), rank=None))
        return {k: v for k, v in told.items() if k not in ("records", "rank")}

    @classmethod
    def planned(cls, body: Mapping[str, Any]) -> Line:
        """Make it again of :meth:`plan`."""
        told = {k: body[k] for k in ("label", "protocol", "setting", "level")}
        b = body["believed"]
        return cls(
            **told,
            keys=tuple(body["keys"]),
            flags=tuple(body["flags"]),
            believed=None if b is None else Premise(tuple(b["short"]), b["words"]),
            bounds=tuple(LowerBound(**x) for x in body["bounds"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what came of it as plain data, with its plan."""
        names = ["rank", "mean", "half_width", "relative", "worse", "predicted", "ratio"]
        names += ["far_off", "bias", "rounds", "bytes_per_user", "seconds"]
        told = {n: getattr(self, n) for n in names} if self.records else {}
        return {**self.plan(), **told, "statuses": dict(self.statuses)}

    @property
    def title(self) -> str:
        """Label without the level of trust, for where that stands beside it."""
        return self.label.removesuffix(f", {self.level}") if self.level else self.label

    @property
    def statuses(self) -> Counter[str]:
        """How many records have each status."""
        return Counter(r.status for r in self.records)

    @property
    def missing(self) -> Counter[str]:
        """How many runs ended without an estimate, and how."""
        return Counter(r.status for r in self.records if r.loss is None)

    @property
    def loss_name(self) -> str:
        """Which loss; empty if no record has any."""
        return next((r.loss_name for r in self.records if r.loss_name), "")

    @property
    def losses(self) -> list[float]:
        """Losses of the records that are ok."""
        return [r.loss for r in self.records if r.loss is not None]

    @property
    def mean(self) -> float | None:
        """Mean loss of the records that are ok."""
        return _mean(self.losses)

    @property
    def half_width(self) -> float | None:
        """Half the width of the 95% interval of the mean loss; None for a single value.

        By Student's distribution, over the populations where several were drawn, otherwise over
        the runs: runs on the same users are not independent where several populations are.
        """
        by_population: dict[Any, list[float]] = {}
        for r in self.records:
            if r.loss is not None:
                seed = r.cell.get("population", {}).get("seed")
                by_population.setdefault(seed, []).append(r.loss)
        several = len(by_population) > 1
        means = [float(np.mean(v)) for v in by_population.values()]
        return half_width(means if several else self.losses, LEVEL)

    @property
    def predicted(self) -> float | None:
        """Theory's loss, averaged over the populations."""
        return _mean([r.predicted for r in self.records if r.predicted is not None])

    @property
    def predicted_kind(self) -> str:
        """Of what kind theory's prediction is."""
        return next((r.predicted_kind for r in self.records if r.predicted_kind), "")

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.mean / self.predicted if self.mean is not None and self.predicted else None

    @property
    def far_off(self) -> bool:
        """Whether theory is more than a factor of two from measurement, beyond its interval.

        Never where somebody misbehaves: theory is about honest users. A bound is off only where
        it is crossed.
        """
        if self.predicted is None or any(r.cell.get("adversary") for r in self.records):
            return False
        if self.predicted_kind == "bound" and (self.mean or 0.0) < self.predicted:
            return False
        return far_off(self.losses, self.predicted)

    @property
    def relative(self) -> float | None:
        """Mean error as a share of the answer's size, which may differ from run to run."""
        shares = [r.loss / r.size for r in self.records if r.loss is not None and r.size]
        return relative(_mean(shares), 1.0, self.loss_name)

    @property
    def trivial(self) -> dict[str, float]:
        """Mean losses of the answers that need no data, by name."""
        errors: dict[str, list[float]] = {}
        for r in self.records:
            for name, losses in r.trivial.items():
                if r.loss_name in losses:
                    errors.setdefault(name, []).append(losses[r.loss_name])
        return {name: float(np.mean(losses)) for name, losses in errors.items()}

    @property
    def worse(self) -> str:
        """Name of the best answer without data, if this one is worse; else empty."""
        return worse_than(self.mean, self.trivial)

    @property
    def at_least(self) -> LowerBound | None:
        """The largest of the lower bounds."""
        return max(self.bounds, key=lambda b: b.value, default=None)

    @property
    def bias(self) -> float | None:
        """Mean signed error of the records that have one."""
        return self.extra("bias")

    @property
    def rounds(self) -> int:
        """Most rounds of any run."""
        return max((r.rounds for r in self.records), default=0)

    @property
    def bytes_per_user(self) -> float | None:
        """Bytes that a user sends, averaged over the runs that asked."""
        return _mean([r.bytes_per_user for r in self.records if r.bytes_per_user is not None])

    @property
    def seconds(self) -> float | None:
        """Mean wall time of a run."""
        return _mean([r.seconds for r in self.records])

    def extra(self, name: str, of: str = "") -> float | None:
        """Average a number of ``more``: "bias", or "recall" of "items"; or one of "losses"."""
        told = [
            r.losses if of == "losses" else r.more.get(of, {}) if of else r.more
            for r in self.records
        ]
        every = [x.get(name) for x in told]
        return _mean([x for x in every if x is not None])

    @property
    def first(self) -> Record:
        """A record that says what the protocol promises, if there is one."""
        return next((r for r in self.records if r.guarantee), self.records[0])


def _mean(values: Sequence[float]) -> float | None:
    with np.errstate(all="ignore"):
        return float(np.mean(values)) if values else None


def ranked(lines: Sequence[Line]) -> list[Line]:
    """Put the lines of one setting and one level in order and number them.

    By mean error; after those that always answered come those that sometimes did not, whose mean
    is over their good runs, and then those that never answered. Lines with flags follow, without
    a rank.
    """

    def order(line: Line) -> tuple[bool, bool, bool, float]:
        mean = math.inf if line.mean is None or math.isnan(line.mean) else line.mean
        return bool(line.flags), line.mean is None, bool(line.missing), mean

    out: list[Line] = []
    for line in sorted(lines, key=order):
        rank = None if line.flags or line.mean is None else len(out) + 1
        out.append(replace(line, rank=rank))
    return out
