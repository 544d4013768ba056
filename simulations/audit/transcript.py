"""Composition: everything one user sends in all rounds of a protocol, against the whole guarantee.

The queries of later rounds depend on other users' messages; a run on the example population fixes
them. One user's transcript is then a fixed sequence of answers: those of the queries whose cohort
the user is in and which the user's guard admits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from clients.guard import Guard, Policy, Refusal
from clients.spending import Answered
from fedhist.base.errors import BudgetExceeded, WireError
from fedhist.flower.wire import Question
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Report, Summary
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Trust
from fedhist.session.codec import query_digest
from fedhist.session.session import Ask, Session
from fedhist.users.batch import Users
from fedhist.users.streams import Streams
from simulations.audit.features import Answer
from simulations.audit.finding import Case, Finding, Settings
from simulations.audit.inputs import space_of
from simulations.audit.statistical import audit_client
from simulations.runs.run import noise_source
from simulations.runtimes.inline import InlinePopulation

TRANSCRIPT_DRAWS = 1 << 17
"""Transcripts of each record in each half; single answers have been audited with more."""
MOST_PATTERNS = 2

ClientHalf = Callable[[Query, Users, Streams], Report]
"""How a client answers one query of one round."""


def honest(query: Query, users: Users, rng: Streams) -> Report:
    """Answer as the query says."""
    return query.answer(users, rng)


@dataclass(frozen=True)
class Asked:
    """A protocol's queries on one population, by round.

    ``end``: what the run returned, or what broke it off; None: nobody has run it.
    """

    queries: tuple[Query, ...]
    end: Estimate | Exception | None = None


def dealt(users: Users, n_nodes: int) -> list[Users]:
    """Deal users to nodes by their ids, which are public: a user who leaves moves nobody else."""
    at = users.ids % np.uint64(n_nodes)
    return [users.take(np.flatnonzero(at == i)) for i in range(n_nodes)]


def population_of(protocol: Protocol, users: Users, seed: int) -> InlinePopulation:
    """Put users on as many nodes as a protocol must ask: one, except under aggregate trust."""
    premise = getattr(protocol, "trust", None)
    n_nodes = premise.parties if isinstance(premise, Aggregation) else 1
    return InlinePopulation(dealt(users, n_nodes), seed)


def asked_of(protocol: Protocol, users: Users, seed: int, *, broken: bool = False) -> Asked:
    """Run a protocol once and list what it asked.

    Raises
    ------
    Exception
        What broke the run off, unless it was the run's own ledger, or ``broken`` is set.
    """
    ask = checked(population_of(protocol, users, seed))
    queries: list[Query] = []

    def listed(query: Query, round_index: int) -> Summary:
        queries.append(query)
        return ask(query, round_index)

    try:
        end = Session(protocol, noise_source("simulated", seed, protocol)).run(listed)
    except Exception as error:
        if broken or isinstance(error, BudgetExceeded):
            return Asked(tuple(queries), error)
        raise
    return Asked(tuple(queries), end)


def checked(population: InlinePopulation) -> Ask:
    """Ask honest clients, and blame the query where they break its own bounds."""

    def ask(query: Query, round_index: int) -> Summary:
        summary = population.ask(query, round_index)
        try:
            query.check_summary(summary)
        except WireError as error:
            raise WireError(
                f"the query {query.wire_name!r} folds honest answers to what its bounds() does "
                f"not declare: {error}"
            ) from error
        return summary

    return ask


def rounds_of(
    queries: Sequence[Query], user_id: int, epsilon: float, *, guarded: bool = True
) -> tuple[int, ...]:
    """List the rounds in which a user's guard lets an answer out.

    ``epsilon``: the guard's budget: the protocol's guarantee; ``guarded``: false: the user has no
    guard and answers whatever it is asked.
    """
    policy = Policy(trust=Trust.LOCAL.value, epsilon=epsilon, simulated=True)
    ids = np.array([user_id], dtype=np.uint64)
    answered: list[Answered] = []
    rounds = []
    for r, query in enumerate(queries):
        if query.trust is not Trust.LOCAL:
            continue
        if query.cohort is not None and not query.cohort.contains(ids)[0]:
            continue
        if guarded:
            question = Question(query, r, query_digest(query, r), True)
            try:
                entry = Guard(policy, answered).admit(question, ids)
            except Refusal:
                continue
            if entry is None:  # the stored answer is sent again: nothing new is seen
                continue
            answered.append(entry)
        rounds.append(r)
    return tuple(rounds)


def audit_transcripts(
    protocol: Protocol,
    users: Users,
    asked: Asked,
    settings: Settings,
    *,
    client_half: ClientHalf = honest,
    guarded: bool = True,
) -> list[Finding]:
    """Audit whole transcripts of the users who are asked most, by the protocol's guarantee.

    ``users``: the example population; ``asked``: what it was asked; ``client_half``: how a client
    answers; a broken client may answer otherwise; ``guarded``: whether the user has a guard.
    """
    guarantee, subject = protocol.guarantee, f"{protocol.name}: transcript"
    claim = (guarantee.epsilon, guarantee.delta)
    findings, queries = [], asked.queries
    patterns: dict[tuple[int, ...], list[int]] = {}
    for i in users.ids[:2000].tolist():
        rounds = rounds_of(queries, i, guarantee.epsilon, guarded=guarded)
        if rounds:
            patterns.setdefault(rounds, []).append(i)
    costs = {p: math.fsum(queries[r].release.epsilon for r in p) for p in patterns}
    space = space_of(queries, users, single=guarantee.unit == "item")
    for pattern in sorted(patterns, key=lambda p: -costs[p])[:MOST_PATTERNS]:

        def client(batch: Users, rng: Streams, pattern: tuple[int, ...] = pattern) -> Answer:
            return [client_half(queries[r], batch, rng.substream(f"round {r}")) for r in pattern]

        shown = ", ".join(str(r + 1) for r in pattern)
        note = f"rounds {shown}; {_proved(queries, pattern)}"
        case = Case(subject, claim, settings, "composition", note)
        found = audit_client(client, space, patterns[pattern][:2], case, TRANSCRIPT_DRAWS)
        findings.append(found)
    return findings


def _proved(queries: Sequence[Query], pattern: Sequence[int]) -> str:
    """Add up what is known exactly about the rounds of one user."""
    channels = [queries[r].finite_channel() for r in pattern]
    known = [c.worst().log_ratio for c in channels if c is not None]
    if len(known) < len(channels):
        return f"the answers cost {sum(queries[r].release.epsilon for r in pattern):g} by their own"
    return f"the exact epsilons of its channels add up to {math.fsum(known):.6g}"
