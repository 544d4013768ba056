"""What a node's guard lets through under aggregate trust, and what a series costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

from clients.guard import SIMULATED_OWNER, SIMULATION, Answered, Guard, Policy, Refusal
from clients.node import Node, policy_of
from clients.store import ContextStore
from fedhist.flower.host import NodeSetup
from fedhist.flower.wire import Question, decode_answer, encode_question
from fedhist.model.aggregated import Aggregated
from fedhist.model.query import Summary
from fedhist.model.share import Share
from fedhist.privacy.guarantee import gaussian_multiplier
from fedhist.protocols import BoundedHistogram, ItemHistogram
from fedhist.protocols.histograms.bounded_histogram import ClippedCounts
from fedhist.session.codec import query_digest
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys

IDS = np.arange(40, dtype=np.uint64)
DOMAIN = Keys.of(["rye", "tea"])
COUNTS = ClippedCounts(DOMAIN, 4.0, 1, grid=0.01)
VECTORS = ClippedCounts(DOMAIN, 4.0, 2, grid=0.01)
SHARE = Share("laplace", 0.5, 0.0, "zero-out-user", 20)
QUERY = Aggregated(COUNTS, SHARE)
OWNER = Policy(trust="aggregate", epsilon=1.0)


def ask(query: Aggregated, round_index: int = 0) -> Question:
    return Question(query, round_index, query_digest(query, round_index), True)


def refusal(policy: Policy, query: Aggregated, answered: tuple[Answered, ...] = ()) -> str:
    with pytest.raises(Refusal) as caught:
        Guard(policy, answered).admit(ask(query), IDS)
    return str(caught.value)


def test_levels_of_trust() -> None:
    assert "this node trusts none" in refusal(Policy(), QUERY)
    for trust in ("aggregate", "central"):
        entry = Guard(Policy(trust=trust)).admit(ask(QUERY), IDS)
        assert entry == Answered(ask(QUERY).digest, 0.5)
    central = Question(COUNTS, 0, query_digest(COUNTS, 0), True)
    with pytest.raises(Refusal, match="needs a trusted server"):
        Guard(OWNER).admit(central, IDS)
    with pytest.raises(ValueError, match="'local', 'aggregate', 'central', got 'shuffle'"):
        Policy(trust="shuffle")


def test_few_parties_are_refused_unless_the_owner_is_content() -> None:
    few = Aggregated(COUNTS, replace(SHARE, parties=9))
    assert "9 nodes share the noise; this node's owner asks for 10" in refusal(OWNER, few)
    assert Guard(replace(OWNER, min_parties=9)).admit(ask(few), IDS) is not None
    assert Guard(replace(OWNER, simulated=True)).admit(ask(few), IDS) is not None


def test_budgets_are_kept() -> None:
    first = Guard(OWNER).admit(ask(QUERY), IDS)
    assert first is not None
    second = Guard(OWNER, [first]).admit(ask(QUERY, 1), IDS)
    assert second is not None
    with pytest.raises(Refusal, match="a user's budget is spent: 1 of 1"):
        Guard(OWNER, [first, second]).admit(ask(QUERY, 2), IDS)
    assert Guard(OWNER, [first, second]).admit(ask(QUERY), IDS) is None  # a retry costs nothing
    assert "costs epsilon = 0.5; at most 0.4" in refusal(replace(OWNER, max_epsilon=0.4), QUERY)
    assert "at least 0.6" in refusal(replace(OWNER, min_epsilon=0.6), QUERY)
    free = Aggregated(COUNTS, replace(SHARE, epsilon=math.inf))
    assert "without noise" in refusal(replace(OWNER, epsilon=math.inf), free)


def test_rules_are_for_the_query_inside() -> None:
    named = replace(OWNER, wire_names=("clipped-counts",))
    assert Guard(named).admit(ask(QUERY), IDS) is not None
    assert "'clipped-counts'" in refusal(replace(OWNER, wire_names=("aggregated",)), QUERY)
    limited = replace(OWNER, limits=("clipped-counts.clip<=3",))
    assert "clipped-counts.clip = 4 is not <= 3" in refusal(limited, QUERY)


def test_a_series_is_paid_for_once_and_each_place_answered_once() -> None:
    share = replace(SHARE, kind="gaussian", delta=1e-6, rounds=3)
    asks = [Aggregated(VECTORS, replace(share, place=place)) for place in range(3)]
    answered: list[Answered] = []
    for place, query in enumerate(asks):
        entry = Guard(replace(OWNER, epsilon=0.5), answered).admit(ask(query), IDS)
        assert entry is not None
        assert (entry.epsilon, entry.place) == (0.0 if place else 0.5, place)
        assert Answered.from_json(entry.to_json()) == entry
        answered.append(entry)
    other = Aggregated(replace(VECTORS, clip=3.0), replace(share, place=1))
    assert "question 1 of this series was another one" in refusal(OWNER, other, tuple(answered))
    elsewhere = replace(VECTORS, cohort=Cohort(1, 0.0, 0.5))
    moved = Aggregated(elsewhere, replace(share, place=1))
    assert "asked of one cohort" in refusal(OWNER, moved, tuple(answered[:1]))
    again = Aggregated(VECTORS, replace(share, series_salt=1))
    assert "budget is spent" in refusal(replace(OWNER, epsilon=0.5), again, tuple(answered))
    with pytest.raises(ValueError, match="place"):
        replace(share, place=3)


def test_entries_of_other_queries_are_written_as_before() -> None:
    assert Answered("aa", 0.5).to_json() == (
        '{"digest": "aa", "epsilon": 0.5, "hi": 1.0, "lo": 0.0, "salt": -1}'
    )


def test_what_protects_no_user_is_refused() -> None:
    gauss = Aggregated(VECTORS, replace(SHARE, kind="gaussian", delta=1e-6))
    assert Guard(OWNER).admit(ask(gauss), IDS) is not None
    assert "costs delta = 1e-06; at most 1e-07" in refusal(replace(OWNER, max_delta=1e-7), gauss)
    items = ItemHistogram(DOMAIN, 0.5, trust=SHARE.aggregation)
    asked = items.asks(items.query, 0)
    assert isinstance(asked, Aggregated)
    assert "per item: it protects no user's record" in refusal(OWNER, asked)
    for policy in (OWNER, SIMULATION):
        with pytest.raises(Refusal, match="sends its sum, not its users' reports"):
            Guard(policy).admit(replace(ask(gauss), fold=False), IDS)
    written = {"trust": "aggregate", "min-parties": 7, "max-delta": 1}
    assert policy_of(written) == Policy("aggregate", min_parties=7, max_delta=1.0)


def test_a_node_sizes_its_noise_by_its_own_class() -> None:
    """Nothing in the message says how large it is, but for a clip by which it clips as well."""
    users = BoundedHistogram.example_users()
    share = replace(SHARE, kind="gaussian", delta=1e-6)

    def noise(query: Aggregated, index: int) -> Any:
        node = Node(NodeSetup(users, index, 3, SIMULATED_OWNER))
        body = decode_answer(node.answer(encode_question(query, 0), ContextStore(RecordDict())))
        assert isinstance(body.body, Summary)
        exact = query.query.answer_folded(users, lambda _: None)  # type: ignore[arg-type, return-value]
        return body.body.sums["counts"].view(np.int64) - exact.sums["counts"]

    for clip in (4.0, 0.5):
        query = Aggregated(replace(VECTORS, clip=clip), share)
        draws = np.concatenate([noise(query, i) for i in range(200)])
        sigma = math.sqrt((gaussian_multiplier(0.5, 1e-6) * 100 * clip) ** 2 + 4)
        assert query.shares.share == pytest.approx(sigma / 4, rel=1e-3)  # M = 16; 0.01 is no double
        # of 400 draws: within 4 standard errors, but for 1 in 16,000
        assert np.std(draws) == pytest.approx(sigma / 4, rel=4 / math.sqrt(800))
