"""A prepared configuration run as often as it says, each time booked in the data set's ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedhist.base.errors import BudgetExceeded, FedhistError
from fedhist.model.evaluation import check_rows, first_pass
from fedhist.model.protocol import Protocol
from fedhist.privacy.guarantee import Guarantee
from fedhist.privacy.ledger import Ledger
from server.session.journal import Journal
from server.session.session import Session, claim
from simulations.populations import Loaded
from simulations.runs.config import Prepared, RunTable
from simulations.runs.data_ledger import DataLedger
from simulations.runs.results import Finished, evaluate, folder_for, write_results
from simulations.runs.run import check_population, drive, execute, open_session

if TYPE_CHECKING:
    from simulations.runs.repeat import Repeated

Progress = Callable[[int, int, int], None]


def run_job(
    prepared: Prepared,
    progress: Progress | None = None,
    *,
    force: bool = False,
    show: Callable[[Finished], None] = lambda finished: None,
) -> Finished:
    """Run a prepared configuration, show its results and write them, by force if anything is there.

    They are shown first: no folder may be left to write to.

    Raises CapExceeded if the data set's ledger does not allow the run; nothing has been asked then.
    """
    table, adversaries = prepared.config.run, prepared.config.adversaries
    if prepared.plan is None:
        raise ValueError(
            "the population is remote: its users are asked by a deployment (flwr run), not here"
        )
    users = prepared.plan.users
    check_rows(prepared.protocol, len(users))
    # options that exclude each other, or the population, are refused before anything is reserved
    check_population(prepared.protocol, users, table.options(adversaries=adversaries))
    # every repeat is a release of its own; all are reserved before anybody is asked
    book = booked(prepared, table.repeats)
    outcomes = []
    try:
        with one_ray(table.runtime, table.workers, table.ray_address):
            for index in range(table.repeats):
                seed = {"seed": table.seed + index} if table.seed >= 0 else {}
                more = {"progress": progress, "adversaries": adversaries, **seed}
                once = index or isinstance(prepared.plan, Loaded)  # they are not made again
                beside = None if once else first_pass(prepared.protocol)
                options = table.options(beside=beside, **more)
                session, drawn = open_session(prepared.protocol, options)
                book.opened(session)
                outcomes.append(drive(session, drawn, users, options))
                book.settle()
            prepared = replace(prepared, total=outcomes[0].measured)
            folder = folder_for(prepared.config.name, table.out)
            finished = Finished(prepared, outcomes, None, folder)
            try:
                started = time.perf_counter()
                finished = replace(finished, evaluation=evaluate(prepared, outcomes))
                outcomes[0].seconds["evaluation"] = time.perf_counter() - started
                show(finished)
            except BaseException as e:  # budget is spent: nothing is lost that cannot be shown
                if finished.evaluation is None:
                    vars(prepared)["known"] = None  # what has failed is not begun again
                write_results(finished, force=force)
                e.add_note(f"written to {folder}")
                raise
    except BaseException:
        book.give_back()
        raise
    write_results(finished, force=force)
    book.check(folder)
    return finished


def repeat_job(prepared: Prepared, progress: Callable[[int, int], None]) -> Repeated:
    """Run a configuration with a table [repeat]; ValueError for what does not go with it."""
    from simulations.runs.repeat import repeat

    law, run = prepared.config.repeat, prepared.config.run
    if prepared.plan is None or law is None:
        raise ValueError("a deployment is asked again by running it again: leave [repeat] out")
    if run.ledger or run.repeats > 1:
        raise ValueError(
            "a repeat is a simulation with totals of its own: leave run.ledger and run.repeats out"
        )
    options = run.options(adversaries=prepared.config.adversaries)
    repeated = repeat(execute, prepared.protocol, prepared.plan.users, law, options, progress)
    return replace(repeated, settings=prepared.config.to_dict())


def booked(prepared: Prepared, repeats: int = 1) -> Reservations:
    """Reserve the runs of a configuration in its data set's ledger, if it names one."""
    run, protocol = prepared.config.run, prepared.protocol
    journals = [(run.journal, protocol)] if run.journal else []
    name, safe = prepared.config.name, protocol.null_safe
    return Reservations(run, name, protocol.guarantee, journals, repeats, null_safe=safe)


class Reservations:
    """A job's lines in the ledger of its data set: one for every repeat, or none at all.

    ``journals``: the folders of the runs on one line, each with its protocol.

    Raises CapExceeded if the ledger does not allow all of them; none is reserved then; FedhistError
    if the journal is another run's, or another process goes on from it.
    """

    def __init__(
        self,
        run: RunTable,
        what: str,
        guarantee: Guarantee,
        journals: Sequence[tuple[str | Path, Protocol]] = (),
        repeats: int = 1,
        *,
        null_safe: bool,
    ) -> None:
        self._ledger = DataLedger(run.ledger) if run.ledger else None
        self._journalled = bool(run.journal)
        self._lines: list[int] = []
        self._sessions: list[Session] = []
        self._unsettled: OSError | None = None
        if self._ledger is None:
            return
        name, ended = "", bool(journals)
        for folder, protocol in journals:
            with closing(Journal(folder)) as journal:
                claim(journal, protocol, run.noise)
                name, ended = name or journal.name, ended and journal.ended
        try:
            while len(self._lines) < repeats:
                line = self._ledger.reserve(what, guarantee, name, ended=ended, null_safe=null_safe)
                self._lines.append(line)
        except BudgetExceeded:
            for line in self._lines:
                self._ledger.settle(line, None)
            raise

    def opened(self, session: Session) -> None:
        """Say which session the next line is for; several may be."""
        self._sessions.append(session)

    def settle(self, ledger: Ledger | None = None) -> None:
        """Replace the reservation by what was spent: by its session, if no ledger is given.

        What was paid for is written first, if the ledger cannot be: see :meth:`check`.
        """
        if self._ledger is not None and self._sessions:
            try:
                own = self._sessions[-1].ledger if ledger is None else ledger
                self._ledger.settle(self._lines.pop(0), own)
            except OSError as e:
                self._unsettled = e
        self._sessions = []

    def check(self, folder: Path) -> None:
        """Raise FedhistError if a ledger still says "reserved" of a run that has ended."""
        if self._unsettled is not None:
            raise FedhistError(
                f"the ledger could not be written ({self._unsettled}): it holds the reservation, "
                f"which is no less than what was spent; the results are in {folder}"
            ) from self._unsettled

    def give_back(self) -> None:
        """Settle what is still reserved to nothing, apart from a session that may have asked.

        The line of a run with a journal stays: another process may go on from the journal, under
        the same line, and a restart finds it again.
        """
        if self._ledger is None or self._journalled:
            return
        asked = any(session.asked for session in self._sessions)
        for line in self._lines[int(asked) :]:
            self._ledger.settle(line, None)
        self._lines = []


def one_ray(name: str, workers: int, address: str) -> AbstractContextManager[object]:
    """Keep one Ray for all repeats."""
    if name != "ray":
        return nullcontext()
    from simulations.runtimes.ray_start import ray_session

    return ray_session(workers or None, address or None)
