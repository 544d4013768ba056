"""The guard: what the owner allows, what each user has spent, and the same answer twice."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

from clients.frequency_oracles.oracle_votes import OracleReports
from clients.guard import SIMULATED_OWNER, Guard, Policy, Refusal
from clients.guard_folder import FolderStore, GuardDamaged
from clients.histograms.queries import ClippedCounts
from clients.localize.queries import BinVotes, ClippedMean
from clients.node import Node, policy_of
from clients.records.functionals import Coordinates, Rotated
from clients.spending import Answered
from clients.store import ContextStore, Store
from fedhist.flower.host import NodeSetup
from fedhist.flower.wire import Question, decode_answer, decode_question, encode_question
from fedhist.model.query import Query, Report, Summary
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from server.means.mean import Mean

IDS = np.arange(1000, dtype=np.uint64)
COUNTS = ClippedCounts(Keys.of(["a", "b"]), 2.0, 1)
LOW, HIGH = Cohort(5, 0.0, 0.5), Cohort(5, 0.5, 1.0)


def votes(epsilon: float = 1.0, cohort: Cohort | None = None) -> BinVotes:
    return BinVotes(Coordinates(1), 8, epsilon, cohort=cohort)


def ask(query: Query, number: int = 0, *, fold: bool = True) -> Question:
    return decode_question(encode_question(query, number, fold=fold))


def refusal(guard: Guard, query: Query, number: int = 0, ids: Any = IDS) -> str:
    with pytest.raises(Refusal) as caught:
        guard.admit(ask(query, number), ids)
    return str(caught.value)


def test_budget_is_per_user() -> None:
    """Disjoint cohorts spend apart; a user that answered twice has spent twice."""
    guard = Guard(Policy(epsilon=1.0))
    spent = []
    for number, cohort in enumerate((LOW, HIGH)):
        mine = IDS[cohort.contains(IDS)]
        entry = Guard(Policy(epsilon=1.0), spent).admit(ask(votes(1.0, cohort), number), mine)
        assert entry is not None
        assert (entry.epsilon, entry.salt, entry.lo) == (1.0, 5, cohort.lo)
        spent.append(entry)
    guard = Guard(Policy(epsilon=1.0), spent)
    assert (guard.spent(IDS) == 1.0).all()
    everyone = refusal(guard, votes(0.1), 2)
    assert everyone == "a user's budget is spent: 1 of 1, the query costs 0.1 more"
    half = Guard(Policy(epsilon=1.0), spent[:1])
    assert set(half.spent(IDS[LOW.contains(IDS)])) == {1.0}
    assert set(half.spent(IDS[HIGH.contains(IDS)])) == {0.0}
    assert "budget is spent" in refusal(half, votes(0.5), 2)  # some of them are in LOW
    upper = IDS[HIGH.contains(IDS)]
    assert half.admit(ask(votes(0.5, HIGH), 2), upper) is not None


def test_overlapping_cohorts_add_up() -> None:
    a, b = Cohort(5, 0.0, 0.6), Cohort(5, 0.4, 1.0)
    guard = Guard(Policy(), [Answered("x", 0.5, a.salt, a.lo, a.hi), Answered("y", 0.4, 5, 0.4, 1)])
    spent = guard.spent(IDS)
    assert np.allclose(spent, 0.5 * a.contains(IDS) + 0.4 * b.contains(IDS))
    assert spent.max() == pytest.approx(0.9)


def test_ten_tenths_are_one() -> None:
    answered: list[Answered] = []
    for number in range(10):
        entry = Guard(Policy(epsilon=1.0), answered).admit(ask(votes(0.1), number), IDS)
        assert entry is not None
        answered.append(entry)
    refusal(Guard(Policy(epsilon=1.0), answered), votes(0.1), 10)


def test_policies_from_a_node_s_configuration() -> None:
    written = {"trust": "central", "epsilon": 2, "max-epsilon": "0.5", "queries": "a, b,"}
    policy = policy_of(written | {"simulated": False, "guard-folder": "/x"})
    assert policy == Policy("central", 2.0, 0.5, ("a", "b"))
    assert policy_of({}) == Policy(trust="local", epsilon=1.0)
    for bad in ({"epsilon": "much"}, {"trust": 1}, {"simulated": "no"}):
        with pytest.raises(ValueError, match=str(next(iter(bad.values())))):
            policy_of(bad)


def node(seed: int | None, **owner: Any) -> Node:
    return Node(NodeSetup(Mean.example_users(), 3, seed, owner))


def stores(tmp_path: Path) -> list[Store]:
    return [ContextStore(RecordDict()), FolderStore(tmp_path / "guard")]


def body(record: RecordDict) -> Summary | Report | str:
    answer = decode_answer(record)
    assert answer.node == 3
    return answer.body


def counts(record: RecordDict) -> list[int]:
    summary = body(record)
    assert isinstance(summary, Summary)
    return list(summary.sums["votes"][0].tolist())


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("which", [0, 1])
def test_the_same_question_gets_the_same_answer(
    seed: int | None, which: int, tmp_path: Path
) -> None:
    """Also for another node object, as after a restart; with real entropy the coins would differ
    (8 sums over 400 users agree by chance with probability below 1e-9)."""
    store = stores(tmp_path)[which]
    question = encode_question(votes(0.5), 0)
    first = counts(node(seed).answer(question, store))
    assert counts(node(seed).answer(encode_question(votes(0.5), 0), store)) == first
    assert len(store.answered()) == 1
    # another round draws afresh, and is charged
    assert counts(node(seed).answer(encode_question(votes(0.5), 1), store)) != first
    assert [a.epsilon for a in store.answered()] == [0.5, 0.5]
    refused = body(node(seed).answer(encode_question(votes(0.5), 2), store))
    assert isinstance(refused, str)
    assert "budget is spent: 1 of 1" in refused
    assert len(store.answered()) == 2
    assert counts(node(seed).answer(question, store)) == first  # still answered as before


@pytest.mark.parametrize("seed", [None, 7])
def test_a_question_that_comes_again_is_paid_for_where_records_have_changed(
    seed: int | None, tmp_path: Path
) -> None:
    """The rule of permanent reports: as many reports as states of the records, and no more."""
    users, question = Mean.example_users(), encode_question(votes(0.5), 0)
    moved = Users(users.ids, samples=replace(users.reals, values=-users.reals.values))
    third = Users(users.ids, samples=replace(users.reals, values=users.reals.values / 2))
    store = FolderStore(tmp_path)

    def asked(who: Users, memoize: bool = True) -> RecordDict:
        owner = {"epsilon": 1.0, "memoize": memoize}
        return Node(NodeSetup(who, 3, seed, owner)).answer(question, store)

    weeks = [counts(asked(who)) for who in (users, users, moved, users, moved)]
    assert weeks[0] == weeks[1] == weeks[3] != weeks[2] == weeks[4]
    assert [a.epsilon for a in store.answered()] == [0.5, 0.5]
    assert decode_answer(asked(moved)).digest == decode_question(question).digest
    assert "budget is spent: 1 of 1" in str(body(asked(third)))
    for who in (users, third):  # a node that does not memoize: the first answer stands for good
        store = FolderStore(tmp_path / "plain")
        assert isinstance(asked(who, memoize=False), RecordDict)
        assert len(store.answered()) == 1


def test_an_answer_that_was_lost_is_not_drawn_again(tmp_path: Path) -> None:
    """A folder that lost it is damaged; a Context may forget, and the guard then says so."""
    question = encode_question(votes(0.5), 0)
    node(None).answer(question, FolderStore(tmp_path))
    for file in tmp_path.glob("reply-*"):
        file.unlink()
    with pytest.raises(GuardDamaged, match="reply of line 1 is missing"):
        node(None).answer(question, FolderStore(tmp_path))
    state = RecordDict()
    node(None).answer(question, ContextStore(state))
    for key in [k for k in state if k.startswith("fedhist.reply")]:
        del state[key]
    answer = body(node(None).answer(question, ContextStore(state)))
    assert isinstance(answer, str)
    assert "no longer here" in answer


def test_tiny_budgets_are_not_asked_without_end() -> None:
    answered = [Answered(f"{i:032x}", 0.0) for i in range(1000)]
    assert "1000" in refusal(Guard(Policy(), answered), votes())
    # what was answered before still is
    again = Guard(Policy(), [*answered, Answered(ask(votes()).digest, 1.0)])
    assert again.admit(ask(votes()), IDS) is None


def owned(users: Users, shape: Users | None = None, **policy: Any) -> Node:
    owner = {"trust": "local", "epsilon": 1.0, **policy}
    return Node(NodeSetup(users, 3, None, owner, shape))


def test_a_large_reply_is_refused_before_it_is_computed(tmp_path: Path) -> None:
    """A short question whose answer would have more than a gigabyte."""
    store, users = (
        FolderStore(tmp_path),
        Users.from_samples([1, 2], [0, 1, 2], np.zeros((2, 1)), unusable=True),
    )
    wide = BinVotes(Rotated(1 << 14, 1.0, 1), 8192, 1.0)
    assert "1073872896" in str(body(owned(users).answer(encode_question(wide, 0), store)))
    many = Users.from_samples(range(1, 10_001), range(10_001), np.zeros((10_000, 1)), unusable=True)
    whole = encode_question(BinVotes(Coordinates(1), 65536, 1.0), 0, fold=False)
    assert "at most" in str(body(owned(many, users.select(None)).answer(whole, store)))
    small = owned(users, **{"max-store-bytes": 100})
    assert "100 bytes" in str(body(small.answer(encode_question(votes(0.5), 0), store)))
    assert store.answered() == ()


@pytest.mark.parametrize("n_samples", [0, 1])
def test_a_wrong_dimension_is_refused_whatever_the_records_hold(n_samples: int) -> None:
    """By the declared shape, before any record is read: an empty one says the same."""
    shape = Users.from_samples([0], [0, 1], np.zeros((1, 3)), unusable=True)
    users = Users.from_samples([7], [0, n_samples], np.zeros((n_samples, 3)), unusable=True)
    for query in (
        BinVotes(Coordinates(4), 8, 0.5),
        OracleReports(Keys.of(["a"]), 0.5, kind="unary"),
    ):
        store = ContextStore(RecordDict())
        answer = body(owned(users, shape).answer(encode_question(query, 0), store))
        assert "the data of this node are of another kind" in str(answer)
        assert store.answered() == ()
    good = encode_question(BinVotes(Coordinates(3), 8, 0.5), 0)
    assert isinstance(body(owned(users, shape).answer(good, ContextStore(RecordDict()))), Summary)


def test_unfolded_answers_are_stored_too(tmp_path: Path) -> None:
    for store in stores(tmp_path):
        question = encode_question(votes(0.5, LOW), 0, fold=False)
        first, again = (body(node(None).answer(question, store)) for _ in range(2))
        assert isinstance(first, Report)
        assert isinstance(again, Report)
        assert LOW.contains(first.ids).all()
        assert np.array_equal(first.arrays["votes"], again.arrays["votes"])


def test_a_query_that_differs_in_last_bits_gets_the_first_answer(tmp_path: Path) -> None:
    """Both have one digest: a second draw, or the same noise around other numbers, would tell."""
    for store in stores(tmp_path):
        first, near = votes(0.5), votes(0.5 + 1e-12)
        replies = [node(None).answer(encode_question(q, 0), store) for q in (first, near)]
        assert counts(replies[0]) == counts(replies[1])
        assert len(store.answered()) == 1


@pytest.mark.parametrize("kind", ["laplace", "piecewise", "onebit"])
def test_floating_point_noise_stays_in_the_simulation(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that chooses the interval reads a mean from the low bits of one float report."""
    query = ClippedMean(Coordinates(1), np.zeros(1), 0.5, epsilon=0.5, kind=kind)
    guard = Guard(Policy(epsilon=5.0))
    assert guard.admit(ask(query), IDS) is not None  # lattices: exact as drawn
    monkeypatch.setattr(ClippedMean, "exact", False)
    assert Guard(policy_of(SIMULATED_OWNER)).admit(ask(query), IDS) is not None
    assert "floating-point" in refusal(guard, query)


@pytest.mark.parametrize("least", [1, 2, 20])
def test_fewest_users_that_a_central_query_may_single_out(least: int) -> None:
    """So many are answered for, one fewer is refused; all of a small node may be asked."""
    guard = Guard(Policy(trust="central", min_users=least))
    few, enough = IDS[: least - 1], IDS[:least]
    assert guard.admit(ask(COUNTS), enough, len(IDS)) is not None
    with pytest.raises(Refusal, match=f"fewer than {least} users"):
        guard.admit(ask(COUNTS, 1), few, len(IDS))
    assert guard.admit(ask(COUNTS, 2), few, len(few)) is not None


@pytest.mark.parametrize(
    ("policy", "query", "told"),
    [
        (Policy(), COUNTS, "trusted server"),
        (Policy(epsilon=5.0, max_epsilon=1.0), votes(1.5), "1.5; at most 1"),
        (Policy(wire_names=("clipped-mean",)), votes(), "'bin-votes'"),
        (Policy(), votes(math.inf), "without noise"),
        (Policy(epsilon=math.inf), votes(math.inf), "without noise"),
        (Policy(trust="central", epsilon=math.inf), votes(math.inf), "without noise"),
        (Policy(), votes(1e-17), "1e-17; at least 0.001"),
        (Policy(trust="central", limits=("clipped-counts.clip<=1",)), COUNTS, "2 is not <= 1"),
        (Policy(trust="central", limits=("clipped-counts.klip<=1",)), COUNTS, "'klip'"),
    ],
)
def test_what_an_owner_does_not_allow_is_refused(policy: Policy, query: Query, told: str) -> None:
    assert told in refusal(Guard(policy), query)


@pytest.mark.parametrize(
    ("policy", "query"),
    [
        (Policy(trust="central"), COUNTS),
        (Policy(max_epsilon=1.0), votes()),
        (Policy(wire_names=("bin-votes",)), votes(cohort=LOW)),
        (Policy(wire_names=("bin-votes",)), votes()),
        (policy_of(SIMULATED_OWNER), votes(math.inf)),
        (Policy(min_epsilon=0.0), votes(1e-17)),
        (Policy(trust="central", limits=("clipped-counts.clip <= 2",)), COUNTS),
    ],
)
def test_what_an_owner_allows_is_answered(policy: Policy, query: Query) -> None:
    assert Guard(policy).admit(ask(query), IDS) is not None


def test_an_answered_query_costs_nothing_more() -> None:
    entry = Guard(Policy()).admit(ask(votes()), IDS)
    assert entry is not None
    guard = Guard(Policy(), [entry])
    assert guard.admit(ask(votes()), IDS) is None
    assert guard.admit(ask(votes(), fold=False), IDS) is None
    refusal(guard, votes(), 1)  # another round is another question
    said = refusal(Guard(Policy(wire_names=("other",)), [entry]), votes())
    # the owner changed his mind; the reason says nothing of the data
    assert said == "the owner of this node does not allow the query 'bin-votes'"
