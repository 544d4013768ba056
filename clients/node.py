"""A node: the users it holds, and how it answers a question under the guard."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from flwr.app import RecordDict

from clients.answers import fold_node, streams
from clients.guard import Guard, Policy, Refusal
from clients.store import Store
from fedhist.flower.host import NodeSetup
from fedhist.flower.wire import Question, decode_question, encode_answer
from fedhist.users.batch import Users

POLICY_KEYS = {
    "trust": "trust",
    "epsilon": "epsilon",
    "max-epsilon": "max_epsilon",
    "queries": "wire_names",
    "salts": "salts",
    "simulated": "simulated",
}


def policy_of(owner: Any) -> Policy:
    """Read a policy from the owner's node configuration (flat scalars; lists as "a,b").

    >>> policy_of({"trust": "local", "epsilon": 2, "queries": "bin-votes,clipped-mean"}).wire_names
    ('bin-votes', 'clipped-mean')
    """
    given: dict[str, Any] = {
        field: owner[key] for key, field in POLICY_KEYS.items() if key in owner
    }
    for key in ("epsilon", "max_epsilon"):
        if key in given:
            given[key] = float(given[key])
    if isinstance(given.get("wire_names"), str):
        given["wire_names"] = tuple(x.strip() for x in given["wire_names"].split(",") if x.strip())
    if isinstance(given.get("salts"), str | int):
        given["salts"] = tuple(int(x) for x in str(given["salts"]).split(",") if x.strip())
    return Policy(**given)


class Node:
    """Answers questions for its users.

    Parameters
    ----------
    setup : NodeSetup
    """

    def __init__(self, setup: NodeSetup) -> None:
        self.setup = setup

    @cached_property
    def policy(self) -> Policy:
        """What the node's owner allows."""
        return policy_of(self.setup.owner)

    def answer(self, record: RecordDict, store: Store) -> RecordDict:
        """Answer one message: unpack, guard, answer, fold, pack.

        Raises
        ------
        WireError
            If the message is not ours. A refusal by the guard is an answer, not an error.
        """
        question = _decode(record)
        with store.locked():
            return self._guarded(question, store)

    def _guarded(self, question: Question, store: Store) -> RecordDict:
        users = self.setup.users.select(question.query.cohort)
        try:
            entry = Guard(self.policy, store.answered()).admit(question, users.ids)
        except Refusal as refusal:
            return encode_answer(str(refusal), self.setup.index, question.digest)
        if entry is None and self.setup.seed is None:
            stored = store.reply(question.digest)
            if stored is None:
                reason = "this query was answered before and its answer is no longer here"
                return encode_answer(reason, self.setup.index, question.digest)
            return stored
        reply = self._reply(question, users)
        if entry is not None:
            store.add(entry, reply if self.setup.seed is None else None)
        return reply

    def _reply(self, question: Question, users: Users) -> RecordDict:
        query, digest = question.query, question.digest
        if question.fold:
            summary = fold_node(query, users, self.setup.seed, digest)
            return encode_answer(summary, self.setup.index, digest)
        report = query.answer(users, streams(users, self.setup.seed, digest))
        return encode_answer(report, self.setup.index, digest)


_last: tuple[RecordDict, Question] | None = None


def _decode(record: RecordDict) -> Question:
    """Decode, once for the many nodes of this process that get the very same record object."""
    global _last
    if _last is None or _last[0] is not record:
        _last = (record, decode_question(record))
    return _last[1]


__all__ = ["Node", "policy_of"]
