"""What Ray's workers find in their environment, and a Ray that somebody else has started."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedhist.base.errors import FedhistError
from fedhist.users.shards import BLOCK
from simulations.runtimes import ray_start
from simulations.runtimes.ray_start import compare, facts_of
from simulations.runtimes.threads import THREADS


def test_workers_have_one_thread_each_and_this_process_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what Ray's processes inherit: a task with an environment waits for a new worker."""
    result: dict[str, str | None] = {}

    def init(**options: object) -> None:
        assert "runtime_env" not in options
        result.update({name: os.environ.get(name) for name in THREADS})
        heap = {name: int(os.environ[name]) for name in ray_start.HEAP}
        assert min(heap.values()) > 8 * BLOCK

    monkeypatch.setattr(ray_start.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_start.ray, "init", init)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert ray_start.start_ray(2, None)
    assert set(result.values()) == {"1"}
    assert (os.environ["OMP_NUM_THREADS"], os.environ.get("MKL_NUM_THREADS")) == ("4", None)
    assert "runtime_env" not in ray_start.TASK


@pytest.mark.parametrize("asked", [None, "4"])
def test_the_command_line_has_one_thread_unless_asked_for_more(asked: str | None) -> None:
    """In a process of its own: NumPy reads the number when it is imported, hence not before."""
    code = (
        "import os, sys, simulations.cli; assert 'numpy' not in sys.modules; "
        "print(os.environ.get('OMP_NUM_THREADS'), os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    mine = {name: value for name, value in os.environ.items() if name not in THREADS}
    given = mine | ({} if asked is None else {"OMP_NUM_THREADS": asked})
    result = subprocess.check_output([sys.executable, "-c", code], env=given, text=True)
    assert result.split() == ([asked, "None"] if asked else ["1", "1"])


def test_a_machine_that_differs_is_refused_by_name(tmp_path: Path) -> None:
    """Versions and plugin files: what would answer otherwise."""
    plugin = tmp_path / "plugin.py"
    plugin.write_text("x = 1\n")
    here = facts_of([str(plugin)])
    compare("10.0.0.2", facts_of([str(plugin)]), here)
    for fact in here:
        with pytest.raises(FedhistError, match=f"{re.escape(fact)} is 0 there and"):
            compare("10.0.0.2", {**here, fact: "0"}, here)
    plugin.write_text("x = 2\n")
    with pytest.raises(FedhistError, match=r"10\.0\.0\.2 is unlike .*the plugin"):
        compare("10.0.0.2", facts_of([str(plugin)]), here)
    plugin.unlink()
    with pytest.raises(FedhistError, match="is missing there"):
        compare("10.0.0.2", facts_of([str(plugin)]), here)


def test_nobody_or_something_else_listens_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would try for minutes; whoever listens and says nothing is given some seconds."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(FedhistError, match=address):
            ray_start.start_ray(None, address)
    monkeypatch.setattr(ray_start, "JOINED_SECONDS", 0.2)
    monkeypatch.setattr(ray_start.ray, "init", lambda **_: time.sleep(1))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(FedhistError, match="is no Ray cluster, or a broken one"):
            ray_start.start_ray(None, address)


def test_a_process_that_may_map_little_is_refused_before_ray_aborts_it() -> None:
    code = (
        "import resource; from simulations.runtimes.ray_start import start_ray;"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32)); start_ray(1, None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "FedhistError: this process may map 4,096 MiB" in done.stderr


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
