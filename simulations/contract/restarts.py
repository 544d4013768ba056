"""Laws of the journal: wherever a run stops, it goes on, and nothing is drawn or asked twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedhist.base.chained_log import Line
from fedhist.base.errors import FedhistError
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.privacy.guarantee import Trust
from server.session.journal import LOG, Journal
from server.session.session import Session
from simulations.contract.law import (
    ANY_NODES,
    demand,
    demand_same_estimate,
    law,
    passes_over,
    refused,
)
from simulations.contract.subject import SEED, Subject, noise
from simulations.contract.watching import WatchedNoise
from simulations.runtimes.inline import InlinePopulation

MOST_KILLS = 8


class CopiedJournal(Journal):
    """A journal whose folder is copied before each of its writes: what a kill leaves."""

    def __init__(self, folder: Path, copies: Path) -> None:
        self.copies, self.left = copies, [copies]
        super().__init__(folder)

    def _copy(self) -> None:
        if self._folder is not None:
            self.left.append(self.copies / str(len(self.left)))
            shutil.copytree(self._folder, self.left[-1])

    def append(self, line: Line) -> None:
        self._copy()
        super().append(line)

    def drop_exact(self, index: int) -> None:
        super().drop_exact(index)
        self._copy()


def journalled_run(
    subject: Subject, journal: Journal, folder: Path
) -> tuple[Estimate, list[tuple[int, str]]]:
    """Run with a journal in a folder, and return what was asked as well."""
    population = InlinePopulation([subject.users], SEED)
    asked: list[tuple[int, str]] = []

    def ask(query: Query, number: int) -> Summary:
        left = list(folder.glob("exact-*"))
        demand(not left, f"Exact sums are left on disk before round {number}.")
        asked.append((number, query_digest(query, number)))
        return population.ask(query, number)

    return Session(subject.protocol, noise(), journal).run(ask), asked


def released(folder: Path) -> set[int]:
    """Return the numbers of the releases in the whole lines of a journal."""
    whole, end, _ = (folder / LOG).read_bytes().rpartition(b"\n")
    lines = map(json.loads, (whole + end).splitlines())
    return {line["index"] for line in lines if line["kind"] == "release"}


@law(ANY_NODES)
def a_run_goes_on_wherever_it_was_killed(subject: Subject) -> None:
    """From what is on disk before each write, exact sums included, it ends the same.

    Before a few writes, evenly spread, with and without a part of the line that was being written;
    and from the whole. It asks the same, and draws nothing twice.
    """
    with TemporaryDirectory() as place:
        folder, copies = Path(place) / "run", Path(place)
        journal = CopiedJournal(folder, copies)
        estimate, asked = journalled_run(subject, journal, folder)
        left = [c for c in journal.left[1:] if (c / LOG).exists()]
        exact = [f for c in left for f in c.glob("exact-*.json")]
        central = subject.protocol.guarantee.trust is Trust.CENTRAL
        demand(bool(exact) == central, f"Exact sums are on disk {len(exact)} times.")
        modes = {f.stat().st_mode & 0o777 for f in (*folder.iterdir(), *exact)}
        demand(modes == {0o600}, f"Files of the journal have modes {sorted(map(oct, modes))}.")
        whole = released(folder)
        for number, copy in enumerate([*left[:: -(-len(left) // MOST_KILLS)], folder]):
            if number % 2:
                with (copy / LOG).open("ab") as log:
                    log.write(b'{"kind": "rel')
            told = f"Killed before write {copy.name}"
            _go_on(subject, copy, estimate, asked, told)
            demand(released(copy) == whole, f"{told} it releases other values.")


@law(ANY_NODES, once=True)
def a_journal_of_another_configuration_is_refused(subject: Subject) -> None:
    """Another epsilon does not continue a run: its queries or releases would mix."""
    if "epsilon" not in subject.fields or not subject.protocol.guarantee.private:
        passes_over("It has no other epsilon.")
    with TemporaryDirectory() as place:
        folder = Path(place) / "run"
        journalled_run(subject, Journal(folder), folder)
        other = subject.replaced(epsilon=subject.made.epsilon * 2)
        journal = Journal(folder)
        with refused(FedhistError, "Another epsilon", "another"):
            Session(other, noise(), journal)
        journal.close()


def _go_on(
    subject: Subject,
    folder: Path,
    estimate: Estimate,
    asked: list[tuple[int, str]],
    told: str,
) -> None:
    """Demand that a run goes on from a folder to the same end, and draws nothing again."""
    drawn, before = list[int](), released(folder)

    def counted(index: int) -> Any:
        return WatchedNoise(index, SEED, lambda draw: drawn.append(draw.index))

    session = Session(subject.protocol, counted, Journal(folder))
    if session.query is not None:
        here = session.round_index, query_digest(session.query, session.round_index)
        demand(here == asked[session.round_index], f"{told} it asks another question.")
    again = session.run(InlinePopulation([subject.users], SEED).ask)
    demand_same_estimate(again, estimate, told)
    twice = before & set(drawn)
    demand(not twice, f"{told} it draws the releases {sorted(twice)} again.")
    demand(len(drawn) == len(set(drawn)), f"{told} it draws a number twice.")
    demand(not list(folder.glob("exact-*")), f"{told} exact sums are left on disk.")
