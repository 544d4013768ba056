"""What a node's guard lets through under aggregate trust, and what a series costs."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

import fedhist as fh
from clients.frequency_oracles.oracle_votes import OracleReports
from clients.guard import SIMULATED_OWNER, Guard, Policy, Refusal
from clients.histograms.queries import ClippedCounts
from clients.node import Node, policy_of
from clients.spending import Answered, Spending
from clients.store import ContextStore
from fedhist.flower.host import NodeSetup
from fedhist.flower.wire import Question, decode_answer, encode_question
from fedhist.model.aggregated import Aggregated, Share
from fedhist.model.codec import query_digest
from fedhist.privacy.guarantee import gaussian_multiplier
from fedhist.protocols import BoundedHistogram, ItemHistogram
from fedhist.users.keys import keyed_hash

IDS = np.arange(40, dtype=np.uint64)
DOMAIN = fh.Keys.of(["rye", "tea"])
COUNTS = ClippedCounts(DOMAIN, 4.0, 1, grid=0.01)
VECTORS = ClippedCounts(DOMAIN, 4.0, 2, grid=0.01)
SHARE = Share("laplace", 0.5, 0.0, "zero-out-user", 20)
QUERY = Aggregated(COUNTS, SHARE)
OWNER = Policy(trust="aggregate", epsilon=1.0, adjacency="zero-out-user")


def ask(query: fh.Query, round_index: int = 0) -> Question:
    return Question(query, round_index, query_digest(query, round_index), True)


def refusal(policy: Policy, query: Aggregated, answered: tuple[Answered, ...] = ()) -> str:
    with pytest.raises(Refusal) as caught:
        Guard(policy, answered).admit(ask(query), IDS)
    return str(caught.value)


FEW = Aggregated(COUNTS, replace(SHARE, parties=9))


TRUSTING = Aggregated(COUNTS, replace(SHARE, tau_c=0.05))


def test_shares_of_noise_are_not_drawn_again_for_changed_records() -> None:
    """Two totals would differ by one node's change, hidden by its own share alone."""
    kept = []
    for item in DOMAIN:
        users = fh.Users.from_records({"ann": {item: 1}})
        one = Node(NodeSetup(users, 3, None, {"memoize": True, "trust": "aggregate"}))
        kept.append([one._stored_as(ask(q)).digest for q in (QUERY, COUNTS)])
    assert kept[0][0] == kept[1][0]
    assert kept[0][1] != kept[1][1]


def test_budgets_are_kept() -> None:
    first = Guard(OWNER).admit(ask(QUERY), IDS)
    assert first is not None
    second = Guard(OWNER, [first]).admit(ask(QUERY, 1), IDS)
    assert second is not None
    with pytest.raises(Refusal, match="1 of 1"):
        Guard(OWNER, [first, second]).admit(ask(QUERY, 2), IDS)
    assert Guard(OWNER, [first, second]).admit(ask(QUERY), IDS) is None  # a retry costs nothing
    free = Aggregated(COUNTS, replace(SHARE, epsilon=math.inf))
    assert "without noise" in refusal(replace(OWNER, epsilon=math.inf), free)


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
    elsewhere = replace(VECTORS, cohort=fh.Cohort(1, 0.0, 0.5))
    moved = Aggregated(elsewhere, replace(share, place=1))
    assert "asked of one cohort" in refusal(OWNER, moved, tuple(answered[:1]))
    halves = [
        Aggregated(replace(VECTORS, cohort=fh.Cohort(1, lo, lo + 0.5)), replace(share, place=place))
        for place, lo in enumerate((0.0, 0.5))
    ]
    paid = Guard(OWNER).admit(ask(halves[0]), IDS)
    assert paid is not None
    assert "asked of one cohort" in refusal(OWNER, halves[1], (paid,))
    again = Aggregated(VECTORS, replace(share, series_salt=1))
    assert "budget is spent" in refusal(replace(OWNER, epsilon=0.5), again, tuple(answered))
    with pytest.raises(ValueError, match="place"):
        replace(share, place=3)


def test_what_protects_no_user_is_refused() -> None:
    gauss = Aggregated(VECTORS, replace(SHARE, kind="gaussian", delta=1e-6))
    assert Guard(OWNER).admit(ask(gauss), IDS) is not None
    assert "costs delta = 1e-06; at most 1e-07" in refusal(replace(OWNER, max_delta=1e-7), gauss)
    items = ItemHistogram(DOMAIN, 0.5, trust=SHARE.aggregation)
    asked = items.asks(items.query, 0)
    assert isinstance(asked, Aggregated)
    assert "under replace-item says nothing under zero-out-user" in refusal(OWNER, asked)
    for policy in (OWNER, policy_of(SIMULATED_OWNER)):
        with pytest.raises(Refusal, match="sends its sum, not its users' reports"):
            Guard(policy).admit(replace(ask(gauss), fold=False), IDS)
    written = {"trust": "aggregate", "min-parties": 7, "max-delta": 1, "delta": "0.5"}
    assert policy_of(written) == Policy("aggregate", min_parties=7, max_delta=1.0, delta=0.5)
    other = {"adjacency": "add-remove-user", "min-collude": "0.2"}
    assert policy_of(other) == Policy(adjacency="add-remove-user", min_collude=0.2)


def test_a_node_sizes_its_noise_by_its_own_class() -> None:
    """Nothing in the message says how large it is, but for a clip by which it clips as well."""
    users = BoundedHistogram.example_users()
    share = replace(SHARE, kind="gaussian", delta=1e-6)

    def noise(query: Aggregated, index: int) -> Any:
        node = Node(NodeSetup(users, index, 3, SIMULATED_OWNER))
        body = decode_answer(node.answer(encode_question(query, 0), ContextStore(RecordDict())))
        assert isinstance(body.body, fh.Summary)
        exact = query.query.answer_folded(users, lambda _: None)
        return body.body.sums["counts"].view(np.int64) - exact.sums["counts"]

    for clip in (4.0, 0.5):
        query = Aggregated(replace(VECTORS, clip=clip), share)
        draws = np.concatenate([noise(query, i) for i in range(200)])
        sigma = math.sqrt((gaussian_multiplier(0.5, 1e-6) * 100 * clip) ** 2 + 4)
        assert query.shares.share == pytest.approx(sigma / 4, rel=1e-3)  # M = 16; 0.01 is no double
        # of 400 draws: within 4 standard errors, but for 1 in 16,000
        assert np.std(draws) == pytest.approx(sigma / 4, rel=4 / math.sqrt(800))


def cost(policy: Policy, query: Aggregated) -> tuple[float, float]:
    entry = Guard(policy).admit(ask(query), IDS)
    assert entry is not None
    return entry.epsilon, entry.delta


def test_a_cost_counts_under_the_owners_adjacency() -> None:
    """The server names the adjacency; what counts is the noise that it has left the users."""
    owner = Policy(trust="aggregate", epsilon=2.0)
    for declared in ("zero-out-user", "add-remove-user", "replace-user"):
        shares = Aggregated(COUNTS, replace(SHARE, adjacency=declared))
        # Laplace noise of scale s hides a move of 2 * 399 steps (0.01 is no double) at 798 / s
        assert cost(owner, shares) == pytest.approx((798 / shares.shares.size, 0.0))
        gauss = replace(SHARE, kind="gaussian", delta=1e-6, adjacency=declared)
        query = Aggregated(VECTORS, gauss)
        epsilon, delta = cost(owner, query)
        assert delta == 1e-6
        move = VECTORS.sensitivity(fh.Adjacency.REPLACE_USER)  # 400 sqrt 2: of a ball of counts
        assert gaussian_multiplier(epsilon, delta) * move <= query.shares.size * (1 + 1e-9)
        assert epsilon < 0.85  # group privacy would say 1, and 2.6 times delta
    assert "at most 0.9" in refusal(replace(owner, max_epsilon=0.9), QUERY)
    said = refusal(replace(owner, epsilon=0.9), QUERY)
    assert said.endswith("spent: 0 of 0.9, the query costs 1 more under replace-user")
    hidden = Policy(trust="aggregate", adjacency="add-remove-user")
    assert cost(hidden, Aggregated(COUNTS, replace(SHARE, adjacency="add-remove-user")))[0] == 0.5
    assert "the number of users is public" in refusal(hidden, QUERY)
    local = OracleReports(DOMAIN, 0.5, kind="unary")
    asked = Question(local, 0, query_digest(local, 0), True)
    for policy in (Policy(), OWNER):
        assert Guard(policy).admit(asked, IDS) == Answered(
            asked.digest, 0.5, adjacency=policy.adjacency
        )
    with pytest.raises(Refusal, match="the number of users is public"):
        Guard(hidden).admit(asked, IDS)
    with pytest.raises(ValueError, match="adjacency must be"):
        Policy(adjacency="replace-item")


def test_what_was_paid_is_converted_when_the_owner_thinks_again() -> None:
    entry = Guard(OWNER).admit(ask(QUERY), IDS)
    assert entry is not None
    assert Answered.from_json(entry.to_json()) == entry
    strict = replace(OWNER, adjacency="replace-user")
    assert Guard(strict, [entry]).spent(IDS).tolist() == [1.0] * len(IDS)
    assert Guard(OWNER, [replace(entry, adjacency="replace-user")]).spent(IDS).max() == 0.5
    hidden = replace(OWNER, adjacency="add-remove-user")
    private = Aggregated(COUNTS, replace(SHARE, adjacency="add-remove-user"))
    assert "the number of users is public" in refusal(hidden, private, (entry,))


def test_deltas_add_up() -> None:
    query = Aggregated(VECTORS, replace(SHARE, kind="gaussian", epsilon=0.01, delta=4e-6))
    answered: list[Answered] = []
    for place in range(2):
        entry = Guard(OWNER, answered).admit(ask(query, place), IDS)
        assert entry is not None
        answered.append(Answered.from_json(entry.to_json()))
    assert [a.delta for a in answered] == [4e-6, 4e-6]
    with pytest.raises(Refusal, match="budget of delta is spent: 8e-06 of 1e-05, the query"):
        Guard(OWNER, answered).admit(ask(query, 2), IDS)
    assert Guard(replace(OWNER, delta=2e-5), answered).admit(ask(query, 2), IDS) is not None
    lower = fh.Cohort(3, 0.0, 0.5)  # a series pays with its first question: delta, too
    part = Aggregated(replace(VECTORS, cohort=lower), replace(query.share, rounds=2, place=1))
    first = replace(answered[0], series=part.series or "", place=0, salt=3, hi=0.5)
    entry = Guard(OWNER, [first]).admit(ask(part), IDS)
    assert entry is not None
    assert (entry.epsilon, entry.delta) == (0.0, 0.0)


@pytest.mark.parametrize("adjacency", ["add-remove-user", "replace-user"])
def test_a_refusal_does_not_tell_who_is_on_a_node(adjacency: str) -> None:
    """Everybody has spent; then a cohort is asked that is as narrow as one id."""
    owner = replace(OWNER, adjacency=adjacency, epsilon=2.0)
    share = replace(SHARE, adjacency="add-remove-user", epsilon=1.0)
    place = float(keyed_hash(IDS[:1], 7)[0]) / 2**64
    narrow = fh.Cohort(7, place - 2**-40, place + 2**-40)
    solo = Aggregated(replace(COUNTS, cohort=narrow), share)
    first = Guard(owner).admit(ask(Aggregated(COUNTS, replace(share, epsilon=0.9))), IDS)
    assert first is not None
    said = set()
    for who in (IDS[:1], IDS[:0]):  # the target is there, or not
        try:
            said.add(str(Guard(owner, [first] * 2).admit(ask(solo), who)))
        except Refusal as reason:
            said.add(str(reason))
    assert len(said) == 1
    assert "budget is spent" in said.pop()


def test_what_anybody_may_have_spent_is_a_function_of_cohorts() -> None:
    """Against brute force: a fine grid of hashes under one salt, the worst of each of two salts."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        ends = np.sort(rng.integers(0, 9, (12, 2)), axis=1).tolist()
        answered = [Answered("all", 1.0)]
        for i, (lo, hi) in enumerate(ends):
            price = float(rng.integers(1, 9))
            answered.append(Answered(str(i), price, i % 2 + 1, lo / 10, (hi + 1) / 10))
        asked = Answered("new", 0.0, 1, 0.2, 0.5)
        worst = {1: 0.0, 2: 0.0}
        for salt in worst:
            at = np.arange(0.2, 0.5, 0.01) if salt == 1 else np.arange(0.0, 1.0, 0.01)
            mine = [a for a in answered if a.salt == salt]
            met = [sum(a.epsilon for a in mine if a.lo <= x + 1e-9 < a.hi) for x in at]
            worst[salt] = max(met)
        result = Spending.of(answered, fh.Adjacency.REPLACE_USER).by_anybody(asked)
        assert result.tolist() == [[1.0 + sum(worst.values()), 0.0]]


def test_where_presence_is_private_a_trusted_server_gets_all_users_or_none() -> None:
    hidden = Policy(trust="central", adjacency="add-remove-user")
    part = replace(COUNTS, cohort=fh.Cohort(5, 0.0, 0.5))
    for n in (1, 20, 40):  # of 40: nothing is said of how many
        with pytest.raises(Refusal, match="single out"):
            Guard(hidden).admit(Question(part, 0, "d", True), IDS[:n], len(IDS))
        free = replace(hidden, min_users=0)
        assert Guard(free).admit(Question(part, 0, "d", True), IDS[:n], len(IDS)) is not None
    assert Guard(hidden).admit(Question(COUNTS, 0, "d", True), IDS, len(IDS)) is not None


@pytest.mark.parametrize(
    ("policy", "query", "told"),
    [
        (Policy(), QUERY, "trusts none"),
        (OWNER, FEW, "9 nodes .* 10"),
        (OWNER, TRUSTING, "tau_c = 0.05 .* 0.1"),
        (replace(OWNER, max_epsilon=0.4), QUERY, "0.5; at most 0.4"),
        (replace(OWNER, min_epsilon=0.6), QUERY, "at least 0.6"),
        (replace(OWNER, wire_names=("aggregated",)), QUERY, "'clipped-counts'"),
        (replace(OWNER, limits=("clipped-counts.clip<=3",)), QUERY, "4 is not <= 3"),
    ],
)
def test_what_an_owner_does_not_allow_is_refused(
    policy: Policy, query: Aggregated, told: str
) -> None:
    """Rules are for the query inside; few parties and few colluders are the owner's to accept."""
    with pytest.raises(Refusal, match=told):
        Guard(policy).admit(ask(query), IDS)


@pytest.mark.parametrize(
    ("policy", "query"),
    [
        (replace(OWNER, min_parties=9), FEW),
        (replace(OWNER, simulated=True), FEW),
        (replace(OWNER, min_collude=0.05), TRUSTING),
        (replace(OWNER, simulated=True), TRUSTING),
        (replace(OWNER, wire_names=("clipped-counts",)), QUERY),
    ],
)
def test_what_an_owner_allows_is_answered(policy: Policy, query: Aggregated) -> None:
    assert Guard(policy).admit(ask(query), IDS) is not None


def test_levels_of_trust() -> None:
    for trust in ("aggregate", "central"):
        entry = Guard(replace(OWNER, trust=trust)).admit(ask(QUERY), IDS)
        assert entry == Answered(ask(QUERY).digest, 0.5, adjacency="zero-out-user")
    central = Question(COUNTS, 0, query_digest(COUNTS, 0), True)
    with pytest.raises(Refusal, match="trusted server"):
        Guard(OWNER).admit(central, IDS)
