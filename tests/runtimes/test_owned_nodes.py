"""What a careless or malicious server can make an owner's node do: nothing but ask queries."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clients import owned as hosting
from fedhist.base.errors import PopulationError, WireError
from simulations.populations import population
from simulations.runs.flower_host import HOST


@pytest.fixture
def owner(tmp_path: Path) -> dict[str, Any]:
    data = tmp_path / "data.csv"
    data.write_text("user,item,count\nann,tea,2\nbob,rye,1\ncid,tea,4\n")
    return {
        **{"data": str(data), "user": "user", "item": "item", "count": "count"},
        **{"partition-id": 1, "trust": "local", "epsilon": 2.0},
        **{"guard-folder": str(tmp_path / "guard")},
    }


def test_everything_comes_from_the_owner(owner: dict[str, Any]) -> None:
    setup = HOST.node({"config": "quickstart", "overrides": "", "out": ""}, owner)
    expected = population(
        "events", path=owner["data"], user="user", item="item", count="count"
    ).load()
    np.testing.assert_array_equal(setup.users.ids, expected.users.ids)
    assert setup.index == 1
    assert setup.seed is None
    assert dict(setup.owner) == {k: owner[k] for k in ("trust", "epsilon", "guard-folder")}


@pytest.mark.parametrize("key", ["config", "overrides", "out", "plugins", "data", "trust"])
def test_the_run_configuration_opens_and_imports_nothing(
    owner: dict[str, Any], tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in the run's configuration, the same files are opened as with none."""
    touched = tmp_path / "touched"
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(touched)!r}, 'w').close()\n")
    config = tmp_path / "evil.toml"
    config.write_text(
        f'[run]\nplugins = ["{evil}"]\n[protocol]\nname = "mean"\n'
        f'[population]\nkind = "events"\npath = "{config}"\n'
    )
    values = {
        "config": str(config),
        "overrides": f'["run.plugins=[\'{evil}\']", "population.path={config}"]',
        "plugins": str(evil),
        "data": str(config),
        "trust": "central",
        "out": str(touched),
    }
    opened: list[str] = []
    listening = True

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if listening and event in ("open", "import"):
            opened.append(str(arguments[0]))

    sys.addaudithook(listen)
    try:
        setup = HOST.node({key: values[key]}, owner)
    finally:
        listening = False
    assert not any("evil" in name or "touched" in name for name in opened)
    assert not touched.exists()
    assert setup.owner["trust"] == "local"
    assert setup.seed is None
    assert len(setup.users) == 3


@pytest.mark.parametrize(
    "run_config",
    [
        {"seed": 1},
        {"overrides": "run.nodes=3  RUN.SEED = 1"},
        {"overrides": '["population.seed=3"]'},
        {"overrides": '["broken seed'},
    ],
)
def test_a_seed_in_the_run_is_refused(owner: dict[str, Any], run_config: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="refuses a seed from the server"):
        HOST.node(run_config, owner)
    with pytest.raises(WireError, match="refuses a seed from the server"):
        HOST.node(run_config, owner | {"simulation-seed": 1})


@pytest.mark.parametrize("key", ["data", "partition-id", "guard-folder"])
def test_an_owner_who_forgets_something_is_told(owner: dict[str, Any], key: str) -> None:
    del owner[key]
    with pytest.raises(PopulationError, match=f"owner must configure {key!r}"):
        HOST.node({}, owner)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("guard-folder", "guard", "must be an absolute path"),
        ("partition-id", -1, "'partition-id' of this node must be a non-negative integer"),
        ("simulation-seed", True, "'simulation-seed' of this node must be a non-negative"),
        ("epsilon", float("nan"), "'epsilon' of this node must be a positive finite number"),
        ("max-epsilon", 0, "'max-epsilon' of this node must be a positive finite number"),
        ("queries", " , ", "'queries' of this node allows nothing"),
        ("simulated", True, "unknown node configuration 'simulated'"),
        ("trsut", "central", "unknown node configuration 'trsut'; did you mean 'trust'"),
    ],
)
def test_bad_owner_configuration(
    owner: dict[str, Any], key: str, value: object, message: str
) -> None:
    with pytest.raises(PopulationError, match=message):
        HOST.node({}, owner | {key: value})


def test_a_supernode_without_data_simulates_nobody() -> None:
    """Flower's usual node configuration must not let the server choose a file to read."""
    node_config = {"partition-id": 0, "num-partitions": 20}
    run_config = {"config": "quickstart", "overrides": '["run.nodes=20"]'}
    with pytest.raises(PopulationError, match="owner must configure 'data'"):
        HOST.node(run_config, node_config)


def test_a_simulated_node_needs_the_simulation_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    assert not hosting.in_simulation()
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    overrides = '["run.nodes=20", "population.n_users=45", "run.seed=4"]'
    run_config = {"config": "quickstart", "overrides": overrides}
    setup = HOST.node(run_config, {"partition-id": 3, "num-partitions": 20})
    assert (setup.index, setup.seed, len(setup.users)) == (3, 4, 3)
    with pytest.raises(PopulationError, match="num-supernodes=20"):
        HOST.node(run_config, {"partition-id": 3, "num-partitions": 5})


@pytest.mark.parametrize("bad", ["ann,tea,secret-7", "ann,tea,-3"])
def test_errors_tell_the_server_nothing_about_the_data(owner: dict[str, Any], bad: str) -> None:
    Path(owner["data"]).write_text(f"user,item,count\nann,tea,2\n{bad}\n")
    with pytest.raises(PopulationError) as caught:
        HOST.node({}, owner)
    assert str(caught.value) == "the data of this node cannot be read; its own log says why"
    assert caught.value.__cause__ is None
