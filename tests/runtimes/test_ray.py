"""The Ray runtime: the same answer as inline, through killed workers and broken clients."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import walked_users
from flwr.app import ArrayRecord, Message
from ray import cloudpickle

from fedhist import Estimate, Keys, MissingReplies, Protocol, Users
from fedhist.base.errors import BatchWithheld
from fedhist.flower.wire import MESSAGE_TYPE, decode_answer, encode_question
from fedhist.model.evaluation import first_pass, walked
from fedhist.model.query import Tree
from fedhist.model.registry import load_plugin, protocol_class
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.shares import Aggregation
from fedhist.privacy.shuffling import Shuffling
from fedhist.protocols import (
    BoundedHistogram,
    FewUsersMean,
    LocalHistogram,
    Mean,
    UnboundedHistogram,
    UserLevelErm,
)
from fedhist.users.shards import BLOCK
from server.noise import SimulatedNoise
from server.session.session import Session
from server.strategy import SessionStrategy
from simulations.runs.options import Options
from simulations.runs.run import execute, open_session
from simulations.runtimes import ray_grid
from simulations.runtimes.ray_grid import RayGrid

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("one_ray")]
PLUGIN = str(Path(__file__).with_name("faulty.py"))
N = 3000


@pytest.fixture(scope="module", autouse=True)
def no_folder_of_tests() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(walked_users)
    yield
    cloudpickle.unregister_pickle_by_value(walked_users)


@pytest.fixture(scope="module")
def shoppers() -> Users:
    rng = np.random.default_rng(11)
    keys = Keys.of([f"item-{i:02d}" for i in range(40)])
    user = np.repeat(np.arange(N), 9)
    return Users.from_counts(
        rng.permutation(np.arange(N)) * 7919,
        user,
        rng.integers(0, 40, len(user)),
        rng.integers(1, 30, len(user)),
        keys,
    )


@pytest.fixture(scope="module")
def samplers() -> Users:
    rng = np.random.default_rng(12)
    values = np.clip(rng.normal(0.3, 0.4, size=(N, 64)), -1, 1)
    return Users.from_samples(np.arange(N) * 104729, np.arange(N + 1) * 64, values.reshape(-1, 1))


def over(grid: RayGrid, protocol: Protocol, seed: int, *, fold: bool = True) -> Estimate:
    session, _ = open_session(protocol, Options(seed=seed))
    shuffled = protocol.guarantee.trust is Trust.SHUFFLE
    SessionStrategy(session, grid.n_nodes, fold=fold, shuffled=shuffled).start(grid, ArrayRecord())
    assert session.estimate is not None
    return session.estimate


def cases(shoppers: Users, samplers: Users) -> list[tuple[str, Protocol, Users, bool]]:
    histogram = BoundedHistogram(domain=shoppers.vocabulary, clip=40.0, epsilon=1.0, delta=1e-6)
    mean = Mean(epsilon=2.0, n_users=N, samples_per_user=64, low=-1.0, high=1.0, kind="onebit")
    return [
        ("real-valued histogram", histogram, shoppers, False),
        ("integer-valued histogram", replace(histogram, grid=0.25), shoppers, True),
        ("integer-valued mean", mean, samplers, True),
        ("real-valued mean", replace(mean, kind="laplace"), samplers, False),
    ]


@pytest.mark.parametrize("data", ["items", "samples"])
def test_same_estimate_inline_and_on_ray(data: str, shoppers: Users, samplers: Users) -> None:
    """Integer- and real-valued protocols, folded on the nodes and not."""
    users, nodes = shoppers if data == "items" else samplers, 3
    with RayGrid(users, nodes, 5, workers=2) as grid:
        for name, protocol, wanted, integer in cases(shoppers, samplers):
            if wanted is not users:
                continue
            whole = execute(protocol, users, Options(seed=5)).estimate.value
            expected = execute(protocol, users, Options(seed=5, nodes=nodes)).estimate.value
            assert expected is not None
            if integer:
                np.testing.assert_array_equal(expected, whole, err_msg=name)
            else:
                np.testing.assert_allclose(expected, whole, rtol=1e-9, atol=1e-9, err_msg=name)
            np.testing.assert_array_equal(over(grid, protocol, 5).value, expected, err_msg=name)
            unfolded = over(grid, protocol, 5, fold=False).value
            np.testing.assert_allclose(unfolded, whole, rtol=1e-9, atol=1e-9)


def test_shares_of_noise_are_the_same_inline_and_on_ray(shoppers: Users) -> None:
    """A node's share is a function of the seed, the question and the node's place."""
    laplace = BoundedHistogram(
        shoppers.vocabulary, 1.0, 40.0, grid=0.25, nonneg=False, trust=Aggregation(60)
    )
    with RayGrid(shoppers, 60, 5, workers=2) as grid:
        expected = execute(laplace, shoppers, Options(seed=5)).estimate.value
        np.testing.assert_array_equal(over(grid, laplace, 5).value, expected)


def test_what_a_shuffler_passes_is_the_same_inline_and_on_ray(
    shoppers: Users, samplers: Users
) -> None:
    """Whoever sent it, from whichever node, folded there or not; a small batch nowhere passes."""
    trust = Shuffling(1.0, 1e-3, N)
    votes = LocalHistogram.shuffled(trust, domain=shoppers.vocabulary, clip=4)
    mean = Mean.shuffled(
        trust,
        n_users=N,
        samples_per_user=16,
        low=-1.0,
        high=1.0,
        method="vote",
        kind="piecewise",
    )
    for protocol, users in ((votes, shoppers), (mean, samplers)):
        expected = execute(protocol, users, Options(seed=5)).estimate.value
        with RayGrid(users, 30, 5, workers=2) as grid:
            for fold in (True, False):
                np.testing.assert_array_equal(over(grid, protocol, 5, fold=fold).value, expected)
    few = replace(votes, trust=replace(trust, n_users=2 * N))
    with RayGrid(shoppers, 30, 5, workers=2) as grid, pytest.raises(BatchWithheld):
        over(grid, few, 5)


@pytest.mark.parametrize("learner", [FewUsersMean, UnboundedHistogram, UserLevelErm])
def test_learners_on_ray(learner: type[Protocol]) -> None:
    """Rows of every user, keyed sums, two rounds and many: as inline with as many nodes."""
    protocol, users = learner.example(), learner.example_users()
    inline = execute(protocol, users, Options(seed=5, nodes=12)).estimate
    on_ray = execute(protocol, users, Options(seed=5, nodes=12, runtime="ray")).estimate
    assert inline.status == on_ray.status == "ok"
    assert inline.keys == on_ray.keys
    np.testing.assert_array_equal(on_ray.value, inline.value)


def faulty(**fields: object) -> Protocol:
    load_plugin(PLUGIN)
    return protocol_class("test-many-rounds")(**fields)


def test_killed_after_receiving_and_before_answering(shoppers: Users, tmp_path: Path) -> None:
    """SIGKILL inside a batch: same estimate, nothing lost."""
    users = shoppers.slice(0, 400)
    stormy = faulty(n_rounds=2, kill_after=(-1, 17), markers=str(tmp_path / "kill"))
    options = Options(seed=9, nodes=200, runtime="ray", workers=2, plugins=[PLUGIN])
    killed = execute(stormy, users, options).estimate
    assert [p.name for p in tmp_path.glob("kill-*")] == ["kill-1"]
    # the marker is there now, so the same protocol runs without a kill
    inline = execute(stormy, users, replace(options, runtime="inline")).estimate
    np.testing.assert_array_equal(killed.value, inline.value)


@pytest.mark.slow
def test_spent_budget_stays_spent_after_a_kill(shoppers: Users) -> None:
    users = shoppers.slice(0, 40)
    owner = {"trust": "local", "epsilon": 1.0}
    with RayGrid(users, 20, 1, workers=2, owner=owner, plugins=[PLUGIN]) as grid:
        first = over(grid, faulty(epsilon=0.8), 1)
        for pid in sorted(grid._pids):
            os.kill(pid, signal.SIGKILL)
        # the same query again costs nothing and gets the same answer
        again = over(grid, faulty(epsilon=0.8), 1)
        np.testing.assert_array_equal(again.value, first.value)
        # another one passes the budget
        with pytest.raises(MissingReplies, match="budget is spent"):
            over(grid, faulty(epsilon=0.5), 1)
        central = BoundedHistogram(domain=users.vocabulary, clip=1.0, epsilon=1.0)
        with pytest.raises(MissingReplies, match="trusts none"):
            over(grid, central, 1)


def test_two_questions_at_once_do_not_spend_a_budget_twice(shoppers: Users) -> None:
    """A node's guard hears of each after the other, though no worker remembers the first."""
    owner = {"trust": "local", "epsilon": 1.0}
    questions = []
    for epsilon in (0.8, 0.7):
        query = Session(faulty(epsilon=epsilon), lambda _: SimulatedNoise(1, 0)).query
        questions.append(encode_question(query, 0))
    beside = first_pass(BoundedHistogram(domain=shoppers.vocabulary, clip=1.0, epsilon=1.0))
    with RayGrid(shoppers, 20, 1, workers=2, owner=owner, plugins=[PLUGIN], beside=beside) as grid:
        nodes = list(grid.get_node_ids())
        messages = [Message(q, node, MESSAGE_TYPE) for node in nodes for q in questions]
        bodies = [decode_answer(m.content).body for m in grid.send_and_receive(messages)]
        assert sorted("budget is spent" in b for b in bodies if isinstance(b, str)) == [True] * 20
        assert len(bodies) == 40
        assert all(len(grid._kept[i].lines) == 1 for i in range(20))
        total = grid.beside_total()
        # who was measured stays so where a later round is given up
        later = iter(grid.send_and_receive(messages))
        next(later)
        later.close()
        again = grid.beside_total()
        assert all(np.array_equal(a, again.sums[name]) for name, a in total.sums.items())


def test_a_client_that_raises_is_counted(shoppers: Users) -> None:
    protocol = faulty(raise_on=3)
    nodes = shoppers.split(30)
    broken = sum(int(n.ids[0]) % 3 == 0 for n in nodes)
    assert 0 < broken < 30
    options = Options(seed=2, nodes=30, runtime="ray", plugins=[PLUGIN])
    with pytest.raises(MissingReplies, match="this client is broken") as caught:
        execute(protocol, shoppers, options)
    assert (caught.value.expected, caught.value.got) == (30, 30 - broken)
    outcome = execute(protocol, shoppers, replace(options, min_replies=30 - broken))
    assert outcome.rounds[0]["missing"] == broken
    answered = sum(len(n) for n in nodes if int(n.ids[0]) % 3)
    assert outcome.estimate.value[2] == answered, "n is the number of users that answered"


class Otherwise(RayGrid):
    """Asks in reverse order, and hands the first reply over twice."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterator[Message]:
        replies = iter(super().send_and_receive(list(messages)[::-1], timeout=timeout))
        first = next(replies)
        yield from (first, first)
        yield from replies


def test_no_grouping_order_or_repetition_changes_a_digit(
    shoppers: Users, samplers: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums and what is measured beside, of users in memory and of those made where they answer."""
    for _, protocol, users, _ in cases(shoppers, samplers)[::3]:
        here = execute(protocol, users, Options(seed=5, nodes=50))
        beside = first_pass(protocol)
        assert beside is not None
        total = Tree()
        for i, node in enumerate(users.split(50)):
            total.add(i, walked(beside, node))
        for workers, batch, grid_of in ((1, 16, RayGrid), (2, 1, Otherwise)):
            monkeypatch.setattr(ray_grid, "BATCH", batch)
            for there in (users, walked_users.Walked(users, BLOCK)):
                with grid_of(there, 50, 5, workers=workers, beside=beside) as grid:
                    result = over(grid, protocol, 5)
                    measured = grid.beside_total()
                np.testing.assert_array_equal(result.value, here.estimate.value)
                for name, a in total.total().sums.items():
                    np.testing.assert_array_equal(measured.sums[name], a)


def test_a_run_in_which_nothing_comes_ends_and_says_who_is_missing(shoppers: Users) -> None:
    users = shoppers.slice(0, 40)
    protocol = faulty(pause=0.1)
    options = Options(seed=1, nodes=40, runtime="ray", workers=2, plugins=[PLUGIN], timeout=0.01)
    with pytest.raises(MissingReplies, match=r"for 0\.01 s from nodes 0, 1, .* 2 CPUs"):
        execute(protocol, users, options)
