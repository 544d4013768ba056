"""Adversaries that only attack the intake: duplicates, replays, malformed messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from flwr.app import Message, RecordDict

from clients.answers import fold_node, streams
from fedhist.flower.masked_wire import decode_told, encode_told
from fedhist.flower.wire import Question
from fedhist.model.query import Query, Report, Summary
from fedhist.secagg.attempt import ROUNDS
from fedhist.users.batch import Users
from server.reports import take_rows
from simulations.adversaries import hostile_grid, table
from simulations.adversaries.hostile_grid import Sent, _some
from simulations.config.reading import one_of
from tests.faults.intake.malformed import FORMS, malform_message, malform_report, malform_summary

KINDS = (*table.KINDS, "straggler", "duplicate", "replay", "malformed")


@dataclass(frozen=True)
class Adversary(table.Adversary):
    """As a configuration's, with more kinds.

    "straggler": an answer after the timeout, which is withheld: no time passes. "duplicate": the
    answer comes twice. "replay": beside it comes one to the question before, or in the first round
    to the same question of another run. "malformed": one of ``FORMS``, or all of them in turn.
    """

    kind: Annotated[str, one_of(*KINDS)]
    form: Annotated[str, one_of("any", *FORMS)] = "any"


class HostileGrid(hostile_grid.HostileGrid):
    """The grid of all kinds."""

    silent: ClassVar = {
        **hostile_grid.HostileGrid.silent,
        "straggler": "an answer after the timeout",
    }
    apart: ClassVar = (*hostile_grid.HostileGrid.apart, "malformed")
    late: ClassVar = ("replay",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._before: tuple[Query, str] | None = None
        self._told: dict[int, RecordDict] = {}

    def _tampered(self, question: Question, replies: Iterable[Message]) -> Iterator[Message]:
        yield from super()._tampered(question, replies)
        self._before = question.query, question.digest

    def _form(self, node: int) -> str:
        form = str(self._assigned.adversaries[int(self._assigned.node_table[node])].form)
        return FORMS[node % len(FORMS)] if form == "any" else form

    def _of_round(self, reply: Message, name: str, node: int) -> Iterator[Message]:
        kind, begins = self._kind(node), ROUNDS[node % len(ROUNDS)]
        if kind in self.silent and ROUNDS.index(name) >= ROUNDS.index(begins):
            return
        if kind == "malformed" and name == begins:
            told = decode_told(reply.content)
            spoilt = malform_message(told.message, self._form(node))
            reply.content = encode_told(name, told.digest, spoilt)
        yield reply
        if kind == "duplicate":
            yield reply
        if kind == "replay" and node in self._told:
            again = copy(reply)
            again.content = self._told[node]
            yield again
        self._told[node] = reply.content

    def _by_node(self, question: Question, node: int, body: Summary | Report) -> Iterable[Sent]:
        kind = self._kind(node)
        sent = list(super()._by_node(question, node, body))
        if kind in self.silent:
            return []
        if kind == "malformed":
            form = self._form(node)
            return [(digest, _malformed(answer, form)) for digest, answer in sent]
        if kind == "duplicate":
            return [*sent, *sent]
        if kind == "replay":
            return [*sent, self._replay(question, self._assigned.nodes[node])]
        return sent

    def _by_users(self, question: Question, node: int, body: Summary | Report) -> Iterator[Sent]:
        yield from super()._by_users(question, node, body)
        if isinstance(body, Summary):
            return
        at, digest = self._assigned, question.digest
        rows_table = at.table(body.ids)  # the rows of an answer may be in another order
        twice = at.of_kind(rows_table, "duplicate")
        if twice.any():
            yield digest, take_rows(body, twice)
        for number, adversary in enumerate(at.adversaries):
            if adversary.kind == "malformed":
                rows = np.flatnonzero(rows_table == number)
                forms = FORMS if adversary.form == "any" else (adversary.form,)
                for i, form in enumerate(forms[: len(rows)]):
                    yield digest, malform_report(take_rows(body, rows[i :: len(forms)]), form)
        again = at.of_kind(at.table(at.nodes[node].ids), "replay")
        if again.any():
            when, old = self._replay(question, _some(at.nodes[node], again))
            if old.n_users:
                self.injected["replay"] += old.n_users
                yield when, old

    def _replay(self, question: Question, users: Users) -> Sent:
        """Answer the question before once more, with the same coins: the same messages."""
        query, when = self._before or (question.query, f"{question.digest}, before")
        users = users.select(query.cohort)
        if question.fold:
            return when, fold_node(query, users, self._seed, when)
        return when, query.answer(users, streams(users, self._seed, when))


def _malformed(body: Summary | Report, form: str) -> Summary | Report:
    return malform_summary(body, form) if isinstance(body, Summary) else malform_report(body, form)
