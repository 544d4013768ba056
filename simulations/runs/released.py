"""Several releases are run, and what they leave: one folder, one table, one page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedhist.base.errors import PopulationError
from fedhist.model.evaluation import measured
from fedhist.model.protocol import EXIT_CODES, Estimate, Status
from fedhist.privacy.ledger import Ledger
from simulations.reporting.estimates import columns_of, write_table
from simulations.reporting.files import write_json
from simulations.reporting.intervals import NORMAL
from simulations.reporting.shown import Shown
from simulations.reporting.table import Column, Table, number, numeric
from simulations.runs.booked_run import Reservations, one_ray
from simulations.runs.columns import BETWEEN
from simulations.runs.options import Outcome
from simulations.runs.releases import Part, Planned, users_of
from simulations.runs.results import NOT_PRIVATE, protocol_fields, spent_in_words
from simulations.runs.run import drive, open_session, own_options

RELEASES = "releases"
"""The kind of folder that they write."""

MOST_ROWS = 10
"""Rows of a release that the table shows; the files have all."""


@dataclass(frozen=True)
class Row:
    """A released number. ``truth`` is NOT PRIVATE, and NaN where it is not known."""

    release: str
    key: str
    estimate: float
    stderr: float
    truth: float


@dataclass(frozen=True)
class Read:
    """What one release says.

    ``loss``: over groups their mean, NaN without a value, NOT PRIVATE; ``missing``: why there is no
    value, of all or of a group; ``notes``: records that count as something else. NOT PRIVATE.
    """

    rows: list[Row]
    loss: float = math.nan
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Released(Shown):
    """What several releases have given.

    ``outcomes``: of each release its runs; ``book``: their line in the data set's ledger.
    """

    kind: ClassVar[str] = RELEASES
    not_private: ClassVar[str] = "truths and errors, and seeds; estimates are as the guarantee says"

    planned: Planned
    outcomes: tuple[tuple[Outcome, ...], ...]
    ledger: Ledger
    read: tuple[Read, ...]
    book: Reservations

    @property
    def rows(self) -> list[Row]:
        """All released numbers."""
        return [row for read in self.read for row in read.rows]

    @property
    def title(self) -> str:
        planned = self.planned
        n = f"{len(planned.parts)} releases of {planned.n_users:,} users"
        return f"{planned.name}: {n}, {planned.guarantee}"

    @property
    def status(self) -> Status:
        """The worst that one of them ended in."""
        statuses = [o.estimate.status for jobs in self.outcomes for o in jobs]
        return max(statuses, key=lambda s: EXIT_CODES[s])

    def tables(self) -> Sequence[Table]:
        return [self.values, self.budgets]

    @property
    def values(self) -> Table:
        """What was released: the largest items, all other numbers up to ten of a release."""
        rows, left = list[list[Any]](), list[str]()
        for part in self.planned.parts:
            own = [r for r in self.rows if r.release == part.label]
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
                f"{part.asked.loss_name} {number(read.loss, 3)}",
                " ".join(dict.fromkeys(o.estimate.status for o in jobs)),
            ]
            for part, jobs, read in zip(self.planned.parts, self.outcomes, self.read, strict=True)
        ]
        names = ("users", "epsilon", "delta")
        columns = ["release", "protocol", *numeric(names), "error (NOT PRIVATE)", "status"]
        return Table.of(columns, rows)

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        total = self.ledger.spent()
        spent = f"spent: epsilon = {total.epsilon:.6g} at delta = {total.delta:g} ({total.how})"
        dealt = self.planned.how_local
        pairs = [
            (f"{p.label}{f', {p.by.groups.names[i]}' if p.central and p.by else ''}: ", o.estimate)
            for p, jobs in zip(self.planned.parts, self.outcomes, strict=True)
            for i, o in enumerate(jobs)
        ]
        warnings = [label + w for label, e in pairs for w in e.warnings]
        choices = [
            f"{p.label}: {w}" for p in self.planned.parts for job in p.jobs for w in job.not_private
        ]
        replayed = [
            f"{p.label}: {o.from_journal}"
            for p, jobs in zip(self.planned.parts, self.outcomes, strict=True)
            for o in jobs
            if o.replayed
        ]
        return [
            ("guarantee", [str(self.planned.guarantee), spent, *([dealt] if dealt else [])]),
            ("without a value", [x for read in self.read for x in read.missing]),
            ("warnings", warnings),
            ("journal", replayed),
            ("records (NOT PRIVATE)", [x for read in self.read for x in read.notes]),
            ("chosen by looking at the data", list(dict.fromkeys(choices))),
        ]

    def document(self) -> dict[str, Any]:
        each = zip(self.planned.parts, self.outcomes, self.read, strict=True)
        return super().document() | {
            "status": self.status,
            "ledger": self.spending(),
            "releases": [self._release(*release) for release in each],
        }

    def _release(self, part: Part, jobs: Sequence[Outcome], read: Read) -> dict[str, Any]:
        return {
            "label": part.label,
            "protocol": protocol_fields(part.protocol),
            "asked for": part.asked.name,
            "population": dict(part.jobs[0].config.population),
            "groups": [] if part.by is None else list(part.by.groups.names),
            "cohort": None if part.cohort is None else vars(part.cohort),
            "status": [o.estimate.status for o in jobs],
            "public": [dict(o.estimate.public) for o in jobs],
            NOT_PRIVATE: {"error": read.loss, "seeds": [o.seed for o in jobs]},
        }

    def spending(self) -> dict[str, Any]:
        """Return what was spent, by whom, as plain data."""
        return {
            "guarantee": str(self.planned.guarantee),
            "adjacency": self.ledger.adjacency.value,
            "noise": self.ledger.noise,
            **spent_in_words(self.ledger),
        }

    def write(self, folder: Path) -> None:
        super().write(folder)
        write_json(folder / "ledger.json", self.spending())
        write_json(folder / "run.json", vars(self.planned.run))
        columns: dict[str, Any] = {
            n: [getattr(r, n) for r in self.rows] for n in ("release", "key")
        }
        for name in ("estimate", "stderr"):
            columns[name] = np.array([getattr(r, name) for r in self.rows], dtype=np.float64)
        write_table(folder, columns, {})


def run_releases(
    planned: Planned, progress: Callable[[int, int, int], None] | None = None
) -> Released:
    """Run the releases one after the other, under one line of the data set's ledger.

    Raises CapExceeded if that ledger does not allow all of them; nobody has been asked then. With a
    journal a run that was killed goes on where it was: ended releases repeat what they gave.
    """
    run = planned.run
    asked_of = [
        [(job, own_options(own_options(run.options(progress=progress), i), g)) for g, job in jobs]
        for i, jobs in enumerate(enumerate(p.jobs) for p in planned.parts)
    ]
    journals = [
        (own.journal, job.protocol) for job, own in chain(*asked_of) if own.journal is not None
    ]
    safe = planned.null_safe
    book = Reservations(run, planned.name, planned.guarantee, journals, null_safe=safe)
    outcomes = []
    try:
        with one_ray(run.runtime, run.workers, run.ray_address):
            for jobs in asked_of:
                done = []
                for job, own in jobs:
                    session, seed = open_session(job.protocol, own)
                    book.opened(session)
                    done.append(drive(session, seed, users_of(job), own))
                outcomes.append(tuple(done))
    except BaseException:
        book.give_back()
        raise
    ledger = Ledger(planned.guarantee)
    ledger.noise, ledger.null_safe = run.noise, planned.null_safe
    given = [[o.estimate for o in jobs] for jobs in outcomes]
    for part, estimates in zip(planned.parts, given, strict=True):
        ledger.include(part.charges(estimates, planned.guarantee.adjacency))
    book.settle(ledger)
    read = [_read(part, estimates) for part, estimates in zip(planned.parts, given, strict=True)]
    return Released(planned, tuple(outcomes), ledger, tuple(read), book)


def _read(part: Part, estimates: Sequence[Estimate]) -> Read:
    """List what was released, beside the truth of all users."""
    if part.by is None or (estimates[0].value is None and not part.central):
        return _read_one(part, estimates[0])
    if not part.central:
        estimates = part.by.read_cells(estimates[0])
    rows, losses = list[Row](), list[float]()
    truths, missing = part.by.truths(estimates), list[str]()
    for (truth, loss), name, estimate in zip(truths, part.by.groups.names, estimates, strict=True):
        if estimate.value is None:
            missing.append(f"{part.label}, {name}: {estimate.reason}")
            continue
        losses += [] if math.isnan(loss) else [loss]
        values, keys = np.atleast_1d(np.asarray(estimate.value)), part.asked.positions
        errors = np.full(len(values), math.nan) if estimate.stderr is None else estimate.stderr
        true = np.full(len(values), math.nan) if truth is None else truth
        for i, cell in enumerate(zip(values, np.atleast_1d(errors), true, strict=True)):
            key = name if keys is None else f"{name}{BETWEEN}{keys[i]:g}"
            rows.append(Row(part.label, key, *map(float, cell)))
    return Read(rows, float(np.mean(losses)) if losses else math.nan, tuple(missing))


def _read_one(part: Part, estimate: Estimate) -> Read:
    if estimate.value is None:
        return Read([], missing=(f"{part.label}: {estimate.reason}",))
    scale, protocol, notes = part.scale, part.protocol, list[str]()
    stderr = None if estimate.stderr is None else estimate.stderr * scale
    estimate = replace(estimate, value=estimate.needed(part.label) * scale, stderr=stderr)
    columns = columns_of(estimate)
    keys, value = columns["key"], columns["estimate"].tolist()
    truth, loss = np.full(len(value), math.nan), math.nan
    try:
        known = measured(protocol, part.whole.users)
        if counted := protocol.empty_record:
            notes = [
                f"{part.label}: {what}: {count:,.0f} of {known.n_users:,} users, each counted as "
                f"{counted}"
                for what, count in known.diagnostics.items()
                if count
            ]
        loss = protocol.loss_of(estimate, part.whole.users, known=known)
        truth = np.atleast_1d(known.truth)
        if known.support is not None:
            at = known.support.positions(keys)
            truth = np.where(at >= 0, truth[at], math.nan)
    except PopulationError:  # nobody holds what it is about
        pass
    places = protocol.positions
    names = (
        list(keys) if estimate.keys is not None or places is None else [f"{x:g}" for x in places]
    )
    spread = columns.get("stderr", np.full(len(value), math.nan)).tolist()
    cells = zip(names, value, spread, truth.tolist(), strict=True)
    return Read([Row(part.label, *cell) for cell in cells], loss, notes=tuple(notes))
