"""The wire format of sums under masks: four rounds of messages, and a sum as one vector of words.

The messages of :mod:`fedhist.secagg` travel in the records of :mod:`fedhist.flower.wire`. Those of
the round "unmask" are the same for every node, so that the server need not know any more, after a
restart, which of the nodes that are connected has which place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedhist.base.arrays import Array as NDArray
from fedhist.base.errors import WireError, one_line
from fedhist.flower.wire import (
    ARRAYS,
    HEAD,
    WIRE_VERSION,
    Question,
    pack_array,
    pack_record,
    question_of,
    unpack_message,
)
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import encode_fields
from fedhist.model.query import Query, Summary
from fedhist.secagg import Message, Terms
from fedhist.secagg.attempt import ROUNDS
from fedhist.secagg.messages import seal, unseal

KINDS = tuple(f"secagg.{name}" for name in ROUNDS)
ASKED_WITH_QUERY = ("keys", "masked")
"""Rounds whose message holds the query too: the guard decides in the one, the other answers it."""

EVERYBODY = (1 << 32) - 1
"""Index in a message that is the same for every node."""

_SEALED = {"session": bytes, "node": int, "check": bytes}


@dataclass(frozen=True)
class Asked:
    """A decoded message of the server, for the index that the message names.

    The digest is that of the query that is answered under masks; the query itself is there in the
    rounds of :data:`ASKED_WITH_QUERY`.
    """

    round_name: str
    digest: str
    message: Message
    question: Question | None

    def of(self, node: int) -> Message:
        """Return the message for a node: what was for everybody, made its own after a check."""
        if self.message["node"] != EVERYBODY:
            return self.message
        kind, session = f"{self.round_name}.ask", self.message["session"]
        return seal(kind, session, node, **unseal(kind, self.message, session, EVERYBODY))


@dataclass(frozen=True)
class Told:
    """A decoded answer of a node; the message names the node's place."""

    round_name: str
    digest: str
    message: Message


def terms_of(query: Aggregated, digest: str) -> Terms:
    """Say what is summed, among whom, and what is tolerated: both sides read it off the query."""
    who = query.share.aggregation
    drop, collude = who.parties - who.quorum, who.quorum - who.honest
    length = sum(math.prod(shape) for _, shape in _shapes(query))
    return Terms(bytes.fromhex(digest), who.parties, drop, collude, query.share.bits, length)


def aggregated(query: Query) -> Aggregated:
    """Return a query of sums with shares of noise; WireError for any other."""
    if not isinstance(query, Aggregated):
        raise WireError(f"{query.wire_name!r} is not asked under masks: it has no shares of noise")
    return query


def vector_of(query: Aggregated, summary: Summary) -> NDArray:
    """Put the sums of a summary one behind the other, in the order of their names: (length,)."""
    query.check_part(summary)
    return np.concatenate([summary.sums[name].ravel() for name, _ in _shapes(query)])


def summary_of(query: Aggregated, words: NDArray, n_users: int) -> Summary:
    """Turn a vector of :func:`vector_of`, or a sum of some, into a summary again."""
    sums, at = {}, 0
    for name, shape in _shapes(query):
        size = math.prod(shape)
        sums[name] = words[at : at + size].astype(query.modular).reshape(shape)
        at += size
    return Summary(n_users, sums)


def _shapes(query: Aggregated) -> list[tuple[str, tuple[int, ...]]]:
    parts = sorted(query.query.bounds(1).items())
    return [(name, tuple(k for k in limits.shape if k is not None)) for name, limits in parts]


# -- what the server asks --------------------------------------------------------------------------


def for_everybody(message: Message) -> Message:
    """Turn one node's message of the round "unmask" into that of all nodes."""
    kind = "unmask.ask"
    fields = unseal(kind, message, message["session"], message["node"])
    return seal(kind, message["session"], EVERYBODY, **fields)


def encode_asks(
    round_name: str,
    digest: str,
    messages: Mapping[int, Message],
    query: Query | None = None,
    round_index: int = 0,
) -> dict[int, RecordDict]:
    """Pack the messages of one round, by index; what several of them share is packed once."""
    head: dict[str, Any] = {
        "version": WIRE_VERSION,
        "kind": f"secagg.{round_name}",
        "digest": digest,
    }
    head |= {"name": "", "round": round_index, "fields": "", "fold": True}
    shared: dict[str, Array] = {}
    if query is not None and round_name in ASKED_WITH_QUERY:
        text, arrays = encode_fields(query)
        head |= {"name": query.wire_name, "fields": text}
        shared = {f"query/{name}": pack_array(a) for name, a in arrays.items()}
    packed: dict[int, tuple[NDArray, Array]] = {}
    records = {}
    for index, message in messages.items():
        record = ArrayRecord()
        for name, done in shared.items():
            record[name] = done
        for name, a in _arrays(message).items():
            if id(a) not in packed:
                packed[id(a)] = (a, pack_array(a))
            record[f"secagg/{name}"] = packed[id(a)][1]
        records[index] = RecordDict({HEAD: ConfigRecord(head | _sealed(message)), ARRAYS: record})
    return records


def decode_ask(record: RecordDict) -> Asked:
    """Unpack a message of the server; WireError unless every byte of it is ours."""
    fields = {"kind": str, "digest": str, "name": str, "round": int, "fields": str, "fold": bool}
    head, arrays = unpack_message(record, fields | _SEALED, KINDS)
    _check_digest(head["digest"])
    name = head["kind"].removeprefix("secagg.")
    message, query = _split(head, arrays)
    question = None
    if name in ASKED_WITH_QUERY:
        question = question_of(head, query)
    elif query or head["name"] or head["fields"]:
        raise WireError(f"a message {head['kind']!r} has no query")
    return Asked(name, head["digest"], message, question)


# -- what a node tells -----------------------------------------------------------------------------


def encode_told(round_name: str, digest: str, message: Message) -> RecordDict:
    """Pack a node's answer of a round; a refusal is one of :mod:`fedhist.flower.wire`."""
    head = {"version": WIRE_VERSION, "kind": f"secagg.{round_name}", "digest": digest}
    arrays = {f"secagg/{name}": a for name, a in _arrays(message).items()}
    return pack_record(head | _sealed(message), arrays)


def decode_told(record: RecordDict) -> Told:
    """Unpack a node's answer of a round."""
    head, arrays = unpack_message(record, {"kind": str, "digest": str} | _SEALED, KINDS)
    _check_digest(head["digest"])
    message, query = _split(head, arrays)
    if query:
        raise WireError(f"an answer {head['kind']!r} has no part of a query, got {sorted(query)}")
    return Told(head["kind"].removeprefix("secagg."), head["digest"], message)


def _check_digest(digest: str) -> None:
    """Raise WireError unless it is a digest: it names files."""
    if re.fullmatch("[0-9a-f]{32}", digest) is None:
        raise WireError(f"{one_line(digest)!r} is no query's digest")


def _sealed(message: Message) -> dict[str, Any]:
    return {name: message[name] for name in _SEALED}


def _arrays(message: Message) -> dict[str, NDArray]:
    return {name: a for name, a in message.items() if name not in _SEALED}


def _split(
    head: Mapping[str, Any], arrays: Mapping[str, NDArray]
) -> tuple[Message, dict[str, NDArray]]:
    """Part the arrays of the message from those of the query."""
    message: Message = {name: head[name] for name in _SEALED}
    query: dict[str, NDArray] = {}
    for path, a in arrays.items():
        half, _, name = path.partition("/")
        if half == "secagg" and name not in _SEALED:
            message[name] = a
        elif half == "query":
            query[name] = a
        else:
            raise WireError(f"a message {head['kind']!r} has no part {path!r}")
    return message, query
