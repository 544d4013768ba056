"""A real deployment: one SuperLink and three SuperNodes on loopback, each with its owner's data."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_cases import APP, DOMAIN, inline_estimate, load_events, read_estimate, write_config

from simulations.deployment import FlowerRun, Loopback, marked_processes

pytestmark = pytest.mark.deploy

REMOTE = {"kind": "remote"}
HISTOGRAM = {"name": "bounded-histogram", "domain": DOMAIN, "epsilon": 1.0, "clip": 7.0}
MEAN = {
    **{"name": "mean", "kind": "laplace", "epsilon": 4.0, "n_users": 24},
    **{"samples_per_user": 4, "low": 0.0, "high": 8.0, "mean_scale": 4.0},
}


def ask(link: Loopback, config: Path, out: Path, **overrides: object) -> FlowerRun:
    """Run a configuration on the nodes of a deployment."""
    text = " ".join(f"{k.replace('__', '.')}={v}" for k, v in overrides.items())
    return link.run(APP, {"config": str(config), "overrides": text, "out": str(out)})


@pytest.fixture(scope="module")
def trusting(
    event_files: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loopback]:
    """Nodes that trust the server, with simulation seeds; one of them runs installed code only."""
    folder = tmp_path_factory.mktemp("trusting")
    with Loopback(folder) as link:
        for i, file in enumerate(event_files):
            link.supernode(
                {
                    **{"data": str(file), "user": "who", "item": "what", "count": "times"},
                    **{"partition-id": i, "trust": "central", "queries": "clipped-counts"},
                    **{"guard-folder": str(folder / f"guard-{i}"), "simulation-seed": 5},
                },
                pinned=i == 2,
            )
        yield link
    assert list(marked_processes(link.token)) == []


@pytest.mark.parametrize("grid", [0.25, None], ids=["integers", "reals"])
def test_same_estimate_as_inline(
    trusting: Loopback, event_files: list[Path], tmp_path: Path, grid: float | None
) -> None:
    protocol = HISTOGRAM | ({"grid": grid} if grid else {})
    run = {"nodes": 3, "seed": 5, "timeout": 60.0}
    config = write_config(tmp_path / "remote.toml", run=run, protocol=protocol, population=REMOTE)
    done = ask(trusting, config, tmp_path / "results")
    assert done.status == "finished:completed", done.log
    here = inline_estimate(config, load_events(event_files))
    np.testing.assert_array_equal(read_estimate(tmp_path / "results"), here)


def test_a_seed_from_the_server_is_refused(trusting: Loopback, tmp_path: Path) -> None:
    run = {"nodes": 3, "timeout": 60.0}
    config = write_config(tmp_path / "remote.toml", run=run, protocol=HISTOGRAM, population=REMOTE)
    done = ask(trusting, config, tmp_path / "results", run__seed=1)
    assert done.status == "finished:failed"
    assert "3 of 3 replies are missing" in done.details
    assert "refuses a seed from the server" in done.details
    assert not (tmp_path / "results").exists()


def _wary(link: Loopback, files: Sequence[Path], guards: Path) -> list[subprocess.Popen[bytes]]:
    """Start nodes that trust nobody and draw their noise from system entropy."""
    return [
        link.supernode(
            {
                **{"data": str(file), "user": "who", "value": "x", "partition-id": i},
                **{"trust": "local", "epsilon": 4.0, "guard-folder": str(guards / str(i))},
            },
            pinned=True,
        )
        for i, file in enumerate(files)
    ]


def test_a_budget_outlives_the_node(sample_files: list[Path], tmp_path: Path) -> None:
    run = {"nodes": 3, "timeout": 60.0}
    tables: dict[str, Any] = {"run": run, "population": REMOTE}
    mean = write_config(tmp_path / "mean.toml", protocol=MEAN, **tables)
    counts = write_config(tmp_path / "counts.toml", protocol=HISTOGRAM, **tables)
    with Loopback(tmp_path / "flower") as link:
        nodes = _wary(link, sample_files, tmp_path / "guards")
        assert ask(link, mean, tmp_path / "first").status == "finished:completed"

        # a query for a trusted server
        central = ask(link, counts, tmp_path / "central")
        assert central.status == "finished:failed"
        assert "needs a trusted server; this node trusts none" in central.details

        for node in nodes:
            link.end(node)
        nodes = _wary(link, sample_files, tmp_path / "guards")
        again = ask(link, mean, tmp_path / "again")
        assert again.status == "finished:completed", again.log
        other = ask(link, mean, tmp_path / "other", protocol__epsilon=3.0)
        assert other.status == "finished:failed"
        assert "a user's budget is spent: 4 of 4, the query costs 3 more" in other.details

        for node in nodes:
            link.end(node)
        _wary(link, sample_files, tmp_path / "other-guards")
        fresh = ask(link, mean, tmp_path / "fresh")
        assert fresh.status == "finished:completed", fresh.log
    first = read_estimate(tmp_path / "first")
    np.testing.assert_array_equal(read_estimate(tmp_path / "again"), first)  # the stored answers
    assert read_estimate(tmp_path / "fresh") != first  # system entropy; equal with chance < 2^-40
    assert abs(first[0] - 5.0) < 8.0
    for file in tmp_path.rglob("guards/*/*.json*"):
        assert file.stat().st_mode & 0o777 == 0o600
    assert list(marked_processes(link.token)) == []
    assert os.environ.get("FLWR_HOME") != str(tmp_path / "flower" / "flower")
