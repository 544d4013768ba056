"""fedhist in somebody's own Flower app: what load functions may return, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Result

import fedhist as fh
from clients import loaded as loaded_module
from fedhist.protocols import BoundedHistogram, LocalHistogram, Mean
from server import strategy as strategy_module
from simulations.runtimes.flower_internals import FIRST_NODE_ID
from simulations.runtimes.simulated_grid import SimulatedGrid, act_as_server, error_of

TEAS = fh.Keys.of(["chai", "maté", "tea"])
VOTES = LocalHistogram(domain=TEAS, clip=1, epsilon=1.0)
SUMS = BoundedHistogram(domain=TEAS, epsilon=1.0, clip=4.0, grid=0.5)
MEAN = replace(Mean.example(), kind="onebit", epsilon=1.0)
TRUSTING = fh.flower.Policy(trust="central", epsilon=2.0)
ROWS = {"who": ["ann", "ann", "bob", "cid"], "what": ["tea", "chai", "tea", "maté"]}


class AppGrid(SimulatedGrid):
    """Nodes in this process, each with its own ClientApp, as a SuperNode or a simulation has it."""

    def __init__(self, apps: list[ClientApp], configs: list[dict[str, Any]] | None = None) -> None:
        super().__init__(len(apps))
        act_as_server(run_id=1)
        self.apps, self.asked = apps, list[RecordDict]()
        configs = configs or [{"partition-id": i} for i in range(len(apps))]
        self.contexts = [
            Context(1, FIRST_NODE_ID + i, config, RecordDict(), {})
            for i, config in enumerate(configs)
        ]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return [self.answer(message) for message in messages]

    def answer(self, message: Message) -> Message:
        index = self.index_of(message)
        self.asked.append(message.content)
        try:
            return self.apps[index](message, self.contexts[index])
        except Exception as error:
            return Message(error_of(error), reply_to=message)

    @property
    def questions(self) -> int:
        return sum(record["fedhist"]["kind"] == "question" for record in self.asked)


@pytest.fixture(autouse=True)
def in_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_module, "in_simulation", lambda: True)
    monkeypatch.setattr(strategy_module, "NODE_POLL_SECONDS", 0.001)


def by_node(context: Context) -> pl.DataFrame:
    node = context.node_config["partition-id"]
    return pl.DataFrame({"who": [f"{w}-{node}" for w in ROWS["who"]], "what": ROWS["what"]})


def run(
    apps: list[ClientApp],
    protocol: fh.Protocol = SUMS,
    configs: list[dict[str, Any]] | None = None,
    **options: Any,
) -> tuple[fh.flower.Strategy, AppGrid]:
    grid = AppGrid(apps, configs)
    strategy = fh.flower.Strategy(protocol, len(apps), node_timeout=0.0, **options)
    strategy.start(grid)
    return strategy, grid


def refused(apps: list[ClientApp], protocol: fh.Protocol, why: str, **more: Any) -> None:
    grid = AppGrid(apps, more.pop("configs", None))
    strategy = fh.flower.Strategy(protocol, len(apps), node_timeout=0.0, **more)
    with pytest.raises(fh.MissingReplies, match=why):
        strategy.start(grid)
    assert grid.asked
    assert grid.questions == 0
    with pytest.raises(fh.FedhistError, match="has not ended"):
        _ = strategy.estimate


class Dataset:
    """As a Hugging Face dataset: columns, and a method that gives a frame."""

    def __init__(self, columns: Mapping[str, list[str]], method: str) -> None:
        frame = pl.DataFrame(columns)
        made = frame if method == "to_polars" else frame.to_pandas()
        setattr(self, method, lambda: made)


def file(folder: Path, suffix: str) -> Path:
    path = folder / f"users{suffix}"
    frame = pl.DataFrame(ROWS)
    frame.write_parquet(path) if suffix == ".parquet" else frame.write_csv(path)
    return path


RETURNED: dict[str, Callable[[Path], Any]] = {
    "Users": lambda _: fh.Users.from_frame(pl.DataFrame(ROWS), user="who", item="what"),
    "polars": lambda _: pl.DataFrame(ROWS),
    "pandas": lambda _: pl.DataFrame(ROWS).to_pandas(),
    "arrow": lambda _: pl.DataFrame(ROWS).to_arrow(),
    "columns": lambda _: {k: np.array(v) for k, v in ROWS.items()},
    "Hugging Face": lambda _: Dataset(ROWS, "to_polars"),
    "old data set": lambda _: Dataset(ROWS, "to_pandas"),
    "CSV": lambda folder: file(folder, ".csv"),
    "Parquet": lambda folder: str(file(folder, ".parquet")),
}


@pytest.mark.parametrize("kind", RETURNED)
def test_what_a_load_function_may_return(kind: str, tmp_path: Path) -> None:
    app = fh.flower.client_app(
        lambda context: RETURNED[kind](tmp_path), TRUSTING, user="who", item="what"
    )
    strategy, _ = run([app], seed=3)
    users = RETURNED["Users"](tmp_path)
    expected = fh.run(SUMS, users, seed=3)
    assert strategy.estimate.value is not None
    np.testing.assert_array_equal(strategy.estimate.value, expected.value)


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (None, "load_users returned NoneType, not fedhist.Users, a table, a data set"),
        ([1, 2], "load_users returned list"),
        (np.zeros((3, 2)), "load_users returned ndarray"),
        (fh.Users.from_records({}), "load_users returned no users: this node has no data"),
        (pl.DataFrame({"who": [], "what": []}), "no rows: there is not a single user"),
        ({"who": ["ann"], "wat": ["tea"]}, "no column 'what'; did you mean 'wat'"),
        ({"who": ["ann", "bob"], "what": ["tea"]}, "columns of one length"),
        ({"train": Dataset(ROWS, "to_polars")}, "no column"),
        ("/nowhere/users.csv", "node 1: no such file: /nowhere/users.csv"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_a_load_function_may_not_return(returned: Any, why: str) -> None:
    good = fh.flower.client_app(by_node, TRUSTING, user="who", item="what")
    bad = fh.flower.client_app(lambda context: returned, TRUSTING, user="who", item="what")
    refused([good, bad], SUMS, why)


def test_a_load_function_that_fails() -> None:
    def fails(context: Context) -> None:
        raise OSError("no disk")

    refused([fh.flower.client_app(fails)], VOTES, r"node 0: load_users failed: OSError\('no disk'")


def test_a_node_that_would_refuse_costs_nobody_anything() -> None:
    """Of two nodes with different policies, one would answer: it is not asked."""
    trusting = fh.flower.client_app(by_node, TRUSTING, user="who", item="what")
    wary = fh.flower.client_app(by_node, user="who", item="what")
    refused([trusting, wary], SUMS, "1 x the client refused: .* this node trusts none")
    strategy, grid = run([trusting, wary], min_replies=1, seed=1)
    assert strategy.estimate.status == "ok"
    assert grid.questions == 2


def test_a_question_ahead_is_not_charged() -> None:
    app = fh.flower.client_app(by_node, TRUSTING, user="who", item="what")
    _, grid = run([app], VOTES)
    assert [record["fedhist"]["kind"] for record in grid.asked] == ["ahead", "question"]
    (entry,) = grid.contexts[0].state["fedhist.guard"]["answered"]
    assert '"epsilon": 1.0' in entry or '"epsilon":1.0' in entry


def test_two_nodes_of_one_number() -> None:
    app = fh.flower.client_app(by_node, TRUSTING, user="who", item="what")
    refused([app, app], SUMS, "another node is number 0", configs=[{"partition-id": 0}] * 2)


def test_another_number_of_nodes() -> None:
    app = fh.flower.client_app(by_node, TRUSTING, user="who", item="what")
    grid = AppGrid([app, app])
    for nodes in (1, 3):
        strategy = fh.flower.Strategy(SUMS, nodes, node_timeout=0.0)
        with pytest.raises(fh.MissingReplies, match=f"2 nodes are connected, {nodes} expected"):
            strategy.start(grid)
    assert grid.asked == []


def test_invented_users_may_be_asked_without_noise() -> None:
    bare = replace(VOTES, epsilon=math.inf)
    for policy in (
        fh.flower.Policy(epsilon=math.inf),
        fh.flower.Policy("central", math.inf, delta=math.inf, simulated=True),
    ):
        app = fh.flower.client_app(by_node, policy, user="who", item="what")
        if not policy.simulated:
            refused([app], bare, "a query without noise .* is never answered here")
            continue
        strategy, _ = run([app], bare)
        assert strategy.estimate.value.sum() == 3


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.setattr(loaded_module, "in_simulation", lambda: False)
    return {"partition-id": 0, "guard-folder": str(tmp_path / "guard")}


@pytest.mark.parametrize("key", ["partition-id", "guard-folder"])
def test_an_owner_must_configure(deployed: dict[str, Any], key: str) -> None:
    del deployed[key]
    app = fh.flower.client_app(by_node, user="who", item="what")
    refused([app], VOTES, f"owner must configure '{key}'", configs=[deployed])


def test_an_owner_has_the_last_word(deployed: dict[str, Any]) -> None:
    wary = deployed | {"trust": "local", "path": "/the/app's/own"}
    for config in (wary, deployed):
        app = fh.flower.client_app(by_node, TRUSTING, user="who", item="what")
        if config is wary:
            refused([app], SUMS, "this node trusts none", configs=[config])
        else:
            strategy, _ = run([app], SUMS, configs=[config])
            assert strategy.estimate.status == "ok"


@pytest.mark.parametrize("key", ["epsilom", "max_epsilon", "guard-folders"])
def test_a_misspelt_limit_of_an_owner(deployed: dict[str, Any], key: str) -> None:
    app = fh.flower.client_app(by_node, user="who", item="what")
    why = f"unknown node configuration '{key}'; did you mean"
    refused([app], VOTES, why, configs=[deployed | {key: 1.0}])


def test_a_budget_outlives_the_run(deployed: dict[str, Any]) -> None:
    for epsilon in (0.75, 0.5):
        app = fh.flower.client_app(by_node, user="who", item="what")
        votes = LocalHistogram(domain=TEAS, clip=1, epsilon=epsilon)
        if epsilon == 0.5:
            refused([app], votes, "budget is spent: 0.75 of 1", configs=[deployed])
        else:
            run([app], votes, configs=[deployed])


def test_errors_tell_the_server_nothing_about_the_data(deployed: dict[str, Any]) -> None:
    def fails(context: Context) -> None:
        raise ValueError("secret-7")

    app = fh.flower.client_app(fails)
    told = r"PopulationError: the data of this node cannot be read; its own log says why"
    refused([app], VOTES, told, configs=[deployed])


def test_real_users_are_not_simulated(deployed: dict[str, Any]) -> None:
    app = fh.flower.client_app(by_node, fh.flower.Policy(simulated=True), user="who", item="what")
    refused([app], VOTES, "does not protect real ones", configs=[deployed])


def training_app() -> ClientApp:
    app = ClientApp()

    @app.train()
    @app.evaluate()
    @app.query()
    def told(message: Message, context: Context) -> Message:
        kind = message.metadata.message_type
        return Message(RecordDict({"done": ConfigRecord({"type": kind})}), reply_to=message)

    return app


@pytest.mark.parametrize("kind", ["train", "evaluate", "query"])
def test_other_messages_are_those_of_the_app_beside(kind: str) -> None:
    app = fh.flower.client_app(by_node, TRUSTING, app=training_app(), user="who", item="what")
    strategy, grid = run([app])
    assert strategy.estimate.status == "ok"
    mine = Message(RecordDict({"mine": ConfigRecord({"x": 1})}), FIRST_NODE_ID, kind)
    assert grid.answer(mine).content["done"]["type"] == kind


def test_without_an_app_beside() -> None:
    grid = AppGrid([fh.flower.client_app(by_node, user="who", item="what")])
    for kind, why in (("train", "No train function"), ("query", "not a fedhist message")):
        mine = Message(RecordDict({"mine": ConfigRecord({"x": 1})}), FIRST_NODE_ID, kind)
        assert why in str(grid.answer(mine).error.reason)


def test_a_server_app_publishes_the_estimate() -> None:
    published = []
    app = fh.flower.client_app(by_node, TRUSTING, user="who", item="what")
    server = fh.flower.server_app(
        lambda context: BoundedHistogram(
            domain=TEAS, epsilon=context.run_config["epsilon"], clip=4.0, grid=0.5
        ),
        publish=lambda estimate, context: published.append(estimate),
        seed=3,
    )
    assert isinstance(server, ServerApp)
    context = Context(1, 1, {}, RecordDict(), {"nodes": 2, "epsilon": 1.0})
    server(AppGrid([app, app]), context)
    (estimate,) = published
    assert [*estimate.keys] == [*TEAS]
    assert len(estimate.ledger.entries) == 1


def test_a_server_app_that_does_not_know_its_nodes() -> None:
    server = fh.flower.server_app(SUMS)
    with pytest.raises(ValueError, match=r"how many nodes are there\?"):
        server(AppGrid([]), Context(1, 1, {}, RecordDict(), {}))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: fh.flower.server_app(None), "protocol must be"),
        (lambda: fh.flower.server_app(LocalHistogram), "protocol must be"),
        (lambda: fh.flower.server_app(SUMS, 2, publish=3), "publish must be a function"),
        (lambda: fh.flower.server_app(SUMS, 2, timeout=-1), "timeout"),
        (lambda: fh.flower.Strategy(SUMS, nodes=1.5), "nodes must be"),
        (lambda: fh.flower.Strategy(SUMS, nodes=0), "nodes must be"),
        (lambda: fh.flower.Strategy(SUMS, nodes=2, seed="x"), "seed must be"),
        (lambda: fh.flower.Strategy(SUMS, nodes=2, seed=-4), "seed must be"),
        (lambda: fh.flower.client_app(3), "load_users must be"),
        (lambda: fh.flower.client_app(by_node, {"epsilon": 1}), "policy must be"),
        (lambda: fh.flower.client_app(by_node, app="mine"), "app must be"),
        (lambda: fh.flower.client_app(by_node, user=3), "user"),
        (lambda: fh.flower.client_app(by_node, user="u", item="i", value="v"), "not both"),
        (lambda: fh.flower.Policy(epsilon="2"), "got '2'"),
    ],
)
def test_what_an_app_is_not_made_of(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_an_estimate_is_logged_if_it_cannot_be_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(estimate: fh.Estimate, context: Context) -> None:
        raise OSError("the disk is full")

    app = fh.flower.client_app(by_node, TRUSTING, user="who", item="what")
    server = fh.flower.server_app(SUMS, 2, publish=fails, seed=3)
    logged = list[tuple[Any, ...]]()
    monkeypatch.setattr("server.app.log", lambda *arguments: logged.append(arguments))
    with pytest.raises(OSError, match="disk"):
        server(AppGrid([app, app]), Context(1, 1, {}, RecordDict(), {}))
    assert any(isinstance(x, fh.Estimate) for arguments in logged for x in arguments)


def test_should_stop_ends_between_rounds() -> None:
    def samples(context: Context) -> dict[str, list[Any]]:
        node = context.node_config["partition-id"]
        users = [f"{node}-{i}" for i in range(200)]
        return {"who": users * 5, "x": [0.5] * 1000}

    app = fh.flower.client_app(samples, user="who", value="x")
    grid, calls = AppGrid([app, app]), list[tuple[int, Result]]()

    def stop(done: int, result: Result) -> bool:
        calls.append((done, result))
        return True

    strategy = fh.flower.Strategy(MEAN, 2, node_timeout=0.0)
    strategy.start(grid, ArrayRecord(), should_stop=stop)
    assert [done for done, _ in calls] == [1]
    assert sorted(calls[0][1].train_metrics_clientapp) == [1]
    with pytest.raises(fh.FedhistError, match="has not ended"):
        _ = strategy.estimate
    strategy.start(grid, should_stop=lambda done, result: False)
    assert strategy.estimate.status == "ok"
    with pytest.raises(TypeError, match="too many positional"):
        fh.flower.Strategy(MEAN, 2).start(grid, should_stop=lambda: True)
