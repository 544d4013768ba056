"""Sums under masks in a deployment on loopback: four SuperNodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_cases import APP, DOMAIN, inline_estimate, read_estimate, write_config

from clients.guard_folder import FolderStore
from fedhist import Users
from simulations.populations import population
from simulations.runtimes.deployment import FlowerRun, Loopback, marked_processes

pytestmark = pytest.mark.deploy
PROTOCOL = {
    **{"name": "bounded-histogram", "domain": DOMAIN, "epsilon": 1.0, "clip": 7.0, "grid": 0.01},
    **{"trust": "aggregate"},
}
SEED = 5


class Owners:
    """Owners of small files, and the SuperNodes that they have started."""

    def __init__(self, link: Loopback, n: int, **options: Any) -> None:
        self.link, self.n, self.options = link, n, options
        rng = np.random.default_rng(17)
        for i in range(n):
            rows = [
                f"user-{i}-{u},{item},{rng.integers(1, 6)}\n"
                for u in range(3 + i % 2)
                for item in rng.choice(DOMAIN, 2, replace=False)
            ]
            self.file(i).write_text("who,what,times\n" + "".join(rows), encoding="utf-8")
        self.nodes = [self.start(i) for i in range(n)]

    def file(self, i: int) -> Path:
        return self.link.folder / f"owner-{i}.csv"

    def guard(self, i: int) -> Path:
        return self.link.folder / f"guard-{i}"

    def start(self, i: int) -> subprocess.Popen[bytes]:
        return self.link.supernode(
            {
                **{"data": str(self.file(i)), "user": "who", "item": "what", "count": "times"},
                **{"partition-id": i, "trust": "aggregate", "simulation-seed": SEED},
                **{"guard-folder": str(self.guard(i)), "min-parties": self.n},
                **self.options,
            }
        )

    def users(self) -> list[Users]:
        return [
            population("events", path=self.file(i), user="who", item="what", count="times")
            .load()
            .users
            for i in range(self.n)
        ]

    def config(self, path: Path, **run: Any) -> Path:
        told = {"nodes": self.n, "seed": SEED, "timeout": 240.0} | run
        remote = {"kind": "remote"}
        return write_config(path, run=told, protocol=PROTOCOL, population=remote)

    def ask(self, config: Path, out: Path) -> FlowerRun:
        return self.link.run(APP, {"config": str(config), "out": str(out)}, timeout=1500.0)


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Loopback]:
    with Loopback(tmp_path / "link", keeps_state=True) as link:
        yield link
    assert list(marked_processes(link.token)) == []


def test_four_nodes_and_the_bits_of_one_process(link: Loopback, tmp_path: Path) -> None:
    owners = Owners(link, 4)
    config = owners.config(tmp_path / "remote.toml")
    done = owners.ask(config, tmp_path / "results")
    assert done.status == "finished:completed", done.log
    here = inline_estimate(config, owners.users())
    np.testing.assert_array_equal(read_estimate(tmp_path / "results"), here)
    for i in range(4):
        store = FolderStore(owners.guard(i), i)
        assert [a.epsilon for a in store.answered()] == [1.0]
        assert len(store.unmasked()) == 1
