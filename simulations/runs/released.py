"""What several releases leave: one folder, one table, one page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedhist.model.protocol import EXIT_CODES, Status
from simulations.reporting.estimates import write_table
from simulations.reporting.files import write_json
from simulations.reporting.intervals import NORMAL
from simulations.reporting.shown import Shown
from simulations.reporting.table import Column, Table, number, numeric
from simulations.runs.options import Outcome
from simulations.runs.releases import Done, Part
from simulations.runs.results import NOT_PRIVATE, protocol_fields, spent_in_words

RELEASES = "releases"
"""The kind of folder that they write."""

MOST_ROWS = 10
"""Rows of a release that the table shows; the files have all."""


@dataclass(frozen=True, repr=False)
class Released(Shown):
    """Several releases as they are shown and written."""

    kind: ClassVar[str] = RELEASES
    not_private: ClassVar[str] = "truths and errors, and seeds; estimates are as the guarantee says"

    done: Done

    @property
    def title(self) -> str:
        planned = self.done.planned
        n = f"{len(planned.parts)} releases of {planned.n_users:,} users"
        return f"{planned.name}: {n}, {planned.guarantee}"

    @property
    def status(self) -> Status:
        """The worst that one of them ended in."""
        statuses = [o.estimate.status for jobs in self.done.outcomes for o in jobs]
        return max(statuses, key=lambda s: EXIT_CODES[s])

    def tables(self) -> Sequence[Table]:
        return [self.values, self.budgets]

    @property
    def values(self) -> Table:
        """What was released: the largest items, all other numbers up to ten of a release."""
        rows, left = list[list[Any]](), list[str]()
        for part in self.done.planned.parts:
            own = [r for r in self.done.rows if r.release == part.label]
            if part.by is None and part.whole.users.items is not None:
                own.sort(key=lambda r: -r.estimate)
            if len(own) > MOST_ROWS:
                left.append(f"{part.label}: {MOST_ROWS} of {len(own):,}")
            for r in own[:MOST_ROWS]:
                told = ["" if math.isnan(x) else x for x in (NORMAL * r.stderr, r.truth)]
                rows.append([r.release, r.key, r.estimate, *told])
        names = ("estimate", "± 1.96 s.e.", "truth (NOT PRIVATE)")
        columns = [Column("release", keep=True), "of", *numeric(names, write=number)]
        return Table.of(columns, rows, notes=left)

    @property
    def budgets(self) -> Table:
        """Who was asked, at what price, and how far off it was."""
        rows = [
            [
                part.label,
                part.protocol.name,
                len(part.users),
                part.protocol.guarantee.epsilon,
                part.protocol.guarantee.delta,
                f"{part.asked.loss_name} {number(error, 3)}",
                " ".join(dict.fromkeys(o.estimate.status for o in jobs)),
            ]
            for part, jobs, error in zip(
                self.done.planned.parts, self.done.outcomes, self.done.errors, strict=True
            )
        ]
        names = ("users", "epsilon", "delta")
        columns = ["release", "protocol", *numeric(names), "error (NOT PRIVATE)", "status"]
        return Table.of(columns, rows)

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        done = self.done
        total = done.ledger.spent()
        spent = f"spent: epsilon = {total.epsilon:.6g} at delta = {total.delta:g} ({total.how})"
        dealt = done.planned.how_local
        pairs = [
            (f"{p.label}{f', {p.by.groups.names[i]}' if p.by else ''}: ", o.estimate)
            for p, jobs in zip(done.planned.parts, done.outcomes, strict=True)
            for i, o in enumerate(jobs)
        ]
        warnings = [label + w for label, e in pairs for w in e.warnings]
        choices = [
            f"{p.label}: {w}" for p in done.planned.parts for job in p.jobs for w in job.not_private
        ]
        replayed = [
            f"{p.label}: {o.from_journal}"
            for p, jobs in zip(done.planned.parts, done.outcomes, strict=True)
            for o in jobs
            if o.replayed
        ]
        return [
            ("guarantee", [str(done.planned.guarantee), spent, *([dealt] if dealt else [])]),
            ("without a value", [x for read in done.read for x in read.missing]),
            ("warnings", warnings),
            ("journal", replayed),
            ("records (NOT PRIVATE)", [x for read in done.read for x in read.notes]),
            ("chosen by looking at the data", list(dict.fromkeys(choices))),
        ]

    def document(self) -> dict[str, Any]:
        done = self.done
        pairs = zip(done.planned.parts, done.outcomes, done.errors, strict=True)
        return super().document() | {
            "status": self.status,
            "ledger": self.ledger(),
            "releases": [self._release(*pair) for pair in pairs],
        }

    def _release(self, part: Part, jobs: Sequence[Outcome], error: float) -> dict[str, Any]:
        return {
            "label": part.label,
            "protocol": protocol_fields(part.protocol),
            "asked for": part.asked.name,
            "population": dict(part.jobs[0].config.population),
            "groups": [] if part.by is None else list(part.by.groups.names),
            "cohort": None if part.cohort is None else vars(part.cohort),
            "status": [o.estimate.status for o in jobs],
            "public": [dict(o.estimate.public) for o in jobs],
            NOT_PRIVATE: {"error": error, "seeds": [o.seed for o in jobs]},
        }

    def ledger(self) -> dict[str, Any]:
        """Return what was spent, by whom, as plain data."""
        ledger = self.done.ledger
        return {
            "guarantee": str(self.done.planned.guarantee),
            "adjacency": ledger.adjacency.value,
            "noise": ledger.noise,
            **spent_in_words(ledger),
        }

    def write(self, folder: Path) -> None:
        super().write(folder)
        write_json(folder / "ledger.json", self.ledger())
        write_json(folder / "run.json", vars(self.done.planned.run))
        names = ("release", "key", "estimate", "stderr")
        columns = {n: [getattr(r, n) for r in self.done.rows] for n in names}
        write_table(folder, columns)
