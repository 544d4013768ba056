"""A node: the users it holds, and how it answers a question under the guard."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import RecordDict

from clients.answers import fold_node, streams
from clients.guard import Guard, Policy, Refusal
from clients.masked import MaskedHalf
from clients.spending import Answered
from clients.store import Store
from fedhist.base.errors import PopulationError
from fedhist.flower.host import NodeSetup
from fedhist.flower.masked_wire import KINDS, Asked, decode_ask
from fedhist.flower.wire import (
    Question,
    decode_answer,
    decode_question,
    encode_answer,
    encode_ready,
    kind_of,
)
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import Trust
from fedhist.users.streams import SystemStreams

POLICY_KEYS = {
    {"wire_names": "queries"}.get(f.name, f.name.replace("_", "-")): f.name for f in fields(Policy)
}


def policy_of(owner: Any) -> Policy:
    """Read a policy from the owner's node configuration (flat scalars; lists as "a,b").

    >>> policy_of({"trust": "local", "epsilon": 2, "queries": "bin-votes,clipped-mean"}).wire_names
    ('bin-votes', 'clipped-mean')
    """
    given: dict[str, Any] = {
        field: owner[key] for key, field in POLICY_KEYS.items() if key in owner
    }
    for key in ("epsilon", "max_epsilon", "min_epsilon", "delta", "max_delta", "min_collude"):
        if key in given:
            given[key] = float(given[key])
    for key in ("wire_names", "limits"):
        if isinstance(given.get(key), str):
            given[key] = tuple(x.strip() for x in given[key].split(",") if x.strip())
    return Policy(**given)


class Node:
    """Answers questions for its users."""

    def __init__(self, setup: NodeSetup) -> None:
        self.setup = setup

    @cached_property
    def policy(self) -> Policy:
        """What the node's owner allows."""
        return policy_of(self.setup.owner)

    def answer(self, record: RecordDict, store: Store) -> RecordDict:
        """Answer one message: unpack, guard, answer, fold, pack."""
        if kind_of(record) in KINDS:
            asked = decode_ask(record)
            with store.locked():
                return self._under_masks(asked, store)
        question = _decode(record)
        alone = question.query.trust is Trust.AGGREGATE and not self.policy.simulated
        if alone and not question.ahead:
            reason = (
                "this node's numbers leave under masks only: what it adds hides nothing by itself"
            )
            return encode_answer(reason, self.setup.index, question.digest)
        with store.locked():
            try:
                if question.ahead:
                    self._admitted(question, store)
                    return encode_ready(self.setup.index, question.digest)
                return self._guarded(question, store)
            except Refusal as refusal:
                return encode_answer(str(refusal), self.setup.index, question.digest)

    @cached_property
    def masked(self) -> MaskedHalf:
        """The node's half of sums under masks."""
        return MaskedHalf.of(self.policy, self.setup.owner)

    def _under_masks(self, asked: Asked, store: Store) -> RecordDict:
        def admit(question: Question) -> None:
            self._admitted(question, store)

        def draw(question: Question) -> Summary:
            body = decode_answer(self._guarded(question, store)).body
            if not isinstance(body, Summary):
                raise Refusal(f"no sum is kept for this query, but {body}")
            return body

        try:
            return self.masked.answer(asked, store, admit, draw)
        except Refusal as refusal:
            return encode_answer(str(refusal), self.setup.index, asked.digest)

    def _admitted(self, question: Question, store: Store) -> Answered | None:
        """Return the entry to keep, None for a question that was answered, or raise Refusal."""
        if not self.policy.counts_users:
            return _decided(self.policy, question, store.answered())
        users, cohort = self.setup.users, question.query.cohort
        ids = users.public_ids()
        if cohort is not None:
            ids = ids[cohort.contains(ids)]
        guard = Guard(self.policy, store.answered())
        entry = guard.admit(question, ids, len(users))
        if entry is not None and not self.policy.simulated:
            self._refuse_unfit(question, len(ids), store)
        return entry

    def _guarded(self, question: Question, store: Store) -> RecordDict:
        stored_as = self._stored_as(question)
        entry = self._admitted(stored_as, store)
        if entry is None and self.setup.seed is None:
            stored = store.reply(stored_as.digest)
            if stored is None:
                raise Refusal("this query was answered before and its answer is no longer here")
            return stored
        reply = self._reply(question, stored_as.digest)
        if entry is not None:
            store.add(entry, reply if self.setup.seed is None else None)
        return reply

    def _stored_as(self, question: Question) -> Question:
        """Name a question by the records that it is asked of, too, where the owner memoizes.

        Not where nodes share the noise: two totals would differ by what one node has changed, under
        its own share alone.
        """
        if not self.policy.memoize or question.query.trust is Trust.AGGREGATE:
            return question
        return replace(question, digest=f"{question.digest}-{self.setup.users.digest:016x}")

    def _refuse_unfit(self, question: Question, n: int, store: Store) -> None:
        """Refuse what asks for other data than the node's, or for too large a reply.

        Both from public facts, before any record is read: a made-up user of the declared shape is
        asked in everybody's place.
        """
        query, size = question.query, 0
        if question.fold:
            parts = query.bounds(n).values()
            size = sum(8 * math.prod(k for k in b.shape if k) for b in parts if None not in b.shape)
        self._refuse_size(size, store)
        if self.setup.shape is None:
            return
        try:
            report = query.answer(self.setup.shape, SystemStreams(len(self.setup.shape)))
        except PopulationError as error:
            raise Refusal(f"the data of this node are of another kind: {error}") from None
        if not question.fold:
            self._refuse_size(n * sum(a.nbytes for a in report.arrays.values()), store)

    def _refuse_size(self, size: int, store: Store) -> None:
        policy = self.policy
        if size > policy.max_reply_bytes:
            raise Refusal(f"the reply would have {size} bytes; at most {policy.max_reply_bytes}")
        if store.stored_bytes() + size > policy.max_store_bytes:
            raise Refusal(f"this node keeps {policy.max_store_bytes} bytes of replies, no more")

    def _reply(self, question: Question, coins: str) -> RecordDict:
        query, digest = question.query, question.digest
        if question.fold:
            summary = fold_node(query, self.setup.users, self.setup.seed, coins, self.setup.index)
            return encode_answer(summary, self.setup.index, digest)
        users = self.setup.users.select(query.cohort)
        report = query.answer(users, streams(users, self.setup.seed, coins))
        return encode_answer(report, self.setup.index, digest)


_decision: tuple[Policy, Question, tuple[Answered, ...], Answered | None] | None = None


def _decided(policy: Policy, question: Question, answered: tuple[Answered, ...]) -> Answered | None:
    """Let the guard decide where that depends on no user: once for nodes that are in one state."""
    global _decision
    last = _decision
    if last is None or last[0] is not policy or last[1] is not question or last[2] != answered:
        entry = Guard(policy, answered).admit(question, np.zeros(0, np.uint64))
        last = _decision = policy, question, answered, entry
    return last[3]


_last: tuple[RecordDict, Question] | None = None


def _decode(record: RecordDict) -> Question:
    """Decode, once for the many nodes of this process that get the very same record object."""
    global _last
    if _last is None or _last[0] is not record:
        _last = (record, decode_question(record))
    return _last[1]
