"""The example of somebody's own Flower app, outside this tree: ``flwr run .``, and a deployment."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import pytest
from flower_cases import APP

from tests.support.loopback import FlowerRun, Loopback

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
