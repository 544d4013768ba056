"""Sums under masks, attacked by a server that keeps what it gets and asks for more.

All nodes of a run send the same vectors in two attempts, as after a failure, and those of another
question in a third. Under one-time masks nothing that a node sends repeats: a mask that comes twice
is taken off by a subtraction. A node gives out the shares of one set of nodes and of no other: two
totals, over sets that differ by one node, show that node's numbers with one share of noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.answers import fold_node
from fedhist.flower.masked_wire import terms_of, vector_of
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import query_digest
from fedhist.secagg import Message, NodeAttempt, SecaggError, ServerAttempt, Terms
from fedhist.secagg.messages import seal
from fedhist.users.batch import Users
from simulations.audit.finding import Case, Finding, Witness
from tests.audit.trust.server_view import dealt

MaskedNode = Callable[..., NodeAttempt]
"""Makes a node's half of an attempt: of terms, the node's index, and ``min_parties``."""

Words = Mapping[int, NDArray[Any]]


def audit_masks(
    query: Aggregated, users: Users, case: Case, masked_node: MaskedNode = NodeAttempt
) -> Finding:
    """Play three attempts of a total, and ask for more than one sum.

    Parameters
    ----------
    query : Aggregated
    users : Users
    case : Case
    masked_node : callable
        A broken node may answer otherwise.
    """
    event = next((e for e in _flaws(query, users, masked_node) if e), "")
    case.note = "masks of three attempts, sums over several sets of nodes"
    witness = Witness(("any record", "any other"), event) if event else None
    return case.found(math.inf if event else 0.0, 1.0, witness, kind="structural")


def _flaws(query: Aggregated, users: Users, masked_node: MaskedNode) -> Iterator[str]:
    nodes = dealt(users.select(query.cohort), query.share.parties)
    masks, attempts = [], []
    for round_index in (0, 0, 1):
        digest = query_digest(query, round_index)
        values = {
            i: vector_of(query, fold_node(query, u, 0, digest, i)) for i, u in enumerate(nodes)
        }
        attempt = _Attempt(terms_of(query, digest), values, masked_node)
        masks.append({i: words - values[i] for i, words in attempt.masked.items()})
        attempts.append(attempt)
    yield _repeated(masks)
    yield attempts[0].other_sums(few=True)
    yield attempts[0].wrong_sum()
    yield attempts[0].other_sums(few=False)


def _repeated(masks: Sequence[Words]) -> str:
    """Masks are what a node sends, less its words."""
    for i in masks[0]:
        seen = [m[i].tobytes() for m in masks]
        if not all(m[i].any() for m in masks):
            return f"masks: node {i} sends its words as they are"
        if len(set(seen)) < len(seen):
            return f"masks: node {i} uses a mask twice, so that a subtraction takes it off"
    return ""


class _Attempt:
    """An attempt up to its third round; everybody answers."""

    def __init__(self, terms: Terms, values: Words, masked_node: MaskedNode) -> None:
        self.values, self.terms = values, terms
        self.server = ServerAttempt(terms)
        self.nodes = {i: masked_node(terms, i, min_parties=2) for i in range(terms.parties)}
        asks = self.server.start()
        asks = self.server.take_keys((i, self.nodes[i].keys(ask)) for i, ask in asks.items())
        asks = self.server.take_shares((i, self.nodes[i].shares(ask)) for i, ask in asks.items())
        told = [(i, self.nodes[i].masked(ask, values[i])) for i, ask in asks.items()]
        self.masked = {i: np.asarray(message["values"]) for i, message in told}
        self.asks = self.server.take_masked(told)

    def wrong_sum(self) -> str:
        """Take the masks off."""
        told = ((i, self.nodes[i].unmask(ask)) for i, ask in self.asks.items())
        total = self.server.take_unmask(told)
        expected = sum(self.values[i] for i in self.server.present)
        return "" if np.array_equal(total, expected) else "masks: the sum is not that of the values"

    def other_sums(self, *, few: bool) -> str:
        """Ask for the shares of another set: of too few nodes, or, behind a sum, of one less."""
        members = range(self.terms.parties)
        present = list(members)[: self.terms.least - 1] if few else list(members)[:-1]
        answered = [i for i in present if self._unmasks(i, present)]
        if len(answered) < self.terms.plan.threshold:
            return ""
        if few:
            return f"quorum: nodes unmask the sum of {len(present)}, of {self.terms.least} needed"
        return (
            f"unmask: nodes unmask the sum of {len(present)} nodes as well as that of "
            f"{self.terms.parties}: the difference is one node's numbers with one share of noise"
        )

    def _unmasks(self, node: int, present: list[int]) -> bool:
        ask: Message = seal(
            "unmask.ask", self.server.session, node, present=np.array(present, "<u4")
        )
        try:
            self.nodes[node].unmask(ask)
        except SecaggError:
            return False
        return True
