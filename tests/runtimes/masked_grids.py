"""Grids on which sums under masks go wrong: lost messages, flipped bits, kills."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from clients.answers import fold_node
from clients.guard_folder import FolderStore
from clients.node import Node
from fedhist import Users
from fedhist.base.arrays import Array
from fedhist.flower.host import NodeSetup
from fedhist.flower.masked_wire import decode_told, vector_of
from fedhist.flower.wire import ARRAYS, HEAD, kind_of, pack_array, unpack_array
from fedhist.model.codec import array_from_json, query_digest
from server.intake import Intake
from server.noise import noise_source
from server.session.journal import Journal
from server.session.session import Session
from server.strategy import SessionStrategy
from simulations.runtimes.simulated_grid import LocalGrid

ROUNDS = ("keys", "shares", "masked", "unmask")
SEED = 5
Tamper = Callable[[str, int, RecordDict], RecordDict]
"""Changes a record of a round on its way from or to the node of an index."""


class Killed(BaseException):
    """The server's process ends here."""


class FaultyGrid(LocalGrid):
    """Nodes in this process, some of whose messages are lost or changed, and a server that dies.

    ``unheard`` nodes get no message of a round, of ``unseen`` ones the reply is lost.
    """

    def __init__(self, nodes: Sequence[Users], seed: int | None, **options: Any) -> None:
        super().__init__(nodes, seed, **options)
        self.unheard: Mapping[str, Iterable[int]] = {}
        self.unseen: Mapping[str, Iterable[int]] = {}
        self.changed_ask: Tamper = lambda _name, _index, record: record
        self.changed_reply: Tamper = lambda _name, _index, record: record
        self.kill_before = self.kill_after = ""
        self.sent: dict[str, dict[int, Message]] = defaultdict(dict)
        self.told: dict[str, list[RecordDict]] = defaultdict(list)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        name = kind_of(sent[0].content).removeprefix("secagg.")
        if name == self.kill_before:
            raise Killed
        replies = []
        for message in sent:
            index = self.index_of(message)
            self.sent[name][index] = message
            if index in self.unheard.get(name, ()):
                continue
            asked = copy(message)
            asked.content = self.changed_ask(name, index, message.content)
            reply = self.answer(asked)
            if index in self.unseen.get(name, ()):
                continue
            if not reply.has_error():
                self.told[name].append(reply.content)
                reply.content = self.changed_reply(name, index, reply.content)
            replies.append(reply)
        if name == self.kill_after:
            raise Killed
        return replies


class FolderGrid(FaultyGrid):
    """Nodes of owners, each of which is started anew for every message; their folders stay."""

    def __init__(
        self, nodes: Sequence[Users], folder: Path, owners: Sequence[Mapping[str, Any]]
    ) -> None:
        super().__init__(nodes, None)
        self._users, self.folder, self._owners = nodes, folder, owners

    def store(self, index: int) -> FolderStore:
        return FolderStore(self.folder / f"guard-{index}", index)

    def answer(self, message: Message) -> Message:
        index = self.index_of(message)
        node = Node(NodeSetup(self._users[index], index, None, self._owners[index]))
        return Message(node.answer(message.content, self.store(index)), reply_to=message)

    def kept_words(self, index: int) -> Array:
        (file,) = (self.folder / f"guard-{index}").glob("reply-*.json")
        arrays = json.loads(file.read_text())["arrays"]
        return np.concatenate([array_from_json(arrays[k]).ravel() for k in sorted(arrays)])

    def total_of_kept(self, present: Sequence[int]) -> Array:
        words = [self.kept_words(i) for i in present]
        total = np.sum(words, axis=0, dtype=words[0].dtype)
        return total.view(f"i{total.itemsize}").astype(np.int64)

    def attempt_file(self, index: int) -> Path:
        (file,) = (self.folder / f"guard-{index}").glob("secagg-*.json")
        return file

    def attempt(self, index: int) -> dict[str, Any]:
        state = b64decode(json.loads(self.attempt_file(index).read_text())["state"])
        held: dict[str, Any] = msgspec.msgpack.decode(state, strict=False)
        return held


def start(
    grid: LocalGrid,
    protocol: Any,
    journal: str | Path | None = None,
    max_users: int | None = None,
    min_replies: int | None = None,
) -> tuple[Session, SessionStrategy]:
    kept = Journal(journal)
    session = Session(protocol, noise_source("simulated", SEED, protocol), kept, "masked")
    intake = partial(Intake, max_users=max_users)
    strategy = SessionStrategy(
        session,
        grid.n_nodes,
        min_replies=min_replies,
        intake=intake,
        masked=True,
        node_timeout=0.0,
    )
    try:
        strategy.start(grid, ArrayRecord(), timeout=1.0)
    finally:
        session.journal.close()
    return session, strategy


def expected(protocol: Any, nodes: Sequence[Users], present: Iterable[int]) -> Array:
    """Sum what the given nodes send for the first query, without masks: the slow way."""
    query = Session(protocol, noise_source("simulated", SEED, protocol)).query
    digest = query_digest(query, 0)
    bits = query.share.bits
    words = [vector_of(query, fold_node(query, nodes[i], SEED, digest, i)) for i in present]
    total = [sum(int(w[k]) for w in words) % (1 << bits) for k in range(len(words[0]))]
    return np.array([x - (1 << bits) * (x >= 1 << (bits - 1)) for x in total])


def total_of(session: Session) -> Array:
    summary = session.journal.summary(0)
    return np.concatenate([summary.sums[name].ravel() for name in sorted(summary.sums)])


def flipped(record: RecordDict, field: str | None = None) -> RecordDict:
    arrays, head = record[ARRAYS], dict(record[HEAD])
    names = [n for n in arrays if n.startswith("secagg/")]
    chosen = [n for n in names if field is None or n.endswith(field)]
    packed = ArrayRecord({k: v for k, v in arrays.items()})
    a = unpack_array(chosen[0], arrays[chosen[0]]).copy()
    a.reshape(-1).view(np.uint8)[-1] ^= 1
    packed[chosen[0]] = pack_array(a)
    return RecordDict({HEAD: ConfigRecord(head), ARRAYS: packed})


def masked_vectors(grid: FaultyGrid) -> list[Array]:
    return [decode_told(r).message["values"] for r in grid.told["masked"]]
