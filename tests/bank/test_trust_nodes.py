"""Broken nodes of the bank: clients, not mechanisms, under aggregate trust.

What the auditor says of them is structural, and certain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clients.answers import fold_node
from fedhist.model.aggregated import Aggregated
from fedhist.model.query import Summary
from fedhist.privacy.aggregation import Aggregation
from fedhist.protocols import ItemHistogram
from fedhist.users.batch import Users
from simulations.audit.asked import asked_of
from simulations.audit.finding import Case, Finding, Settings
from tests.audit.changes import Changes
from tests.audit.trust.aggregate import audit_words, claim_of, kinds, moves_of
from tests.audit.trust.server_view import NodeHalf, dealt

PROTOCOL = replace(ItemHistogram.example(), trust=Aggregation(10))
USERS = PROTOCOL.example_users()
QUERY = kinds(asked_of(PROTOCOL, USERS, 0).queries)[0]
MOVES = moves_of(QUERY, Changes.of(PROTOCOL, [QUERY.query]))


def case() -> Case:
    return Case("a node", claim_of(QUERY), Settings())


def event(found: Finding) -> str:
    return found.witness.event if found.witness is not None and found.violated else ""


def silent_when_empty(q: Any, users: Users, seed: int, digest: str, node: int) -> Summary:
    """A node without users adds no share."""
    words = fold_node(q, users, seed, digest, node)
    if len(users):
        return words
    return replace(words, sums={k: np.zeros_like(a) for k, a in words.sums.items()})


def fresh_when_retried() -> NodeHalf:
    """The same question, asked again, gets another share."""
    asked = 0

    def half(q: Any, users: Users, seed: int, digest: str, node: int) -> Summary:
        nonlocal asked
        asked += 1
        return fold_node(q, users, 1000 * asked + seed, digest, node)

    return half


def one_share_for_all(q: Any, users: Users, seed: int, digest: str, node: int) -> Summary:
    """The node's index is forgotten: its noise is everybody's."""
    return fold_node(q, users, seed, digest, 0)


def less_for_many(q: Any, users: Users, seed: int, digest: str, node: int) -> Summary:
    """A share that depends on how many users the node has."""
    return fold_node(q, users, seed + len(users), digest, node)


HALVES = {
    "empty nodes": silent_when_empty,
    "retries": fresh_when_retried(),
    "keys": one_share_for_all,
    "data": less_for_many,
}


@pytest.mark.parametrize("what", HALVES)
def test_a_broken_node_is_flagged(what: str) -> None:
    """By what its words show."""
    found = audit_words(QUERY, USERS, MOVES, case(), HALVES[what])
    assert event(found).startswith(what)


def test_a_correct_node_is_not() -> None:
    assert not audit_words(QUERY, USERS, MOVES, case(), fold_node).violated


def test_users_are_dealt_by_id() -> None:
    """Somebody who leaves moves nobody."""
    assert isinstance(QUERY, Aggregated)
    nodes = dealt(USERS, 4)
    assert sorted(i for n in nodes for i in n.ids.tolist()) == sorted(USERS.ids.tolist())
    rest = dealt(USERS.take(np.arange(1, len(USERS))), 4)
    assert [n.ids.tolist() for n in rest[1:]] == [
        [i for i in n.ids.tolist() if i != USERS.ids[0]] for n in nodes[1:]
    ]
