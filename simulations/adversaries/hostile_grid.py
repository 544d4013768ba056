"""A Flower Grid some of whose nodes misbehave: replies are tampered with on their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from clients.node import streams
from fedhist.flower.wire import Answer, Question, decode_answer, decode_question, encode_answer
from fedhist.model.query import Report, Summary
from server.sift import take_rows
from simulations.adversaries.gain import best_messages
from simulations.adversaries.hostile import SILENT, Assigned
from simulations.adversaries.malformed import malform_report, malform_summary
from simulations.adversaries.table import Adversary


def of_messages(
    adversaries: Iterable[Adversary], n_users: int, n_nodes: int, fold: bool
) -> list[Adversary]:
    """Say which nodes tamper with messages, where a message is a node's and not a user's.

    Raises
    ------
    ValueError
        If a user would have to tamper with what its node sends for several.
    """
    out = []
    for a in adversaries:
        if a.level == "user" and not (a.poisons and (a.kind != "output-poisoning" or not fold)):
            if n_nodes != n_users:
                raise ValueError(
                    f"{n_users} users on {n_nodes} nodes: a message is a node's, so {a.kind} needs "
                    'adversary.level = "node", as many nodes as users, or runtime "inline"'
                )
            if not a.poisons and not a.correlated:
                a = Adversary(**(vars(a) | {"level": "node"}))
            elif not a.poisons:
                raise ValueError('adversary.correlated needs runtime "inline"')
        out.append(a)
    return out


class HostileGrid(Grid):
    """Passes messages on to a grid, and its replies back as the adversaries want them.

    Parameters
    ----------
    grid : Grid
    assigned : Assigned
        Whose nodes are the grid's, poisoned records included.
    seed : int
        The simulation's.

    Attributes
    ----------
    injected : Counter of str
        What was done. NOT PRIVATE.

    Notes
    -----
    A straggler's reply is withheld, which is what the server sees of one that comes too late; no
    time passes.
    """

    def __init__(self, grid: Grid, assigned: Assigned, seed: int) -> None:
        self._grid, self._assigned, self._seed = grid, assigned, seed
        self._before: dict[int, RecordDict] = {}
        self.injected: Counter[str] = Counter()

    def set_run(self, run: Any) -> None:
        """Set the run that the grid operates in."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run that was set, if any."""
        return self._grid.run

    def create_message(self, *args: Any, **more: Any) -> Message:
        """Create a message to a node."""
        return self._grid.create_message(*args, **more)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have come, as they are."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return what becomes of the replies."""
        sent = list(messages)
        if not sent:
            return []
        replies = self._grid.send_and_receive(sent, timeout=timeout)
        return self._tampered(decode_question(sent[0].content), replies)

    def _tampered(self, question: Question, replies: Iterable[Message]) -> Iterator[Message]:
        for reply in replies:
            if reply.has_error():
                yield reply
                continue
            answer = decode_answer(reply.content)
            self._poison(question, answer, reply)
            number = int(self._assigned.node_table[answer.node])
            kind = self._assigned.adversaries[number].kind if number >= 0 else ""
            if kind and not isinstance(answer.body, str):
                self.injected[f"{kind} (node)"] += 1
                if kind in SILENT:
                    continue
                yield from self._by_node(kind, number, answer, reply)
            else:
                yield reply

    def _by_node(self, kind: str, number: int, answer: Answer, reply: Message) -> Iterator[Message]:
        body, node = answer.body, answer.node
        if kind == "malformed" and not isinstance(body, str):
            form = self._assigned.form(number, node)
            bad = malform_summary if isinstance(body, Summary) else malform_report
            reply.content = encode_answer(bad(body, form), node, answer.digest)  # type: ignore[arg-type]
        if kind == "replay":
            again = copy(reply)
            fresh = encode_answer(body, node, f"{answer.digest}, before")
            again.content, self._before[node] = self._before.get(node, fresh), reply.content
            yield reply
            yield again
            return
        yield reply
        if kind == "duplicate":
            yield reply

    def _poison(self, question: Question, answer: Answer, reply: Message) -> None:
        """Put the messages that gain most in the place of the poisoned users'."""
        asked = self._assigned.nodes[answer.node].select(question.query.cohort)
        table = self._assigned.table(asked.ids)
        for kind in ("input-poisoning", "corrupted", "output-poisoning"):
            n = int(self._assigned.of_kind(table, kind).sum())
            if n:
                self.injected[kind] += n
        greedy = self._assigned.of_kind(table, "output-poisoning")
        if not greedy.any() or isinstance(answer.body, str):
            return
        users = asked.take(np.flatnonzero(greedy))
        best = best_messages(question.query, users, streams(users, self._seed, question.digest))
        body: Report | Summary = best
        if isinstance(answer.body, Summary):  # the whole node is the attacker's
            body = question.query.fold(best)
        elif not greedy.all():
            rest = take_rows(answer.body, ~greedy)
            body = _stacked(rest, best)
        reply.content = encode_answer(body, answer.node, answer.digest)


def _stacked(a: Report, b: Report) -> Report:
    """Put the rows of two reports of one query below one another."""
    ids = np.concatenate((a.ids, b.ids))
    dense = {name: np.concatenate((x, b.arrays[name])) for name, x in a.arrays.items()}
    ragged = {name: np.concatenate((x, b.ragged[name])) for name, x in a.ragged.items()}
    indptr = None
    if a.indptr is not None and b.indptr is not None:
        indptr = np.concatenate((a.indptr, b.indptr[1:] + a.indptr[-1]))
    return Report(ids, dense, ragged, indptr)
