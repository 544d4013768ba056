"""Clusters that lose machines, have no CPU to spare, are somebody else's, or are not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import numpy as np
import pytest
import ray
from flwr.app import ArrayRecord
from ray.cluster_utils import Cluster

from fedhist import Keys, Users
from fedhist.model.registry import load_plugin, protocol_class
from server.strategy import SessionStrategy
from simulations.runs.options import Options
from simulations.runs.run import execute, open_session
from simulations.runtimes.ray_grid import RayGrid
from simulations.runtimes.raylets import raylets

pytestmark = [pytest.mark.ray, pytest.mark.slow]
N = 400
PLUGIN = str(Path(__file__).with_name("faulty.py"))


@pytest.fixture(scope="module")
def users() -> Users:
    rng = np.random.default_rng(5)
    keys = Keys.of([f"item-{i}" for i in range(7)])
    user = np.repeat(np.arange(N), 3)
    return Users.from_counts(
        np.arange(N), user, rng.integers(0, 7, len(user)), rng.integers(1, 5, len(user)), keys
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
    with raylets(3, _system_config=quick) as made:
        yield made
        ray.shutdown()


def test_somebody_else_s_cluster_is_left_alone(cluster: Cluster) -> None:
    """A run without an address starts its own, with the workers that it asks for."""
    code = "from simulations.runtimes.ray_start import start_ray; import ray; start_ray(2, None);"
    code += "print(int(ray.cluster_resources()['CPU']), ray.get_runtime_context().gcs_address)"
    environment = os.environ | {"RAY_ADDRESS": cluster.address}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    cpus, address = done.stdout.split()
    assert cpus == "2"
    assert address != cluster.address


def test_a_lost_machine_costs_time_and_nothing_else(cluster: Cluster, users: Users) -> None:
    """Amid a round, without a CPU to spare: what is left answers. A new machine joins in."""
    load_plugin(PLUGIN)
    protocol = protocol_class("test-many-rounds")(n_rounds=40)
    options = Options(seed=3, nodes=100, plugins=[PLUGIN])
    wanted = execute(protocol, users, options).estimate
    machines = sorted(cluster.worker_nodes, key=lambda node: str(node.node_id))

    def lose_one() -> None:
        lost = machines.pop()
        os.kill(lost.all_processes["raylet"][0].process.pid, signal.SIGKILL)
        cluster.worker_nodes.remove(lost)

    def ask() -> float:
        session, _ = open_session(protocol, options)
        started = time.monotonic()
        SessionStrategy(session, grid.n_nodes).start(grid, ArrayRecord(), timeout=300)
        assert np.array_equal(session.estimate.value, wanted.value)
        return time.monotonic() - started

    grid = RayGrid(users, 100, 3, workers=3, address=cluster.address, plugins=[PLUGIN])
    with grid:
        ask()
        assert len(grid._pids) >= 3
        losing = Timer(0.3, lose_one)
        losing.start()
        assert ask() < 60
        losing.join()
        cluster.add_node(num_cpus=2)
        lose_one()
        assert ask() < 60
