"""The laws of aggregate trust, for every registered protocol that has the field for it.

Each is run as its example and the further configurations of the contract are, on a grid where that
is what it takes, with the nodes adding the noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from test_protocols import MORE, assert_same_estimate, example_users

from clients.answers import fold_node
from fedhist.base.errors import FedhistError, MissingReplies
from fedhist.flower.wire import decode_question, encode_question
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Summary
from fedhist.model.registry import own_protocols, parameters, protocol_class
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.users.batch import Users
from server.intake import Intake
from server.session.journal import Journal
from server.session.session import Session
from simulations.runs.config import reason
from simulations.runs.options import Options
from simulations.runs.over_grid import run_over_grid
from simulations.runs.run import execute, open_session
from simulations.runtimes.inline import InlinePopulation

WHO = Aggregation(10)
GRIDS: tuple[dict[str, Any], ...] = ({}, {"discrete": True}, {"grid": 1 / 64})
"""What makes a configuration's sums integers, one of them for each protocol."""


def has_field(name: str) -> bool:
    cls = protocol_class(name)
    return "trust" in parameters(cls) and Aggregation in get_args(get_type_hints(cls)["trust"])


@cache
def shared(name: str) -> list[Protocol]:
    """Return the configurations of the contract that can be had under aggregate trust."""
    found: list[Protocol] = []
    if not has_field(name):
        return found
    example = protocol_class(name).example()
    for more in ({}, *MORE.get(name, [])):
        for grid in GRIDS:
            if grid.keys() <= set(parameters(type(example))):
                with suppress(ValueError):
                    wanted = dataclasses.replace(example, **more | grid | {"trust": WHO})
                    found.append(wanted)
                    break
    return found


def nothing(index: int) -> Any:
    """What the Curator must not draw from."""
    return object()


nothing.grade = "simulated"  # type: ignore[attr-defined]


class Seen(InlinePopulation):
    """Keeps what was asked and answered."""

    def __init__(self, users: Users, seed: int) -> None:
        super().__init__(users.split(WHO.parties), seed)
        self.seen: list[tuple[Query, int, Summary]] = []

    def ask(self, query: Query, round_index: int) -> Summary:
        summary = super().ask(query, round_index)
        self.seen.append((query, round_index, Summary.merge([summary])))
        return summary


def walk(protocol: Protocol, users: Users, seed: int = 20) -> tuple[Estimate, Seen]:
    population = Seen(users, seed)
    return Session(protocol, nothing).run(population.ask), population


@cache
def walked(name: str, number: int) -> tuple[Estimate, Seen]:
    """One configuration's run, made once for all the laws that look at it."""
    return walk(shared(name)[number], example_users(name))


def walks(name: str) -> Iterator[tuple[Protocol, Estimate, list[tuple[Query, int, Summary]]]]:
    """Every configuration, its estimate, and what was asked and answered (a copy for each law)."""
    for number, protocol in enumerate(shared(name)):
        estimate, population = walked(name, number)
        yield protocol, estimate, [(q, i, Summary.merge([s])) for q, i, s in population.seen]


@pytest.fixture(params=[name for name in own_protocols() if has_field(name)])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def users(name: str) -> Users:
    return example_users(name)


@pytest.fixture
def configurations(name: str) -> list[Protocol]:
    return list(shared(name))


def test_a_protocol_can_be_aggregated_or_says_why_not(protocol_name: str) -> None:
    if protocol_name in own_protocols():
        assert bool(shared(protocol_name)) == has_field(protocol_name)
        assert has_field(protocol_name) or len(reason(protocol_class(protocol_name)).split()) > 5


def test_the_guarantee_states_the_premise(configurations: list[Protocol]) -> None:
    for protocol in configurations:
        assert protocol.guarantee.trust is Trust.AGGREGATE
        assert "10% of 10 nodes drop out" in str(protocol.guarantee)
        assert dataclasses.replace(protocol, trust=None).guarantee.trust is Trust.CENTRAL  # type: ignore[call-arg]


def test_nobody_but_the_nodes_draws(name: str, users: Users) -> None:
    """The same seed gives the same estimate, another one another; the Curator has no noise."""
    for protocol, estimate, seen in walks(name):
        assert estimate.status == "ok", estimate.reason
        assert estimate.value is not None
        assert_same_estimate(estimate, walk(protocol, users)[0])
        sums = [s.sums for _, _, s in seen]
        other = [s.sums for _, _, s in walk(protocol, users, 21)[1].seen]
        assert any((a[k] != b[k]).any() for a, b in zip(sums, other, strict=True) for k in a)
        for query, _, summary in seen:
            assert isinstance(query, Aggregated)
            assert summary.linear
            assert all(a.dtype == np.int64 for a in summary.sums.values())


def test_it_spends_what_it_declares(name: str) -> None:
    for protocol, estimate, _ in walks(name):
        ledger = estimate.ledger
        assert ledger is not None
        promised = protocol.guarantee
        total = ledger.spent(promised.delta).epsilon
        assert total <= promised.epsilon * (1 + 1e-9)
        if len(ledger.entries) == 1:  # the shares of two are budgets, which add up to it
            assert total > 0.99 * promised.epsilon
        assert ledger.aggregation == "ideal (simulated)"


def test_exact_without_noise(configurations: list[Protocol], users: Users) -> None:
    """As exact as under central trust: the same protocol without noise, on the same grid."""
    for protocol in configurations:
        try:
            open_ended = dataclasses.replace(protocol, epsilon=math.inf)  # type: ignore[call-arg]
        except ValueError:
            continue  # what clips by the budget has no grid then
        central = dataclasses.replace(open_ended, trust=None)  # type: ignore[call-arg]
        expected = execute(central, users, Options(seed=1)).estimate
        assert_same_estimate(walk(open_ended, users)[0], expected, exact=False)


def test_messages_give_the_same_bits(configurations: list[Protocol], users: Users) -> None:
    options = Options(seed=5, nodes=WHO.parties)
    for protocol in configurations[:1]:
        here = execute(protocol, users, options).estimate
        session, seed = open_session(protocol, options)
        assert_same_estimate(run_over_grid(session, users, 10, seed, options).estimate, here)


def test_what_is_asked_travels(name: str) -> None:
    for _, _, seen in walks(name):
        for query, number, summary in seen:
            found = decode_question(encode_question(query, number)).query
            assert query_digest(found, number) == query_digest(query, number)
            assert isinstance(found, Aggregated)
            found.check_summary(summary)


def test_every_node_adds_a_share_and_a_quorum_is_needed(name: str, users: Users) -> None:
    for _, _, seen in walks(name):
        query, number, _ = seen[0]
        assert isinstance(query, Aggregated)
        digest = query_digest(query, number)
        nodes = [u.select(query.cohort) for u in users.split(WHO.parties)]
        parts = [fold_node(query, u, 20, digest, i) for i, u in enumerate(nodes)]
        for part in parts:
            query.check_part(part)
            assert all(a.dtype == query.modular for a in part.sums.values())
            assert part.n_users == 0 or query.adjacency is not Adjacency.ADD_REMOVE_USER
        empty = fold_node(query, users.slice(0, 0), 20, digest, 3)
        if query.shares.share * math.sqrt(sum(a.size for a in empty.sums.values())) > 100:
            assert any(a.any() for a in empty.sums.values())
        for keep in (9, 8):
            intake = Intake(query, digest)
            for i, part in enumerate(parts[:keep]):
                intake.use(i, digest, part)
            if keep == WHO.quorum:
                query.check_summary(intake.total(10).summary)
            else:
                with pytest.raises(MissingReplies):
                    intake.total(10)


def test_a_journal_goes_on_wherever_it_stops(name: str, users: Users) -> None:
    """After every round; what was answered is not asked again."""
    for protocol, estimate, seen in islice(walks(name), 2):
        for stop in range(len(seen) + 1):
            journal = Journal()
            first = Session(protocol, nothing, journal)
            for query, number, _ in seen[:stop]:
                first.advance(InlinePopulation(users.split(10), 20).ask(query, number))
            again, rest = Session(protocol, nothing, journal), Seen(users, 20)
            assert_same_estimate(again.run(rest.ask) if again.query else again.estimate, estimate)  # type: ignore[arg-type]
            assert len(rest.seen) == len(seen) - stop


def test_noise_is_what_more_shares_than_needed_make(
    configurations: list[Protocol], users: Users
) -> None:
    """The prediction exceeds that for nobody who drops out or colludes, but not by N / M.

    sqrt(N / M) is the ratio of stds; E|Z| of Laplace noise from few shares grows a little more.
    """
    for protocol in configurations:
        all_honest = protocol
        with suppress(ValueError):  # each of more honest shares is smaller, and may be too small
            all_honest = dataclasses.replace(protocol, trust=Aggregation(10, 0.0, 0.0))  # type: ignore[call-arg]
        more, least = protocol.error(users), all_honest.error(users)
        power = 1 if more.loss == "l1" else 2
        noise = 5 * math.hypot(more.stderr / more.expected, least.stderr / least.expected)
        assert more.loss == least.loss
        assert (1 - noise) * least.expected <= more.expected
        assert more.expected <= (1 + noise) * (10 / 8) ** power * least.expected


def test_a_run_asks_as_many_nodes_as_there_are_parties(
    configurations: list[Protocol], users: Users
) -> None:
    for protocol in configurations[:1]:
        with pytest.raises(ValueError, match="has 10 parties, but nodes = 3"):
            execute(protocol, users, Options(seed=1, nodes=3))
        session = Session(protocol, nothing)
        with pytest.raises(FedhistError, match=r"for 10 parties, .* but 3 nodes"):
            session.run(InlinePopulation(users.split(3), 1).ask)
