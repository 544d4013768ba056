"""Nodes that misbehave behind Flower's interface: the same as inline, and counted by the server."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message

from clients.guard import SIMULATED_OWNER
from fedhist.base.errors import MissingReplies
from fedhist.flower.host import NodeSetup
from fedhist.flower.wire import encode_answer, encode_question
from fedhist.model.query import Report
from fedhist.protocols.few_users.user_means import UserMeans
from fedhist.protocols.means.mean import Mean
from fedhist.session.codec import query_digest
from fedhist.session.session import Session
from fedhist.users.batch import Users
from server.intake import collect
from server.strategy import SessionStrategy
from simulations.adversaries import KINDS, Adversary, Assigned, HostileGrid, of_messages
from simulations.runs.run import Options, execute, noise_source
from tests.node_grid import NodeGrid

SEED = 3
PROTOCOL, USERS = Mean.example(), Mean.example_users()


class LocalGrid(NodeGrid):
    """Answers messages as they are asked for."""

    def __init__(self, nodes: list[Users]) -> None:
        super().__init__(NodeSetup(part, i, SEED, SIMULATED_OWNER) for i, part in enumerate(nodes))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return map(self.answer, messages)


def over_flower(
    table: Adversary, nodes: int, fold: bool, least: int = 1
) -> tuple[SessionStrategy, HostileGrid]:
    tables = of_messages([table], len(USERS), nodes, fold)
    assigned = Assigned(tables, USERS.split(nodes))
    grid = HostileGrid(LocalGrid(assigned.nodes), assigned, SEED)
    session = Session(PROTOCOL, noise_source("simulated", SEED, PROTOCOL))
    strategy = SessionStrategy(session, nodes, fold=fold, min_replies=least, node_timeout=0.0)
    strategy.start(grid, ArrayRecord())
    return strategy, grid


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_misbehave_as_they_do_inline(kind: str, fold: bool) -> None:
    table = Adversary(kind, 0.2, level="node")
    strategy, grid = over_flower(table, 20, fold)
    there = strategy.session.estimate
    options = Options(seed=SEED, nodes=20, adversaries=(table,), min_replies=1)
    here = execute(PROTOCOL, USERS, options)
    assert there is not None
    assert there.public == here.estimate.public
    assert np.array_equal(there.value, here.estimate.value)  # type: ignore[arg-type]
    assert dict(grid.injected) == here.adversaries["injected"]
    said = {k: n for r in strategy.rounds for k, n in r.items() if k.startswith("dropped")}
    dropped = sum(n for r in strategy.rounds for k, n in r.items() if k.startswith("dropped: "))
    assert dropped == sum(here.adversaries["dropped"].values()), said


@pytest.mark.parametrize("kind", ["dropout", "malformed", "output-poisoning"])
def test_a_user_is_a_node_where_every_node_has_one(kind: str) -> None:
    table = Adversary(kind, 0.2)
    fold = kind != "output-poisoning"
    strategy, _ = over_flower(table, len(USERS), fold)
    estimate = strategy.session.estimate
    assert estimate is not None
    n = {r["replies"] for r in strategy.rounds}
    assert n == ({320} if kind == "dropout" else {400} if not fold else n)
    if kind == "output-poisoning":
        here = execute(PROTOCOL, USERS, Options(seed=SEED, adversaries=(table,))).estimate
        assert np.array_equal(estimate.value, here.value)  # type: ignore[arg-type]


def test_a_user_cannot_tamper_with_what_its_node_adds_up() -> None:
    for kind, fold in (("malformed", False), ("dropout", True), ("output-poisoning", True)):
        with pytest.raises(ValueError, match=r'adversary\.level = "node"'):
            of_messages([Adversary(kind, 0.2)], 400, 20, fold)
    for kind, fold in (("input-poisoning", True), ("output-poisoning", False)):
        assert of_messages([Adversary(kind, 0.2)], 400, 20, fold) == [Adversary(kind, 0.2)]
    with pytest.raises(ValueError, match='needs runtime "inline"'):
        of_messages([Adversary("dropout", 0.2, correlated=True)], 400, 400, True)


def test_too_few_honest_nodes_end_the_run() -> None:
    with pytest.raises(MissingReplies, match="4 of 20 replies are missing"):
        over_flower(Adversary("malformed", 0.2, level="node"), 20, True, least=17)


# -- one bad row among good ones -----------------------------------------------------------------


@pytest.mark.usefixtures("flower_task")
def test_one_bad_report_does_not_cost_its_node() -> None:
    query = UserMeans(1, 1.0)
    digest = query_digest(query, 0)

    def reply(node: int, ids: list[int], rows: list[float]) -> Message:
        report = Report(np.array(ids, dtype=np.uint64), {"mean": np.array(rows)[:, None]})
        sent = Message(encode_question(query, 0), 1000 + node, "query")
        return Message(encode_answer(report, node, digest), reply_to=sent)

    replies = [reply(0, [1, 2, 3], [0.1, 2.0, 1e300]), reply(1, [4], [0.4])]
    got = collect(query, digest, replies, 2)
    assert got.replies == 2
    assert got.summary.ids is not None
    assert got.summary.ids.tolist() == [1, 4]
    assert sum(got.dropped.values()) == 2
    assert all(why.endswith(", users") for why in got.dropped)
    with pytest.raises(MissingReplies, match="1 of 2 replies are missing"):
        collect(query, digest, replies, 2, on_bad_reply="stop")
    with pytest.raises(MissingReplies, match="1 of 2 replies are missing"):
        collect(query, digest, [reply(0, [1, 2], [9.0, 9.0]), replies[1]], 2)
