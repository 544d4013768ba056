"""Sums under masks over a grid: dropouts, kills, replays, flipped bits; nodes in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from masked_grids import (
    ROUNDS,
    SEED,
    FaultyGrid,
    Killed,
    expected,
    flipped,
    masked_vectors,
    start,
    total_of,
)

from fedhist import Users
from fedhist.base.errors import MissingReplies, WireError
from fedhist.flower.masked_wire import decode_told, encode_asks, encode_told
from fedhist.flower.wire import decode_answer
from fedhist.model.codec import query_digest
from fedhist.privacy.shares import Aggregation
from fedhist.protocols import BoundedHistogram
from fedhist.secagg.messages import seal
from simulations.runs.options import Options
from simulations.runs.run import execute

N, QUORUM, THRESHOLD = 12, 10, 7
"""With tau_d = .2 and tau_c = .1 two may drop out and one may collude; floor((12 + 1) / 2) + 1."""
USERS = Users.from_records({f"user-{i}": {"tea": 1 + i % 3, "rye": i % 2} for i in range(40)})
NODES = USERS.split(N)
PROTOCOL = BoundedHistogram(
    domain=USERS.vocabulary, clip=2.0, epsilon=1.0, grid=0.01, trust=Aggregation(N, 0.2, 0.1)
)


@pytest.fixture
def grid() -> FaultyGrid:
    return FaultyGrid(NODES, SEED)


def without(*lost: int) -> list[int]:
    return [i for i in range(N) if i not in lost]


@pytest.mark.parametrize("trust", [Aggregation(N, 0.2, 0.1), Aggregation(N, 0.0, 0.0)])
def test_same_bits_as_without_masks(trust: Aggregation) -> None:
    protocol = replace(PROTOCOL, trust=trust)
    ideal, masked = (
        execute(protocol, USERS, Options(seed=SEED, nodes=N, aggregation=way)).estimate
        for way in ("ideal", "masked")
    )
    assert ideal.value is not None
    np.testing.assert_array_equal(masked.value, ideal.value)
    assert masked.public == ideal.public
    assert (ideal.ledger.aggregation, masked.ledger.aggregation) == ("ideal (simulated)", "masked")
    assert masked.ledger.spent(0.0) == ideal.ledger.spent(0.0)


def test_masks_are_for_sums_with_shares_of_noise() -> None:
    central = BoundedHistogram(domain=USERS.vocabulary, clip=2.0, epsilon=1.0)
    with pytest.raises(ValueError, match="bounded-histogram has central trust"):
        execute(central, USERS, Options(seed=SEED, nodes=N, aggregation="masked"))
    with pytest.raises(ValueError, match="must be one of ideal, masked, got 'mask'"):
        Options(aggregation="mask")


def test_no_vector_is_sent_as_it_is(grid: FaultyGrid) -> None:
    session, _ = start(grid, PROTOCOL)
    sent = masked_vectors(grid)
    assert len(sent) == N
    for i, words in enumerate(sent):
        alone = expected(PROTOCOL, NODES, [i])
        signed = words.view(f"i{words.itemsize}")
        assert not (signed == alone).any()  # by chance: below 1e-7
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, range(N)))


@pytest.mark.parametrize(
    ("name", "way"), [*((name, "unheard") for name in ROUNDS), ("masked", "unseen")]
)
def test_two_dropouts_before_or_after_each_round(grid: FaultyGrid, name: str, way: str) -> None:
    lost = {3, 7}
    # who drops out in one round is not asked again
    setattr(grid, way, {r: lost for r in ROUNDS[ROUNDS.index(name) :]})
    session, strategy = start(grid, PROTOCOL)
    present = range(N) if name == "unmask" else without(*lost)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, present))
    assert strategy.rounds[0]["replies"] == len(list(present))
    assert strategy.rounds[0][f"dropped: secagg.{name}: no reply"] == 2


def test_below_the_quorum_nothing_is_unmasked(grid: FaultyGrid, tmp_path: Path) -> None:
    name = "masked"
    grid.unheard = {name: {1, 4, 9}}
    with pytest.raises(MissingReplies, match=f"secagg.{name} needs {QUORUM} nodes"):
        start(grid, PROTOCOL, tmp_path)
    assert not grid.told["unmask"]
    grid.unheard = {}
    session, _ = start(grid, PROTOCOL, tmp_path)  # a retry: other masks, the same numbers
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, range(N)))
    first, again = masked_vectors(grid)[0], masked_vectors(grid)[N - 3]
    assert (first != again).all()


def test_more_nodes_than_the_quorum_may_be_asked_for(grid: FaultyGrid) -> None:
    grid.unheard = {"masked": {1}}
    with pytest.raises(MissingReplies):
        start(grid, PROTOCOL, min_replies=N)
    session, _ = start(grid, PROTOCOL, min_replies=N - 1)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, without(1)))


def test_a_node_that_answers_twice_counts_once(grid: FaultyGrid, monkeypatch: Any) -> None:
    send = FaultyGrid.send_and_receive

    def twice(self: FaultyGrid, messages: Any, **given: Any) -> list[Message]:
        replies = list(send(self, messages, **given))
        return replies + replies[:1]

    monkeypatch.setattr(FaultyGrid, "send_and_receive", twice)
    session, strategy = start(grid, PROTOCOL)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, range(N)))
    assert strategy.rounds[0]["replies"] == N
    dropped = [key for key in strategy.rounds[0] if "answered twice" in key]
    assert len(dropped) == len(ROUNDS)


def test_too_few_unmask_and_the_others_do_later(grid: FaultyGrid, tmp_path: Path) -> None:
    """Five of twelve reply, a restart asks again: the set stays, whoever is there then."""
    grid.unseen = {"unmask": set(range(7)), "masked": {11}}
    with pytest.raises(MissingReplies, match=f"secagg.unmask needs {THRESHOLD} nodes"):
        start(grid, PROTOCOL, tmp_path)
    grid.unseen = {"unmask": {9, 10}}
    session, _ = start(grid, PROTOCOL, tmp_path)
    assert len(grid.told["keys"]) == N  # no second attempt
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, range(11)))


@pytest.mark.parametrize("when", ["kill_before", "kill_after"])
@pytest.mark.parametrize("name", ROUNDS)
def test_a_killed_server_goes_on(grid: FaultyGrid, tmp_path: Path, name: str, when: str) -> None:
    grid.unseen = {"masked": {2}}
    setattr(grid, when, name)
    with pytest.raises(Killed):
        start(grid, PROTOCOL, tmp_path)
    grid.kill_before = grid.kill_after = ""
    session, _ = start(grid, PROTOCOL, tmp_path)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, without(2)))
    assert len(session.ledger.entries) == 1
    again, _ = start(FaultyGrid(NODES, SEED), PROTOCOL, tmp_path)  # replayed: nobody is asked
    np.testing.assert_array_equal(total_of(again), total_of(session))


def test_replies_are_journalled_before_the_sum_is_looked_at(
    grid: FaultyGrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("fedhist.secagg.ServerAttempt.take_unmask", dies)
        with pytest.raises(Killed):
            start(grid, PROTOCOL, tmp_path)
    grid.unheard = {"unmask": range(N)}  # nobody answers any more, nor has to
    session, _ = start(grid, PROTOCOL, tmp_path)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, range(N)))


def test_damaged_replies_are_not_journalled(
    grid: FaultyGrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be sealed anew, and two wrong shares of a secret lose the sum for good."""

    def dies(*_: object) -> None:
        raise Killed

    grid.changed_reply = lambda r, i, record: (
        flipped(record, "shares") if r == "unmask" and i < 2 else record
    )
    with monkeypatch.context() as patched:
        patched.setattr("fedhist.secagg.ServerAttempt.take_unmask", dies)
        with pytest.raises(Killed):
            start(grid, PROTOCOL, tmp_path)
    grid.unseen = {"unmask": {0, 1}}  # gone
    session, _ = start(grid, PROTOCOL, tmp_path)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, range(N)))


@pytest.mark.parametrize("name", ROUNDS)
def test_a_flipped_bit_in_a_reply_counts_as_no_reply(grid: FaultyGrid, name: str) -> None:
    grid.changed_reply = lambda r, i, record: flipped(record) if (r, i) == (name, 6) else record
    session, strategy = start(grid, PROTOCOL)
    present = range(N) if name == "unmask" else without(6)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, present))
    if name != "unmask":
        (reason,) = (k for k in strategy.rounds[0] if k.startswith("dropped: ") and "damaged" in k)
        assert strategy.rounds[0][reason] == 1


@pytest.mark.parametrize("name", ROUNDS)
def test_a_flipped_bit_in_a_message_is_refused(grid: FaultyGrid, name: str) -> None:
    grid.changed_ask = lambda r, i, record: flipped(record) if (r, i) == (name, 6) else record
    session, strategy = start(grid, PROTOCOL)
    present = range(N) if name == "unmask" else without(6)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, present))
    reasons = [k for k in strategy.rounds[0] if "the client refused" in k]
    assert len(reasons) == 1
    assert f"secagg.{name}" in reasons[0]


def answer(grid: FaultyGrid, message: Message) -> str | RecordDict:
    content = grid.answer(message).content
    kind = content["fedhist"]["kind"]
    return str(decode_answer(content).body) if kind == "refusal" else content


def like(message: Message, record: RecordDict) -> Message:
    return Message(record, message.metadata.dst_node_id, "query")


def test_a_node_unmasks_once(grid: FaultyGrid, tmp_path: Path) -> None:
    session, _ = start(grid, PROTOCOL)
    message = grid.sent["unmask"][0]
    first = grid.told["unmask"][0]
    again = answer(grid, message)
    assert dict(again["fedhist"]) == dict(first["fedhist"])  # the check value is in it
    head = message.content["fedhist"]
    digest, run = head["digest"], head["session"]
    other = seal("unmask.ask", run, 0, present=np.arange(11, dtype=np.uint32))
    (record,) = encode_asks("unmask", digest, {0: other}).values()
    assert "has unmasked another set; it does so once" in str(answer(grid, like(message, record)))
    with pytest.raises(MissingReplies, match="has unmasked its answer to this query, and does so"):
        start(grid, PROTOCOL)  # the same query, of a run that has not the first one's journal
    assert digest == query_digest(PROTOCOL.asks(PROTOCOL.query, 0), 0)
    assert session.estimate is not None


def test_a_sum_that_no_honest_nodes_can_add_up_to_is_refused(grid: FaultyGrid) -> None:
    """One corrupted node can set the sum to anything else."""

    def shifted(name: str, index: int, record: RecordDict) -> RecordDict:
        if (name, index) != ("masked", 4):
            return record
        told = decode_told(record)
        values = told.message["values"] + told.message["values"].dtype.type(1 << 30)
        users = told.message["users"]
        message = seal("masked.answer", told.message["session"], 4, values=values, users=users)
        return encode_told("masked", told.digest, message)

    grid.changed_reply = shifted
    with pytest.raises(WireError, match="outside"):
        start(grid, PROTOCOL)


def test_a_node_has_no_more_users_than_one_may_have(grid: FaultyGrid) -> None:
    def many(name: str, index: int, record: RecordDict) -> RecordDict:
        if (name, index) != ("masked", 4):
            return record
        told = decode_told(record)
        values, users = told.message["values"], np.array([5], np.uint64)
        message = seal("masked.answer", told.message["session"], 4, values=values, users=users)
        return encode_told("masked", told.digest, message)

    grid.changed_reply = many
    session, strategy = start(grid, PROTOCOL, max_users=4)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, without(4)))
    assert strategy.rounds[0]["dropped: secagg.masked: a reply for 5 users, of 4 at most"] == 1


MANY = 104
CROWD = Users.from_records({f"user-{i}": {"tea": 1 + i % 3, "rye": i % 2} for i in range(MANY)})
SPARSE = BoundedHistogram(
    domain=CROWD.vocabulary, clip=2.0, epsilon=1.0, grid=0.01, trust=Aggregation(MANY, 0.05, 0.05)
)


def at_place(record: RecordDict, place: int) -> RecordDict:
    told = decode_told(record)
    m = told.message
    moved = seal("keys.answer", m["session"], place, keys=m["keys"], signed=m["signed"])
    return encode_told("keys", told.digest, moved)


def test_who_claims_anothers_place_loses_its_own() -> None:
    grid = FaultyGrid(NODES, SEED)
    grid.changed_reply = lambda r, i, record: (
        at_place(record, 3) if (r, i) == ("keys", 0) else record
    )
    session, _ = start(grid, PROTOCOL)
    line = session.journal.find("masked", 0)
    assert line["nodes"] == without(0)  # and not without 3, which came later
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, without(0)))


def seats(grid: FaultyGrid) -> list[int]:
    return [int(grid.sent["keys"][i].content["fedhist"]["node"]) for i in range(grid.n_nodes)]


def test_in_a_sparse_graph_places_are_drawn_by_the_server_and_stay(tmp_path: Path) -> None:
    nodes = CROWD.split(MANY)
    grid = FaultyGrid(nodes, SEED)
    grid.unseen = {"masked": range(20)}
    with pytest.raises(MissingReplies):
        start(grid, SPARSE, tmp_path / "run")
    first = seats(grid)
    assert sorted(first) == list(range(MANY))
    assert first != list(range(MANY))  # by chance with probability 1 / 104!
    with pytest.raises(MissingReplies, match="when it sent its vector for this query"):
        start(grid, SPARSE)  # a server that has forgotten them, or wishes for other ones
    grid.unseen = {}
    session, _ = start(grid, SPARSE, tmp_path / "run")
    assert seats(grid) == first
    np.testing.assert_array_equal(total_of(session), expected(SPARSE, nodes, range(MANY)))


def test_back_under_another_id(tmp_path: Path) -> None:
    """After a restart a node speaks for a place whose id has gone, and for no other."""
    grid = FaultyGrid(NODES, SEED)
    grid.unseen = {"unmask": range(N)}
    with pytest.raises(MissingReplies):
        start(grid, PROTOCOL, tmp_path)
    journal = tmp_path / "journal.jsonl"
    assert journal.read_text().count('"kind":"seated"') == 1
    back = Renumbered(NODES, SEED)
    back._nodes = grid._nodes
    session, strategy = start(back, PROTOCOL, tmp_path)
    np.testing.assert_array_equal(total_of(session), expected(PROTOCOL, NODES, range(N)))
    assert strategy.rounds[0]["replies"] == N


class Renumbered(FaultyGrid):
    """The same nodes, to which the SuperLink has given other ids."""

    def get_node_ids(self) -> list[int]:
        return [1000 + i for i in super().get_node_ids()]

    def index_of(self, message: object) -> int:
        return int(message.metadata.dst_node_id) - 1000 - min(super().get_node_ids())
