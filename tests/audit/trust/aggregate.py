"""Aggregate trust, attacked as the server: one modular total, less what colluders tell of it.

For each kind of total that a protocol asks for:

*exact*: how far a user can move the integers is found by asking the client half; the law of the
noise of M shares and more, at every admissible number of answers and colluders, is enumerated from
what a share is (:mod:`tests.audit.trust.sum_laws`). *structural*: the words of nodes, not the law:
a node without users adds noise; noise does not depend on the users, is another one on each node and
for each question, and the same one for a question that is asked again; too few answers are not
lifted; nothing in the message can make the noise smaller than what the message says it costs. That
shares are drawn by that law, and that masks hide them, is tested in tests/clients and tests/secagg.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.answers import fold_node
from fedhist.base.errors import FedhistError
from fedhist.flower.masked_wire import summary_of
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from simulations.audit.asked import asked_of
from simulations.audit.finding import Case, Finding, Settings, Witness
from tests.audit.changes import Changes
from tests.audit.trust.server_view import NodeHalf, dealt, exact_integers, integers_of
from tests.audit.trust.sum_laws import Move, coarse, epsilon_of_shares, law_of_shares, move_of

MOST_MOVES = 6
IMPOSSIBLE = 1e-12
"""Probability below which a structural check takes it that chance has not done it."""
MOST_TRIALS = 512


@dataclass(frozen=True)
class Moved:
    """Two records of one user, and what they do to the integers of a total.

    Attributes
    ----------
    words : (str, str)
    values : two (d,) int64 arrays
    """

    words: tuple[str, str]
    values: tuple[NDArray[np.int64], NDArray[np.int64]]

    @property
    def move(self) -> Move:
        """By how much the total differs."""
        return move_of(self.values[1] - self.values[0])


def audit_aggregate(
    protocol: Protocol,
    settings: Settings,
    half: NodeHalf = fold_node,
) -> Iterator[Finding]:
    """Audit every kind of total that a protocol asks of its nodes.

    Parameters
    ----------
    protocol : Protocol
        Others than those under aggregate trust give no findings.
    settings : Settings
    half : callable
        How a node answers; a broken one may answer otherwise.
    """
    guarantee = protocol.guarantee
    if guarantee.trust is not Trust.AGGREGATE or not guarantee.private:
        return
    users = protocol.example_users()
    asked = asked_of(protocol, users, settings.seed).queries
    inner: list[Query] = [q.query for q in asked if isinstance(q, Aggregated)]
    changes = Changes.of(protocol, inner)
    for query in kinds(asked):
        subject = f"{protocol.name}: {query.label}"
        moves = moves_of(query, changes)
        yield audit_total(query, moves, Case(subject, claim_of(query), settings, "exact"))
        yield audit_words(query, users, moves, Case(subject, claim_of(query), settings), half)


def kinds(queries: Sequence[Query]) -> list[Aggregated]:
    """One total of each query class and budget."""
    totals = [q for q in queries if isinstance(q, Aggregated)]
    return list({(q.query.wire_name, replace(q.share, place=0)): q for q in totals}.values())


def claim_of(query: Aggregated) -> tuple[float, float]:
    """Return what a total, or the series that it belongs to, is said to cost."""
    return query.release.epsilon, query.release.delta


def moves_of(query: Aggregated, changes: Changes) -> list[Moved]:
    """Find how one user can move the integers: neighbouring records, the largest moves."""
    own = int(changes.users.ids[0])
    if query.cohort is not None:
        ids = np.arange(1 << 16, dtype=np.uint64)
        own = int(ids[query.cohort.contains(ids)][0])
    values = []
    for record, _ in changes.records:
        user = changes.users.slice(0, 0) if record is None else changes.space.user(record, own)
        values.append(exact_integers(query, user))
    found: dict[Move, Moved] = {}
    for i, j in np.argwhere(np.triu(changes.adjacent)).tolist():
        said = changes.records[i][1], changes.records[j][1]
        moved = Moved(said, (values[i], values[j]))
        found.setdefault(moved.move, moved)
    found.pop((), None)
    p = query.share.norm
    largest = sorted(found, key=lambda m: -math.fsum(x**p for x in m))
    return [found[m] for m in largest[:MOST_MOVES]]


def worst_of(query: Aggregated, moves: Sequence[Moved], shares: int) -> tuple[float, Moved | None]:
    """Enumerate the largest epsilon of any move, all rounds of a series included."""
    delta, rounds = query.release.delta, query.share.rounds
    found = [(epsilon_of_shares(query.shares, shares, m.move * rounds, delta), m) for m in moves]
    return max(found, key=lambda pair: pair[0]) if found else (0.0, None)


# -- exact


def audit_total(query: Aggregated, moves: Sequence[Moved], case: Case) -> Finding:
    """Enumerate the total at every number of answers and of colluders that is let in."""
    premise = query.share.aggregation
    worst, at, shares = 0.0, None, premise.honest
    for m in range(premise.honest, premise.parties + 1):
        epsilon, moved = worst_of(query, moves, m)
        if epsilon > worst or at is None:
            worst, at, shares = epsilon, moved, m
    told = premise.quorum - premise.honest
    case.note = (
        f"totals of {premise.quorum} to {premise.parties} nodes, less the shares of 0 to {told} "
        f"colluders; {len(moves)} moves of the sums"
    )
    if at is None:
        return case.found(0.0, 1.0)
    shown = ", ".join(map(str, at.move[:6])) + (", ..." if len(at.move) > 6 else "")
    event = f"the noise of {shares} shares against the same, moved by ({shown}) steps"
    return case.found(worst, 1.0, Witness(at.words, event))


# -- structural


def audit_words(
    query: Aggregated, users: Users, moves: Sequence[Moved], case: Case, half: NodeHalf
) -> Finding:
    """Look at what nodes send, what is lifted, and what a changed message would make of it."""
    case.note = "empty nodes, retries, keys of the noise, the quorum, changed messages"
    event = next((e for e in _flaws(query, users, moves, half) if e), "")
    witness = Witness(("any record", "any other"), event) if event else None
    return case.found(math.inf if event else 0.0, 1.0, witness, kind="structural")


def _flaws(
    query: Aggregated, users: Users, moves: Sequence[Moved], half: NodeHalf
) -> Iterator[str]:
    yield _unlifted(query)
    yield _noise_of_nodes(query, users, half)
    yield from _tampered(query, moves)


def _unlifted(query: Aggregated) -> str:
    """Say whether a total of too few, or too many, nodes is looked at."""
    premise, shapes = query.share.aggregation, (x.shape for x in query.query.bounds(1).values())
    words = np.zeros(sum(math.prod(k or 0 for k in s) for s in shapes), dtype=query.modular)
    for nodes in (premise.honest, premise.quorum - 1, premise.parties + 1):
        if premise.quorum <= nodes <= premise.parties:
            continue
        try:
            query.lift(summary_of(query, words, 0), nodes)
        except FedhistError:
            continue
        return f"quorum: a total of {nodes} nodes is lifted, of {premise.quorum} that are needed"
    return ""


def _noise_of_nodes(query: Aggregated, users: Users, half: NodeHalf) -> str:
    """Every node adds a share; which one depends on the run, the node and the question only."""
    premise = query.share.aggregation
    nodes = [u.select(query.cohort) for u in dealt(users, premise.honest)]
    held = max(nodes, key=len)
    none, digests = held.slice(0, 0), (query_digest(query, 0), query_digest(query, 1))
    exact = exact_integers(query, held)

    def share(users: Users, known: NDArray[np.int64], seed: int, digest: str, node: int) -> bytes:
        return (integers_of(query, half(query, users, seed, digest, node)) - known).tobytes()

    zero = np.zeros_like(exact)
    alike = nothing = 0
    trials = _trials(query, len(exact))
    for seed in range(trials):
        empty = share(none, zero, seed, digests[0], 0)
        if share(none, zero, seed, digests[0], 0) != empty:
            return "retries: a question that is asked again gets other noise"
        if empty == zero.tobytes():
            nothing += 1
            continue
        if share(held, exact, seed, digests[0], 0) != empty:
            return "data: the noise of a node is another one for other users"
        others = (share(none, zero, seed, d, i) for d, i in ((digests[0], 1), (digests[1], 0)))
        alike += any(other == empty for other in others)
    if nothing == trials:
        return "empty nodes: a node without users of the cohort adds no share"
    if alike == trials - nothing:
        return "keys: two nodes, or two questions, have the same noise"
    if half(query, held, 0, digests[0], 0).n_users and not query.sends_n:
        return "n: nodes say how many users answered, which is private"
    return ""


def _trials(query: Aggregated, entries: int) -> int:
    """How many shares are looked at so that not all are 0 by chance."""
    noise, _ = coarse(query.shares, ())
    chance = 0.14  # of a Gaussian share, whose std is 3 steps at least
    if noise.kind == "laplace":
        law = law_of_shares(noise, 1)
        chance = float(law[len(law) // 2])
    at_zero = chance ** max(entries, 1)
    needed = math.log(IMPOSSIBLE) / math.log(max(at_zero, IMPOSSIBLE))
    return min(max(math.ceil(needed), 4), MOST_TRIALS)


def _tampered(query: Aggregated, moves: Sequence[Moved]) -> Iterator[str]:
    """Change the numbers of the message: the noise must follow from what the change costs."""
    for field in fields(query.share):
        value = getattr(query.share, field.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for other in sorted({value / 4, value * 4, value + 1, 0.5, 1.0} - {value}):
            told: dict[str, Any] = {field.name: type(value)(other)}
            try:
                changed = replace(query, share=replace(query.share, **told))
                worst, _ = worst_of(changed, moves, changed.share.aggregation.honest)
            except (ValueError, OverflowError, FedhistError):
                continue
            if worst > changed.release.epsilon:
                said, new = changed.release.epsilon, told[field.name]
                yield (
                    f"message: with {field.name} = {new:g} in place of {value:g} the noise keeps "
                    f"epsilon = {worst:.4g}, and the message says {said:.4g}"
                )
