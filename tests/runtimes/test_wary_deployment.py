"""Nodes that trust nobody: pinned, and with noise from the system."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from flower_cases import APP, HISTOGRAM, PATIENCE, REMOTE, ask, read_estimate, write_config

from tests.support.loopback import FlowerRun, Loopback

MEAN = {
    **{"name": "mean", "kind": "onebit", "epsilon": 4.0, "n_users": 80},
    **{"samples_per_user": 4, "low": 0.0, "high": 8.0, "mean_scale": 4.0},
}


def tampered_app(folder: Path) -> Path:
    """Copy the app, with a client half that its nodes' owners have not installed."""
    for package in ("fedhist", "clients", "server", "simulations"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(APP / package, folder / package, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(APP / file, folder)
    (folder / "clients" / "app.py").write_text("app = None\nraise RuntimeError('sent code ran')\n")
    return folder


@pytest.mark.deploy
@pytest.mark.slow
def test_wary_nodes_run_their_own_code_and_their_budget_outlives_them(tmp_path: Path) -> None:
    app, rng = tampered_app(tmp_path / "app"), np.random.default_rng(12)
    owners = []
    for i in range(2):  # 40 users each, 4 samples a user in [0, 8]
        data, guard = tmp_path / f"owner-{i}.csv", tmp_path / f"guard-{i}"
        rows = [f"{i}-{u % 40},{x}\n" for u, x in enumerate(rng.uniform(3, 7, 160))]
        data.write_text("who,x\n" + "".join(rows))
        owners.append(
            {
                **{"data": str(data), "user": "who", "value": "x", "partition-id": i},
                **{"trust": "local", "epsilon": 4.0, "guard-folder": str(guard)},
            }
        )
    run = {"nodes": 2, "timeout": PATIENCE}
    tables = {"population": REMOTE, "run": run | {"fold": "server"}, "protocol": MEAN}
    mean = write_config(tmp_path / "mean.toml", **tables)
    counts = write_config(tmp_path / "counts.toml", **tables | {"run": run, "protocol": HISTOGRAM})

    with Loopback(tmp_path / "flower") as link:

        def asked(name: str, config: Path = mean, **overrides: object) -> FlowerRun:
            return ask(link, config, tmp_path / name, app, **overrides)

        nodes = [link.supernode(owner, pinned=True) for owner in owners]
        first = asked("first")
        assert first.status == "finished:completed", first.log
        central = asked("counts", counts)
        assert central.status == "finished:failed"
        assert "needs a trusted server; this node trusts none" in central.details
        for node in nodes:
            link.end(node)
        for owner in owners:
            link.supernode(owner, pinned=True)
        again = asked("again")
        assert again.status == "finished:completed", again.log
        other = asked("other", protocol__epsilon=3.0)
    stored = (read_estimate(tmp_path / name) for name in ("first", "again"))
    np.testing.assert_array_equal(*stored)
    assert other.status == "finished:failed"
    assert "a user's budget is spent: 4 of 4, the query costs 3 more" in other.details
    assert not (tmp_path / "other").exists()
    for i in range(2):
        folder = tmp_path / f"guard-{i}"
        files = [f for f in folder.iterdir() if f.suffix in (".json", ".jsonl")]
        assert len(files) == 3  # the answers, how many there are, and the reply
        assert {f.stat().st_mode & 0o777 for f in files} == {0o600}
