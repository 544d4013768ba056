"""A Flower Grid some of whose users and nodes misbehave: replies are tampered with on their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from clients.answers import fold_node, streams
from fedhist.flower.masked_wire import (
    KINDS,
    Asked,
    decode_ask,
)
from fedhist.flower.wire import (
    Question,
    decode_answer,
    decode_question,
    encode_answer,
    kind_of,
)
from fedhist.model.query import Report, Summary
from fedhist.privacy.guarantee import Trust
from fedhist.secagg.attempt import ROUNDS
from fedhist.users.batch import Users
from server.intake import take_rows
from simulations.adversaries.assigned import Assigned
from simulations.adversaries.gain import best_messages
from simulations.adversaries.table import Adversary

Sent = tuple[str, Summary | Report]
"""The digest of the query that is answered, and the answer."""


def of_messages(
    adversaries: Iterable[Adversary], n_users: int, n_nodes: int, fold: bool
) -> list[Adversary]:
    """Say which nodes tamper with messages, where nodes fold what their users answer.

    Raises ValueError if a user would have to tamper with what its node adds up for several.
    """
    out = []
    for a in adversaries:
        if fold and a.level == "user" and (not a.poisons or a.kind == "output-poisoning"):
            if n_nodes != n_users:
                raise ValueError(
                    f"{n_users} users on {n_nodes} nodes: a message is a node's, so {a.kind} needs "
                    'adversary.level = "node", as many nodes as users, run.fold = "server", or '
                    'runtime "inline"'
                )
            if not a.poisons and not a.correlated:
                a = replace(a, level="node")
            elif not a.poisons:
                raise ValueError(
                    'adversary.correlated needs run.fold = "server" or runtime "inline"'
                )
        out.append(a)
    return out


class HostileGrid(Grid):
    """Passes messages on to a grid, and its replies back as the adversaries want them.

    Where nodes do not fold, a user's message is its row of the node's report: the rows of honest
    users stay in it, and what others send comes in further messages of the node.

    ``assigned``: whose nodes are the grid's, poisoned records included; ``seed``: the simulation's.
    ``injected``, ``withheld``: what was done, and users' messages that the server never sees. NOT
    PRIVATE.
    """

    silent: ClassVar[Mapping[str, str]] = {"dropout": "no answer"}
    """Kinds whose messages the server never sees, and what it sees instead."""
    apart: ClassVar[tuple[str, ...]] = ("output-poisoning",)
    """Kinds whose messages come beside those of honest users."""
    late: ClassVar[tuple[str, ...]] = ()
    """Kinds that are counted when they send."""

    def __init__(self, grid: Grid, assigned: Assigned, seed: int) -> None:
        self._grid, self._assigned, self._seed = grid, assigned, seed
        self.injected: Counter[str] = Counter()
        self.withheld: Counter[str] = Counter()

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
        if kind_of(sent[0].content) in KINDS:
            return self._under_masks(decode_ask(sent[0].content), replies)
        return self._tampered(decode_question(sent[0].content), replies)

    def _tampered(self, question: Question, replies: Iterable[Message]) -> Iterator[Message]:
        for reply in replies:
            answer = None if reply.has_error() else decode_answer(reply.content)
            if answer is None or isinstance(answer.body, str | None):
                yield reply
                continue
            for digest, body in self._by_node(question, answer.node, answer.body):
                message = reply
                if body is not answer.body:
                    message = copy(reply)
                    message.content = encode_answer(body, answer.node, digest)
                yield message

    def _under_masks(self, asked: Asked, replies: Iterable[Message]) -> Iterator[Message]:
        """Withhold what silent nodes tell from a round on that follows from their number.

        Poisoned users answer honestly on their records: a sum of clipped numbers has no message
        that gains more.
        """
        if asked.question is not None and asked.round_name == "keys":
            for node in range(len(self._assigned.nodes)):
                self._count(asked.question, node)
        numbers = {flower: n for n, flower in enumerate(sorted(self.get_node_ids()))}
        for reply in replies:
            if reply.has_error() or kind_of(reply.content) not in KINDS:
                yield reply
                continue
            node = numbers[reply.metadata.src_node_id]  # its place in the sum may be another
            yield from self._of_round(reply, asked.round_name, node)

    def _of_round(self, reply: Message, name: str, node: int) -> Iterator[Message]:
        begins = ROUNDS[node % len(ROUNDS)]
        if self._kind(node) not in self.silent or ROUNDS.index(name) < ROUNDS.index(begins):
            yield reply

    def _kind(self, node: int) -> str:
        """Return what a node does as a whole; empty for an honest one."""
        number = int(self._assigned.node_table[node])
        return self._assigned.adversaries[number].kind if number >= 0 else ""

    def _count(self, question: Question, node: int) -> None:
        """Count the adversaries of a node that is asked for a sum under masks."""
        at = self._assigned
        number = int(at.node_table[node])
        if number >= 0:
            self.injected[f"{at.adversaries[number].kind} (node)"] += 1
        table = at.table(at.nodes[node].select(question.query.cohort).ids)
        for i, adversary in enumerate(at.adversaries):
            if n := int((table == i).sum()):
                self.injected[adversary.kind] += n

    def _by_node(self, question: Question, node: int, body: Summary | Report) -> Iterable[Sent]:
        """Return what a node sends in the place of its answer."""
        kind = self._kind(node)
        if kind:
            self.injected[f"{kind} (node)"] += 1
        return [] if kind in self.silent else list(self._by_users(question, node, body))

    def _by_users(self, question: Question, node: int, body: Summary | Report) -> Iterator[Sent]:
        """Send the messages of a node's users, the honest ones first."""
        at, query, digest = self._assigned, question.query, question.digest
        users = at.nodes[node].select(query.cohort)
        table = at.table(users.ids)
        for number, adversary in enumerate(at.adversaries):
            n = int((table == number).sum())
            if n and adversary.kind not in self.late:
                self.injected[adversary.kind] += n
            if n and adversary.kind in self.silent:
                self.withheld[self.silent[adversary.kind]] += n
        greedy = at.of_kind(table, "output-poisoning")
        if isinstance(body, Summary):
            gains = greedy.any() and query.trust is not Trust.AGGREGATE  # its clip is the most
            yield digest, self._summed(question, users, greedy) if gains else body
            return
        honest = ~at.of_kind(at.table(body.ids), *self.silent, *self.apart)  # in their own order
        yield digest, body if honest.all() else take_rows(body, honest)
        if greedy.any():
            yield digest, self._best(question, users, greedy)

    def _best(self, question: Question, users: Users, greedy: NDArray[np.bool_]) -> Report:
        """Make the messages that gain most, of the greedy users."""
        some = _some(users, greedy)
        return best_messages(question.query, some, streams(some, self._seed, question.digest))

    def _summed(self, question: Question, users: Users, greedy: NDArray[np.bool_]) -> Summary:
        """Fold what a node's users send, some or all of whom are greedy."""
        rest = fold_node(question.query, _some(users, ~greedy), self._seed, question.digest)
        return Summary.merge([rest, question.query.fold(self._best(question, users, greedy))])


def _some(users: Users, chosen: NDArray[np.bool_]) -> Users:
    return users if chosen.all() else users.take(np.flatnonzero(chosen))
