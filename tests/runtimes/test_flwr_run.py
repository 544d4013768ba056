"""Flower's own simulation runtime, ``flwr run .``: our app, and the example of somebody's own."""

from __future__ import annotations

import io
import re
import runpy
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from flower_cases import APP, read_estimate, write_config

from simulations.runs.config import load_config, prepare
from simulations.runs.run import execute
from tests.support.loopback import FlowerRun, Loopback


@pytest.mark.slow
@pytest.mark.flwr
def test_same_sum_under_masks_as_inline_without(tmp_path: Path) -> None:
    tables = {
        "protocol": {
            **{"name": "bounded-histogram", "epsilon": 1.0, "clip": 20.0, "grid": 0.5},
            "trust": "aggregate",
        },
        "population": {"kind": "zipf", "n_users": 200, "d": 12, "mean_items": 9, "seed": 7},
    }
    run = {"seed": 1, "nodes": 10}
    config = write_config(tmp_path / "config.toml", run=run, **tables)
    told = {
        "config": str(config),
        "overrides": "run.aggregation=masked",
        "out": str(tmp_path / "r"),
    }
    with Loopback(tmp_path / "flower", simulation=True) as link:
        done = link.run(APP, told, nodes=10)
    assert done.status == "finished:completed", done.log
    prepared = prepare(load_config(config))
    options = prepared.config.run.options(runtime="inline")
    here = execute(prepared.protocol, prepared.plan.users, options)
    assert here.estimate.value is not None
    np.testing.assert_array_equal(read_estimate(tmp_path / "r"), here.estimate.value)


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
@pytest.mark.flwr
def test_the_app_bundle_is_whole_and_small() -> None:
    from flwr.cli.build import build_fab_from_disk

    bundle = build_fab_from_disk(APP)
    with zipfile.ZipFile(io.BytesIO(bundle)) as fab:
        names = set(fab.namelist())
    for package in ("fedhist", "clients", "server", "simulations"):
        folder = APP / package
        files = [*folder.rglob("*.py"), *folder.rglob("*.toml")]
        expected = {str(f.relative_to(APP)) for f in files if "__pycache__" not in f.parts}
        assert expected <= names
        assert expected
    packages = ("fedhist/", "clients/", "server/", "simulations/", ".info/")
    strangers = {n for n in names if "/" in n and not n.startswith(packages)}
    assert strangers == set()
    assert len(bundle) < 5_000_000  # Flower's own limit is 10 MB


EXAMPLE = APP / "docs" / "examples" / "flower-app"
NODES = 3


@pytest.fixture
def app(tmp_path: Path) -> Path:
    copy = tmp_path / "app"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    made = runpy.run_path(str(copy / "teashop" / "make_data.py"))
    made["make"](tmp_path / "data", NODES)
    return copy


def check_learnt(run: FlowerRun) -> None:
    """Of 1,200 users: standard errors of shares are 0.022, and the data's own deviations 0.014."""
    assert run.status == "finished:completed", run.log
    shares = {tea: float(s) for tea, s in re.findall(r"(\w+): (-?0\.\d+)$", run.log, re.MULTILINE)}
    wanted = {"assam": 0.4, "chai": 0.3, "oolong": 0.2, "sencha": 0.1}
    assert {tea: shares[tea] for tea in wanted} == pytest.approx(wanted, abs=0.15)
    assert 0.2 < shares["mse"] < 0.5


@pytest.mark.slow
@pytest.mark.flwr
def test_in_flower_s_simulation(app: Path, tmp_path: Path) -> None:
    config = {"data": str(tmp_path / "data"), "nodes": NODES}
    with Loopback(tmp_path / "flower", simulation=True) as link:
        run = link.run(app, config, nodes=NODES)
        check_learnt(run)
        poor = link.run(app, config | {"epsilon": 3.0}, nodes=NODES)
        assert poor.status == "finished:failed"
        assert "3 x the client refused: a user's budget is spent: 0 of 2" in poor.details
        (tmp_path / "data" / "1.parquet").unlink()
        lost = link.run(app, config, nodes=NODES)
        assert "1 of 3 replies are missing" in lost.details
        assert "node 1: load_users failed: FileNotFoundError" in lost.details


@pytest.mark.slow
@pytest.mark.deploy
def test_in_a_deployment(app: Path, tmp_path: Path) -> None:
    config = {"data": str(tmp_path / "data"), "nodes": NODES}
    with Loopback(tmp_path / "flower") as link:
        for i in range(NODES):
            guard = str(tmp_path / "guards" / str(i))
            link.supernode({"partition-id": i, "guard-folder": guard, "epsilon": 3.0})
        check_learnt(link.run(app, config))
        again = link.run(app, config | {"epsilon": 1.5})
        assert again.status == "finished:failed"
        assert "3 x the client refused: a user's budget is spent: 2 of 3" in again.details
