"""Nodes that trust nobody: pinned, over TLS, with keys of their own and noise from the system.

A deployment of its own file: the processes of one that is no longer asked would go on polling.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from flower_cases import APP, HISTOGRAM, PATIENCE, REMOTE, ask, read_estimate, write_config

from tests.support.loopback import FlowerRun, Loopback
from tests.support.processes import marked_processes

pytestmark = [pytest.mark.deploy, pytest.mark.slow]

MEAN = {
    **{"name": "mean", "kind": "onebit", "epsilon": 4.0, "n_users": 80},
    **{"samples_per_user": 4, "low": 0.0, "high": 8.0, "mean_scale": 4.0},
}


@dataclass
class Wary:
    """Pinned nodes that trust nobody and draw their noise from system entropy, over TLS.

    They are authenticated by keys of their own. The app that the server sends them has another
    client half, which they must not run.
    """

    link: Loopback
    files: list[Path]
    config: Path
    app: Path
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def restart(self, guards: str) -> None:
        for node in self.nodes:
            self.link.end(node)
        self.nodes = [
            self.link.supernode(self.owner(guards, i), pinned=True) for i in range(len(self.files))
        ]

    def owner(self, guards: str, index: int) -> dict[str, str | int | float]:
        return {
            **{"data": str(self.files[index]), "user": "who", "value": "x"},
            **{"partition-id": index, "trust": "local", "epsilon": 4.0},
            **{"guard-folder": str(self.guard(guards, index))},
        }

    def ask(self, out: Path, config: Path | None = None, **overrides: object) -> FlowerRun:
        return ask(self.link, config or self.config, out, self.app, **overrides)

    def guard(self, guards: str, index: int) -> Path:
        return self.link.folder / guards / str(index)


def tampered_app(folder: Path) -> Path:
    for package in ("fedhist", "clients", "server", "simulations"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(APP / package, folder / package, ignore=ignored)
    shutil.copy(APP / "pyproject.toml", folder)
    for file in ("README.md", "LICENSE"):
        if (APP / file).exists():
            shutil.copy(APP / file, folder)
    (folder / "clients" / "app.py").write_text("app = None\nraise RuntimeError('sent code ran')\n")
    return folder


@pytest.fixture(scope="module")
def wary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wary]:
    folder, rng = tmp_path_factory.mktemp("wary"), np.random.default_rng(12)
    files = [folder / f"owner-{node}.csv" for node in range(2)]
    for file in files:  # 40 users each, 4 samples a user in [0, 8]
        rows = [f"{file.stem}-{u % 40},{x}\n" for u, x in enumerate(rng.uniform(3, 7, 160))]
        file.write_text("who,x\n" + "".join(rows))
    run = {"nodes": 2, "timeout": PATIENCE, "fold": "server"}
    config = write_config(folder / "mean.toml", run=run, protocol=MEAN, population=REMOTE)
    with Loopback(folder / "flower", tls=True) as link:
        wary = Wary(link, files, config, tampered_app(folder / "app"))
        wary.restart("guards")
        yield wary
    assert list(marked_processes(link.token)) == []


@pytest.fixture(scope="module")
def first(wary: Wary, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    out = tmp_path_factory.mktemp("first") / "results"
    done = wary.ask(out)
    assert done.status == "finished:completed", done.log
    return read_estimate(out)


def test_a_node_that_trusts_nobody_refuses_central_queries(wary: Wary, tmp_path: Path) -> None:
    run = {"nodes": 2, "timeout": PATIENCE}
    config = write_config(tmp_path / "counts.toml", run=run, protocol=HISTOGRAM, population=REMOTE)
    done = wary.ask(tmp_path / "results", config)
    assert done.status == "finished:failed"
    assert "needs a trusted server; this node trusts none" in done.details


def test_a_spent_budget_outlives_the_node(wary: Wary, first: np.ndarray, tmp_path: Path) -> None:
    wary.restart("guards")
    again = wary.ask(tmp_path / "again")
    assert again.status == "finished:completed", again.log
    np.testing.assert_array_equal(read_estimate(tmp_path / "again"), first)  # stored answers
    other = wary.ask(tmp_path / "other", protocol__epsilon=3.0)
    assert other.status == "finished:failed"
    assert "a user's budget is spent: 4 of 4, the query costs 3 more" in other.details
    assert not (tmp_path / "other").exists()
    for i in range(2):
        files = [f for f in wary.guard("guards", i).iterdir() if f.suffix in (".json", ".jsonl")]
        assert len(files) == 3  # the answers, how many there are, and the reply
        assert {f.stat().st_mode & 0o777 for f in files} == {0o600}
