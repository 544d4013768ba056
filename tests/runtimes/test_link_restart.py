"""A SuperLink that is killed and started again, with nodes that stay."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from flower_cases import APP, PATIENCE, read_estimate, write_config

from fedhist.base.errors import FedhistError
from tests.support.loopback import Loopback
from tests.support.processes import marked_processes

pytestmark = [pytest.mark.deploy, pytest.mark.slow]
PROTOCOL = {
    **{"name": "naive-mean", "kind": "onebit", "epsilon": 2.0, "n_users": 120},
    **{"low": 0.0, "high": 8.0},
}


def _owner(folder: Path, i: int) -> dict[str, str | int | float]:
    """Sixty users of one owner, and what it configures."""
    data = folder / f"data-{i}.csv"
    data.write_text("who,x\n" + "".join(f"u{i}-{k},{k % 5}\n" for k in range(60)))
    return {
        **{"data": str(data), "user": "who", "value": "x", "partition-id": i},
        **{"epsilon": 2.0, "guard-folder": str(folder / f"guard-{i}")},
    }


def _comes_back(start: Callable[[], subprocess.Popen[bytes]], log: Callable[[], str]) -> int:
    """Start a SuperNode again whenever it ends; how often the link refused it (error 305)."""
    refused, end = 0, time.monotonic() + 300
    while time.monotonic() < end:
        node = start()
        while node.poll() is None and time.monotonic() < end:
            if "SuperNode ID" in log():
                return refused
            time.sleep(0.2)
        assert "Exit Code: 305" in log()
        refused += 1
    raise AssertionError(f"refused {refused} times in five minutes")


def test_the_key_of_a_killed_node_comes_back(tmp_path: Path) -> None:
    """With TLS the link keeps registered keys over a restart; a node killed with it is let in
    again once its heartbeats are missed, and answers what it answered before."""
    config = write_config(
        tmp_path / "remote.toml",
        run={"nodes": 1, "timeout": PATIENCE, "min_replies": 1},
        protocol=PROTOCOL | {"n_users": 60},
        population={"kind": "remote"},
    )
    owner = _owner(tmp_path, 0)
    with Loopback(tmp_path / "link", tls=True, keeps_state=True) as link:
        first = link.supernode(owner)

        def run(out: str) -> str:
            return link.run(APP, {"config": str(config), "out": str(tmp_path / out)}).status

        assert run("before") == "finished:completed"
        link.lose(first)
        link.lose_link()
        link.restart_link()
        started = [0]

        def start() -> subprocess.Popen[bytes]:
            started[0] += 1
            return link.supernode(owner, key_of=1)

        refused = _comes_back(start, lambda: link.log(f"supernode-{started[0] + 1}"))
        assert refused >= 1  # for at least half a minute the link takes the node for alive
        assert run("after") == "finished:completed"
        assert read_estimate(tmp_path / "after") == pytest.approx(
            read_estimate(tmp_path / "before")
        )
    assert list(marked_processes(link.token)) == []


def test_a_killed_link_comes_back_and_its_nodes_with_it(tmp_path: Path) -> None:
    """Nodes need not be touched; what their users have spent before stays spent."""
    config = write_config(
        tmp_path / "remote.toml",
        run={"nodes": 2, "timeout": PATIENCE},
        protocol=PROTOCOL,
        population={"kind": "remote"},
    )
    with Loopback(tmp_path / "link", keeps_state=True) as link:
        for i in range(2):
            link.supernode(_owner(tmp_path, i))

        def run(out: str) -> str:
            return link.run(APP, {"config": str(config), "out": str(tmp_path / out)}).status

        assert run("before") == "finished:completed"
        link.lose_link()
        with pytest.raises(FedhistError, match="Connection to the SuperLink is unavailable"):
            link.run(APP, {"config": str(config), "out": str(tmp_path / "dead")}, timeout=60)
        link.restart_link()
        assert run("after") == "finished:completed"  # the same question: the stored answer
        assert read_estimate(tmp_path / "after") == pytest.approx(
            read_estimate(tmp_path / "before")
        )
    assert list(marked_processes(link.token)) == []
