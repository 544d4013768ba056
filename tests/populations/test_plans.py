"""Plans: a configuration whose users are made block by block runs, and says the same of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from walked_users import Walked

from fedhist.base.errors import PopulationError
from fedhist.users import shards
from simulations.populations import Plan, PopulationSpec, population
from simulations.runs import flower_host
from simulations.runs.booked_run import run_job
from simulations.runs.config import Config, config_of, prepare
from simulations.runs.flower_host import simulated_node

MADE = {
    "items": {"kind": "zipf", "n_users": 400, "d": 30, "mean_items": 8, "seed": 4},
    "samples": {"kind": "gaussian", "n_users": 400, "samples_per_user": 5, "seed": 4},
}
PROTOCOLS = {
    "bounded-histogram": {"delta": 1e-6, "clip": 2.0},
    "mean": {"low": 0.0, "high": 1.0, "samples_per_user": "harmonic-mean"},
}


def loaded(spec: PopulationSpec) -> Plan:
    return spec.load()


def walked(spec: PopulationSpec) -> Plan:
    return Plan(**(vars(spec.load()) | {"users": Walked(spec.load().users, 90)}))


def config(name: str, out: Path | str = "") -> Config:
    tables: dict[str, Any] = {
        "run": {"runtime": "inline", "seed": 3, "repeats": 2, "out": str(out)},
        "protocol": {"name": name, "epsilon": 2.0} | PROTOCOLS[name],
        "population": MADE["samples" if name == "mean" else "items"],
    }
    return config_of(tables, "test", "test")


def rounded(file: Path) -> str:
    number = r"[0-9]+[.][0-9]+(e[-+][0-9]+)?"
    return re.sub(number, lambda m: f"{float(m[0]):.9g}", file.read_text())


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_configuration_runs_by_blocks(name: str, tmp_path: Path) -> None:
    """The same estimate, evaluation, facts and ledger as of users in memory."""
    written = []
    for load, out in ((loaded, "here"), (walked, "by blocks")):
        run_job(prepare(config(name, tmp_path / out), load))
        files = [tmp_path / out / f for f in ("metrics.json", "ledger.json", "config.json")]
        result = [json.loads(rounded(f)) for f in files]
        for key in ("seconds", "rounds"):
            result[0]["NOT PRIVATE"].pop(key)
        result[2]["run"].pop("out")
        written.append([*result, rounded(tmp_path / out / "estimate.csv")])
    here, by_blocks = written
    assert here[0]["status"] == "ok"
    assert name != "bounded-histogram" or "the clip of 2" in str(here[0]["NOT PRIVATE"]["facts"])
    assert by_blocks == here


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"adversary": [{"kind": "dropout", "fraction": 0.1}]}, "a run with adversaries needs"),
        ({"fold": "server", "nodes": 2}, r'each node with run\.fold = "server" needs'),
    ],
)
def test_what_holds_users_is_refused_before_anybody_is_made(
    more: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the protocol's own settings are found by walking all users."""
    tables = config("mean").to_dict()
    tables["run"] |= {name: value for name, value in more.items() if name != "adversary"}
    tables |= {name: value for name, value in more.items() if name == "adversary"}
    planned = walked(population(**MADE["samples"]))
    monkeypatch.setattr(Plan, "kept", lambda self: planned)
    monkeypatch.setattr(shards, "MOST_IN_MEMORY", 199)
    Walked.made = 0
    with pytest.raises(PopulationError, match=message):
        prepare(config_of(tables, "test", "test"))
    assert Walked.made == 0


def test_a_node_of_flwr_run_makes_its_own_users_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a plan: nobody is made when the node is set up, and nobody else when it answers."""
    people = population("zipf", n_users=100, d=30, mean_items=8, seed=4)
    monkeypatch.setattr(flower_host, "population_spec", lambda config: people)
    planned, whole = walked(people), people.load().users.ids
    monkeypatch.setattr(type(people), "plan", lambda self: planned)
    monkeypatch.setattr(Plan, "kept", lambda self: self)
    file = tmp_path / "run.toml"
    file.write_text(
        '[run]\nnodes = 8\nseed = 1\n[protocol]\nname = "bounded-histogram"\n'
        '[population]\nkind = "zipf"\n'
    )
    Walked.made = 0
    asked = {"config": str(file)}
    setups = [simulated_node(asked, {"partition-id": i, "num-partitions": 8}) for i in (0, 5)]
    assert Walked.made == 0
    ids = [setup.users.in_memory().ids for setup in setups]
    assert Walked.made == 2
    assert [i.tolist() for i in ids] == [whole[:12].tolist(), whole[62:75].tolist()]
    with pytest.raises(PopulationError, match="has 8 nodes, Flower has 9"):
        simulated_node(asked, {"partition-id": 0, "num-partitions": 9})
