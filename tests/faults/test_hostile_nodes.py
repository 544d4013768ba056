"""Nodes that misbehave behind Flower's interface: the same as inline, and counted by the server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ArrayRecord

from fedhist.base.errors import MissingReplies
from server.means.mean import Mean
from server.strategy import SessionStrategy
from simulations.adversaries import Assigned, of_messages
from simulations.adversaries.table import KINDS
from simulations.runs.options import Options
from simulations.runs.run import execute, open_session
from simulations.runtimes.simulated_grid import LocalGrid
from tests.faults.attacks import Adversary, HostileGrid

SEED = 3
PROTOCOL = Mean.example()  # two rounds
USERS = Mean.example_users()


def over_flower(
    table: Adversary, nodes: int, fold: bool, least: int = 1
) -> tuple[SessionStrategy, HostileGrid]:
    tables = of_messages([table], len(USERS), nodes, fold)
    assigned = Assigned(tables, USERS.split(nodes))
    grid = HostileGrid(LocalGrid(assigned.nodes, SEED), assigned, SEED)
    session, _ = open_session(PROTOCOL, Options(seed=SEED))
    strategy = SessionStrategy(session, nodes, fold=fold, min_replies=least, node_timeout=0.0)
    strategy.start(grid, ArrayRecord())
    return strategy, grid


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_misbehave_alike_wherever_their_users_are_added_up(kind: str, fold: bool) -> None:
    """The same estimate; what was done and what was dropped is counted: 4 nodes in 2 rounds."""
    table = Adversary(kind, 0.2, level="node")
    strategy, grid = over_flower(table, 20, fold)
    there = strategy.session.estimate
    options = Options(seed=SEED, nodes=20, adversaries=(table,), min_replies=1, fold=not fold)
    here = execute(PROTOCOL, USERS, options)
    assert there.public == here.estimate.public
    assert np.array_equal(there.value, here.estimate.value)
    assert dict(grid.injected) == here.adversaries["injected"]
    assert dict(grid.injected) == ({kind: 80} if table.poisons else {f"{kind} (node)": 8})
    said = {k: n for r in strategy.rounds for k, n in r.items() if k.startswith("dropped")}
    dropped = sum(n for r in strategy.rounds for k, n in r.items() if k.startswith("dropped: "))
    assert dropped == (0 if table.poisons else 8), said


def test_a_user_cannot_tamper_with_what_its_node_adds_up() -> None:
    for kind in ("dropout", "output-poisoning"):
        with pytest.raises(ValueError, match=r"adversary\.level.*run\.fold"):
            of_messages([Adversary(kind, 0.2)], 400, 20, True)
    for kind, fold in (("input-poisoning", True), ("output-poisoning", False), ("dropout", False)):
        assert of_messages([Adversary(kind, 0.2)], 400, 20, fold) == [Adversary(kind, 0.2)]
    with pytest.raises(ValueError, match=r"run\.fold"):
        of_messages([Adversary("dropout", 0.2, correlated=True)], 400, 400, True)


def test_too_few_honest_nodes_end_the_run() -> None:
    with pytest.raises(MissingReplies, match="4 of 20"):
        over_flower(Adversary("dropout", 0.2, level="node"), 20, True, least=17)


@pytest.mark.ray
@pytest.mark.usefixtures("one_ray")
def test_users_misbehave_on_ray_as_they_do_inline() -> None:
    """Where the server folds, a user's message is its own."""
    tables = [Adversary("malformed", 0.2), Adversary("dropout", 0.1)]
    tables.append(Adversary("input-poisoning", 0.2, level="node"))
    inline = Options(seed=SEED, nodes=10, adversaries=tables, fold=False)
    here = execute(PROTOCOL, USERS, inline)
    there = execute(PROTOCOL, USERS, replace(inline, runtime="ray", workers=1))
    assert there.estimate.status == here.estimate.status
    assert there.estimate.reason == here.estimate.reason
    assert there.estimate.warnings == here.estimate.warnings
    assert np.array_equal(there.estimate.value, here.estimate.value, equal_nan=True)
    assert there.adversaries == here.adversaries
    assert there.adversaries["injected"]["malformed"] == 80
