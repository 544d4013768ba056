"""Sums under masks in a deployment on loopback: three SuperNodes, and twelve of which some die.

Slow: a process for every message. The same sum, of nodes that Flower simulates, is in
test_flwr_run.py, and of nodes that are made from their folders for every message in
test_masked_kills.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_cases import APP, DOMAIN, inline_estimate, read_estimate, write_config

from fedhist import Users
from simulations.populations import population
from tests.support.loopback import FlowerRun, Loopback
from tests.support.processes import marked_processes

pytestmark = [pytest.mark.deploy, pytest.mark.slow]
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
                **{"adjacency": "zero-out-user"},
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
    with Loopback(tmp_path / "link") as link:
        yield link
    assert list(marked_processes(link.token)) == []


def waits_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 900
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


def server_apps(link: Loopback) -> list[int]:
    result = []
    for pid in marked_processes(link.token):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"flwr-serverapp" in command:
            result.append(pid)
    return result


def test_twelve_nodes_and_a_server_that_is_killed_while_they_unmask(
    link: Loopback, tmp_path: Path
) -> None:
    """Some have unmasked, and would do so for no other set: the journal goes on with this one."""
    owners = Owners(link, 12, **{"min-parties": 10})
    config = owners.config(tmp_path / "remote.toml", journal=str(tmp_path / "journal"))
    ended: list[FlowerRun] = []
    asking = threading.Thread(target=lambda: ended.append(owners.ask(config, tmp_path / "never")))
    asking.start()
    stores = [owners.guard(i) / "answered.jsonl" for i in range(12)]
    waits_for(lambda: any("unmasked" in s.read_text() for s in stores if s.exists()))
    for pid in server_apps(link):
        os.kill(pid, signal.SIGKILL)
    asking.join()
    assert ended[0].status == "finished:failed"
    done = owners.ask(config, tmp_path / "results")
    assert done.status == "finished:completed", done.log
    here = inline_estimate(config, owners.users())
    np.testing.assert_array_equal(read_estimate(tmp_path / "results"), here)
    journal = (tmp_path / "journal" / "journal.jsonl").read_text()
    assert journal.count('"kind":"masked"') == 1
