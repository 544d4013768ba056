"""Clusters that lose machines, have no CPU to spare, are somebody else's, or are not there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
import ray
from flwr.app import ArrayRecord
from ray.cluster_utils import Cluster

from fedhist import Keys, Users
from fedhist.base.errors import FedhistError
from fedhist.protocols import BoundedHistogram
from server.strategy import SessionStrategy
from simulations.runs.run import Options, execute, open_session
from simulations.runtimes import ray_grid, ray_start
from simulations.runtimes.ray_grid import RayGrid
from simulations.runtimes.ray_start import start_ray

pytestmark = [pytest.mark.ray, pytest.mark.slow]
N = 400


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
    """Three raylets of one CPU each on this machine, and a head without any."""
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": quick}
    made = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(3):
        made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


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


def test_no_cpu_for_anybody_is_an_error_that_says_so(
    cluster: Cluster, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Holder:  # takes a CPU
        def here(self) -> bool:
            return True

    monkeypatch.setattr(ray_grid, "PLACED_SECONDS", 4.0)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    holders = [ray.remote(Holder).options(num_cpus=1).remote() for _ in range(3)]
    ray.get([h.here.remote() for h in holders])
    with pytest.raises(FedhistError, match="Ray started no worker within 4 s"):
        RayGrid(users, 20, 3, workers=2)
    ray.shutdown()


def test_a_lost_machine_costs_time_and_nothing_else(
    cluster: Cluster, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a CPU to spare the other workers take its nodes; with one a new worker does."""
    protocol = BoundedHistogram(domain=users.vocabulary, clip=20.0, epsilon=1.0, grid=0.25)
    wanted = execute(protocol, users, Options(seed=3)).estimate

    machines = sorted(cluster.worker_nodes, key=lambda node: str(node.node_id))

    def lose_one() -> None:
        """Kill a raylet, and wait until its worker is gone: until then it answers."""
        lost = machines.pop()
        os.kill(lost.all_processes["raylet"][0].process.pid, signal.SIGKILL)
        cluster.worker_nodes.remove(lost)
        end = time.monotonic() + 120
        while answer():
            assert time.monotonic() < end

    def answer() -> bool:
        try:
            return bool(grid.worker_pids())
        except ray.exceptions.RayActorError:
            return False

    def ask() -> None:
        session, _ = open_session(protocol, Options(seed=3))
        SessionStrategy(session, grid.n_nodes).start(grid, ArrayRecord(), timeout=300)
        assert session.estimate is not None
        assert np.array_equal(session.estimate.value, wanted.value)

    with RayGrid(users, 20, 3, workers=3, address=cluster.address) as grid:
        assert len(set(grid.worker_pids())) == 3
        with monkeypatch.context() as patch:  # there is nothing to wait for
            patch.setattr(ray_grid, "PLACED_SECONDS", 8.0)
            lose_one()
            ask()
        assert len(set(grid.worker_pids())) == 2
        cluster.add_node(num_cpus=2)
        lose_one()
        ask()
        assert len(set(grid.worker_pids())) >= 2


HEADLESS = """
import os, signal, time
from ray.cluster_utils import Cluster
from fedhist.protocols import BoundedHistogram
from simulations.runs.run import Options, execute
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
cluster.add_node(num_cpus=1)
def killed(query):
    head = cluster.head_node.all_processes["gcs_server"][0].process
    os.kill(head.pid, signal.SIGKILL)
protocol, users = BoundedHistogram.example(), BoundedHistogram.example_users()
options = Options(seed=3, runtime="ray", workers=1, ray_address=cluster.address, watch=killed)
print(execute(protocol, users, options).estimate.status, flush=True)
time.sleep(60)
"""


def test_a_killed_head_ends_the_process_with_an_error() -> None:
    """Ray says why it ends; raylets end by themselves."""
    wait = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    done = subprocess.run(
        [sys.executable, "-c", HEADLESS],
        env=os.environ | wait,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode != 0
    assert "GCS may have been killed" in done.stderr


def test_an_address_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_start, "REACHED_SECONDS", 1.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(FedhistError, match=f"no Ray cluster answers at '127.0.0.1:{port}'"):
        start_ray(None, f"127.0.0.1:{port}")
    assert time.monotonic() - started < 30
    assert not ray.is_initialized()
