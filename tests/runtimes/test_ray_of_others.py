"""A run in a process that has started Ray by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import fedhist, ray
from fedhist.protocols import BoundedHistogram
ray.init(num_cpus={cpus}, include_dashboard=False, log_to_driver=False)
protocol = BoundedHistogram.example()
users = BoundedHistogram.example_users()
try:
    print(fedhist.run(protocol, users, seed=1, runtime="ray", nodes=4).status)
except fedhist.FedhistError as error:
    print(error)
"""


TWICE = """
import multiprocessing, sys, threading
import fedhist
from fedhist.protocols import BoundedHistogram

def run():
    try:
        users = BoundedHistogram.example_users()
        protocol = BoundedHistogram.example()
        print(fedhist.run(protocol, users, seed=1, runtime="ray", nodes=4).status, flush=True)
    except fedhist.FedhistError as error:
        print(error, flush=True)

threads = [threading.Thread(target=run) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
child = multiprocessing.get_context("fork").Process(target=run)
child.start()
child.join()
"""


@pytest.mark.slow
@pytest.mark.ray
def test_two_threads_take_turns_and_a_forked_child_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TWICE],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    first, second, child = done.stdout.splitlines()
    assert (first, second) == ("ok", "ok")
    assert "forked from one that had started Ray" in child


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize(("cpus", "said"), [(0, "with 0 CPUs and none is free"), (1, "ok")])
def test_a_ray_without_a_free_cpu_is_refused(tmp_path: Path, cpus: int, said: str) -> None:
    """And workers find fedhist's packages beside somebody's file ``simulations.py``."""
    (tmp_path / "simulations.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(cpus=cpus)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said in done.stdout
