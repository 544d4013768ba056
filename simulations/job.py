"""A job: a prepared configuration, run as often as it says, within the data set's ledger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from fedhist.errors import BudgetExceeded
from fedhist.journal import journal_name
from simulations.config import Prepared
from simulations.output import Evaluation, evaluate, write_results
from simulations.run import Outcome, execute
from simulations.spending import DataLedger

Progress = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Finished:
    """A finished job: its runs, how far off they were, and where they were written."""

    prepared: Prepared
    outcomes: list[Outcome]
    evaluation: Evaluation | None
    folder: Path


def run_job(prepared: Prepared, progress: Progress | None = None) -> Finished:
    """Run a prepared configuration and write its results.

    Raises
    ------
    CapExceeded
        If the data set's ledger does not allow the run; nothing has been asked then.
    """
    table = prepared.config.run
    if prepared.loaded is None:
        raise ValueError(
            "the population is remote: its users are asked by a deployment (flwr run), not here"
        )
    # options that exclude each other are refused before anything is reserved
    table.options(adversaries=prepared.config.adversaries)
    ledger = DataLedger(table.ledger) if table.ledger else None
    # every repeat is a release of its own; all are reserved before anybody is asked
    lines = reserve(ledger, prepared, table.repeats) if ledger is not None else []
    outcomes = []
    with _runtime(table.runtime, table.workers, table.ray_address):
        for repeat in range(table.repeats):
            seed = {"seed": table.seed + repeat} if table.seed >= 0 else {}
            options = table.options(
                progress=progress, adversaries=prepared.config.adversaries, **seed
            )
            outcome = execute(prepared.protocol, prepared.loaded.users, options)
            outcomes.append(outcome)
            if ledger is not None:
                ledger.settle(lines[repeat], outcome.estimate.ledger)
    evaluation = evaluate(prepared, outcomes)
    folder = write_results(prepared, outcomes, evaluation, table.out)
    return Finished(prepared, outcomes, evaluation, folder)


def reserve(ledger: DataLedger, prepared: Prepared, repeats: int) -> list[int]:
    """Reserve the guarantee of every repeat, or of none."""
    journal = prepared.config.run.journal
    run = journal_name(journal) if journal else ""
    lines: list[int] = []
    try:
        while len(lines) < repeats:
            lines.append(ledger.reserve(prepared.config.name, prepared.protocol.guarantee, run))
    except BudgetExceeded:
        for line in lines:
            ledger.settle(line, None)
        raise
    return lines


def _runtime(name: str, workers: int, address: str) -> AbstractContextManager[object]:
    """Keep one Ray for all repeats."""
    if name != "ray":
        return nullcontext()
    from simulations.grid import ray_session

    return ray_session(workers or None, address or None)
