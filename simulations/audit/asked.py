"""The example run of a protocol: what it asks, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedhist.base.errors import BudgetExceeded
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Summary
from fedhist.users.batch import Users
from server.noise import noise_source
from server.session.session import Session
from simulations.runs.run import parties
from simulations.runtimes.inline import InlinePopulation


@dataclass(frozen=True)
class Asked:
    """A protocol's queries on one population, by round.

    ``end``: what the run returned, or what broke it off.
    """

    queries: tuple[Query, ...]
    end: Estimate | Exception


def asked_of(protocol: Protocol, users: Users, seed: int, *, broken: bool = False) -> Asked:
    """Run a protocol once and list what it asked.

    Users are on as many nodes as it must ask: one, except under aggregate trust.

    Raises
    ------
    Exception
        What broke the run off, unless it was the run's own ledger, or ``broken`` is set.
    """
    population = InlinePopulation(users.split(parties(protocol) or 1), seed)
    queries: list[Query] = []

    def ask(query: Query, round_index: int) -> Summary:
        queries.append(query)
        return population.ask(query, round_index)

    end: Estimate | Exception
    try:
        end = Session(protocol, noise_source("simulated", seed, protocol)).run(ask)
    except Exception as error:
        if not broken and not isinstance(error, BudgetExceeded):
            raise
        end = error
    return Asked(tuple(queries), end)


def kinds_of(queries: Sequence[Query]) -> list[Query]:
    """Return the first query of each name and cost, in order: cohorts and numbers may differ."""
    kinds: dict[object, Query] = {}
    for query in queries:
        kinds.setdefault((query.wire_name, query.release), query)
    return list(kinds.values())
