"""A SuperLink that is killed and started again, with nodes that stay."""

from __future__ import annotations

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
    data = folder / f"data-{i}.csv"
    data.write_text("who,x\n" + "".join(f"u{i}-{k},{k % 5}\n" for k in range(60)))
    return {
        **{"data": str(data), "user": "who", "value": "x", "partition-id": i},
        **{"epsilon": 2.0, "guard-folder": str(folder / f"guard-{i}")},
    }


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
