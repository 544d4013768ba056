"""The strategy over a grid in this process, and the Flower internals it rests on."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.serverapp.strategy import Result, Strategy

import fedhist
from fedhist.base.errors import MissingReplies
from fedhist.users.batch import Users
from server import strategy as module
from server.means.mean import Mean
from server.strategy import SessionStrategy, wait_for_nodes
from simulations.runs.options import Options
from simulations.runs.run import open_session
from simulations.runtimes.flower_internals import (
    FIRST_NODE_ID,
    SERVER_NODE_ID,
    act_as_server,
    set_message_id,
)
from simulations.runtimes.simulated_grid import LocalGrid

SEED, NODES = 4, 8


class Flaky(LocalGrid):
    """May lose some nodes, and have some that fail."""

    def __init__(self, users: Users, n_nodes: int = NODES, absent: tuple[int, ...] = ()) -> None:
        super().__init__(users.split(n_nodes), SEED)
        self.absent, self.failing = set(absent), set[int]()
        self.polls, self.sent = 0, 0

    def get_node_ids(self) -> Iterable[int]:
        self.polls += 1
        return [i for i in super().get_node_ids() if i - FIRST_NODE_ID not in self.absent]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = []
        for message in messages:
            self.sent += 1
            if message.metadata.dst_node_id - FIRST_NODE_ID in self.failing:
                replies.append(Message(Error(2, "boom"), reply_to=message))
            else:
                replies.append(self.answer(message))
        return replies[::-1]


def strategy(**options: Any) -> SessionStrategy:
    session, _ = open_session(Mean.example(), Options(seed=SEED))
    return SessionStrategy(session, NODES, node_timeout=0.0, **options)


@pytest.fixture(autouse=True)
def fast_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NODE_POLL_SECONDS", 0.001)


@pytest.mark.parametrize("fold", [True, False])
def test_equals_the_inline_run(fold: bool) -> None:
    users = Mean.example_users()
    mine = strategy(fold=fold)
    result = mine.start(Flaky(users), ArrayRecord())
    estimate = mine.session.estimate
    assert estimate is not None
    inline = fedhist.run(Mean.example(), users, seed=SEED, nodes=NODES)
    if fold:
        assert np.array_equal(estimate.value, inline.value)
    else:
        assert np.allclose(estimate.value, inline.value, rtol=1e-12)
    assert estimate.public == inline.public
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    assert result.train_metrics_clientapp[1]["replies"] == NODES
    assert [r["missing"] for r in mine.rounds] == [0, 0]
    for r in mine.rounds:
        assert r["seconds_asking"] >= 0
        assert r["seconds_merging"] >= 0
        assert r["bytes_received"] > 0


@pytest.mark.parametrize("num_rounds", [2, 5])
def test_flower_s_own_loop_works_too(num_rounds: int) -> None:
    """Strategy.start fixes the number of rounds; rounds after the script's end ask nobody."""
    users = Mean.example_users()
    mine, grid = strategy(), Flaky(users)
    result = Strategy.start(mine, grid, ArrayRecord(), num_rounds=num_rounds)
    assert isinstance(result, Result)
    assert mine.session.estimate is not None
    ours = strategy()
    ours.start(Flaky(users), ArrayRecord())
    assert ours.session.estimate is not None
    assert np.array_equal(mine.session.estimate.value, ours.session.estimate.value)
    assert grid.sent == 2 * NODES
    assert sorted(result.train_metrics_clientapp) == [1, 2]


def test_too_few_rounds_leave_the_session_pending() -> None:
    mine = strategy()
    Strategy.start(mine, Flaky(Mean.example_users()), ArrayRecord(), num_rounds=1)
    assert mine.session.estimate is None
    assert mine.session.round_index == 1


def test_failing_clients() -> None:
    grid = Flaky(Mean.example_users())
    grid.failing = {2, 5}
    with pytest.raises(MissingReplies, match="2 of 8 replies are missing") as caught:
        strategy().start(grid, ArrayRecord())
    assert caught.value.reasons == {"the client failed: boom": 2}
    mine = strategy(min_replies=6)
    mine.start(grid, ArrayRecord())
    assert mine.session.estimate is not None
    assert [r["missing"] for r in mine.rounds] == [2, 2]
    public = mine.session.estimate.public
    assert sum(public[n] for n in ("n_vote", "n_report")) == 300  # of six nodes
    with pytest.raises(MissingReplies):
        strategy(min_replies=7).start(grid, ArrayRecord())


def test_nodes_that_never_come() -> None:
    grid = Flaky(Mean.example_users(), absent=(1,))
    with pytest.raises(MissingReplies, match="7 nodes are connected, 8 expected"):
        strategy().start(grid, ArrayRecord())
    assert grid.sent == 0
    mine = strategy(min_replies=7)
    mine.start(grid, ArrayRecord())
    assert grid.sent == 14
    assert [r["missing"] for r in mine.rounds] == [1, 1]
    with pytest.raises(MissingReplies):
        strategy(min_replies=8).start(grid, ArrayRecord())


def test_waiting_for_nodes() -> None:
    grid = Flaky(Mean.example_users(), absent=(0, 1))

    class Slow(Flaky):
        def get_node_ids(self) -> Iterable[int]:
            nodes = list(super().get_node_ids())
            return nodes[: self.polls]

    slow = Slow(Mean.example_users())
    assert len(wait_for_nodes(slow, 8, timeout=60)) == 8
    assert slow.polls == 8
    assert wait_for_nodes(grid, 6, timeout=60) == [FIRST_NODE_ID + i for i in range(2, 8)]
    with pytest.raises(MissingReplies, match="8 nodes are connected, 6 expected"):
        wait_for_nodes(Flaky(Mean.example_users()), 6, timeout=0.01)
    with pytest.raises(MissingReplies, match="8 nodes are connected"):
        wait_for_nodes(Flaky(Mean.example_users()), 6, timeout=0.01, least=1)


@pytest.mark.parametrize("bad", [{"n_nodes": 0}, {"min_replies": 0}, {"min_replies": 9}])
def test_bad_arguments(bad: dict[str, int]) -> None:
    session, _ = open_session(Mean.example(), Options(seed=SEED))
    with pytest.raises(ValueError, match="got"):
        SessionStrategy(session, **({"n_nodes": NODES} | bad))


def test_the_internals_of_flower_are_what_the_adapter_thinks() -> None:
    """Fails when an upgrade moves or renames what simulations/runtimes/flower_internals.py uses."""
    from flwr.supercore.task_identity import TaskIdentity

    before = vars(TaskIdentity).copy()
    act_as_server(run_id=77)
    assert (TaskIdentity.run_id, TaskIdentity.node_id) == (77, SERVER_NODE_ID)
    assert set(vars(TaskIdentity)) == set(before)  # set, not added beside what Flower reads
    message = Message(RecordDict({"x": ConfigRecord({"y": 1})}), FIRST_NODE_ID, "query")
    meta = message.metadata
    assert (meta.run_id, meta.src_node_id, meta.dst_node_id) == (77, SERVER_NODE_ID, FIRST_NODE_ID)
    assert meta.message_id == ""
    set_message_id(message, "17")
    assert meta.message_id == "17"
    reply = Message(RecordDict(), reply_to=message)
    assert reply.metadata.reply_to_message_id == "17"
    assert (reply.metadata.src_node_id, reply.metadata.dst_node_id) == (
        FIRST_NODE_ID,
        SERVER_NODE_ID,
    )
    error = Message(Error(2, "why"), reply_to=message)
    assert error.has_error()
    assert error.error.reason == "why"
