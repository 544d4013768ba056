"""The server half under ``flwr run``: what is refused, and what a broken run leaves reserved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flower_cases import write_config
from flwr.app import Context, RecordDict

import server.strategy
from fedhist.base.errors import MissingReplies
from server.app import app
from simulations.runs.flower_host import HOST

NODES = 4
MEAN = {
    "protocol": {
        **{"name": "mean", "kind": "laplace", "epsilon": 8.0, "n_users": 20},
        **{"samples_per_user": 5, "low": -4.0, "high": 4.0, "mean_scale": 0.1},
    },
    "population": {"kind": "gaussian", "n_users": 20, "samples_per_user": 5, "seed": 5},
}


class NoNodes:
    """A grid that nobody joins; if told so, four nodes do, and the first question breaks it."""

    def __init__(self, joined: bool = False) -> None:
        self._nodes = range(NODES) if joined else ()

    def get_node_ids(self) -> list[int]:
        return list(self._nodes)

    def send_and_receive(self, messages: Any, **more: Any) -> Any:
        raise RuntimeError("the network broke")


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def make(**run: Any) -> dict[str, str]:
        book = str(tmp_path / "book.json")
        more = MEAN | {name: run.pop(name) for name in {"repeat"} & run.keys()}
        table = {"seed": 1, "nodes": NODES, "ledger": book, **run}
        file = write_config(tmp_path / f"{len(list(tmp_path.iterdir()))}.toml", run=table, **more)
        return {"config": str(file), "overrides": "", "out": ""}

    return make


def states(folder: Path) -> list[str]:
    body = json.loads((folder / "book.json").read_text())
    return [s["state"] for s in body["spendings"]]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ({"clients": "aggregate", "runtime": "inline"}, "are for fedhist run"),
        ({"min_replies": 9}, "min_replies must be at most the number of nodes, 4, got 9"),
        ({"repeats": 2}, "run once"),
        ({"repeat": {"times": 2}}, "run once"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_reserved(
    config: Any, tmp_path: Path, run: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        HOST.server(config(**run))
    assert not (tmp_path / "book.json").exists()


@pytest.mark.parametrize(
    ("joined", "error", "left"),
    [(False, MissingReplies, "refused"), (True, RuntimeError, "reserved")],
    ids=["nobody-came", "somebody-was-asked"],
)
def test_a_run_that_breaks_off_spends_what_it_may_have_asked(
    config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    joined: bool,
    error: type[Exception],
    left: str,
) -> None:
    wait = server.strategy.wait_for_nodes
    monkeypatch.setattr(
        server.strategy, "wait_for_nodes", lambda grid, n, timeout, least: wait(grid, n, 0.0, least)
    )
    with pytest.raises(error):
        app(NoNodes(joined), Context(1, 1, {}, RecordDict(), config()))
    assert states(tmp_path) == [left]
