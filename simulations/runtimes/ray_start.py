"""Starting Ray in this machine, or joining a cluster; how many tasks are under way."""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from threading import Semaphore, Thread, get_ident
from typing import Any

import ray
from ray._private.node import Node
from ray._private.state import GlobalState
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedhist.base.errors import FedhistError
from fedhist.base.hashing import digest64
from fedhist.base.lazy import call
from simulations.runtimes.threads import THREADS

REACHED_SECONDS = 5.0
"""How long something has to listen at a cluster's address."""

REGISTERED_SECONDS = 10.0
"""How long a Ray that starts is looked at for its one machine; Ray itself waits for longer."""

FREE_SECONDS = 20.0
"""How long a CPU of a Ray that somebody else has started may take to become free."""

JOINED_SECONDS = 30.0
"""How long joining a cluster may take."""

AHEAD = 2
"""Tasks per CPU that are under way or wait: enough to keep all busy."""

RETRIES = 20
"""Times that a task is started again where its worker or its machine died."""

HEAP = {
    "RAY_max_direct_call_object_size": f"{1 << 20}",
    "MALLOC_TRIM_THRESHOLD_": f"{64 << 20}",
    "MALLOC_MMAP_THRESHOLD_": f"{32 << 20}",
}
"""What is freed of up to so many bytes stays with a worker: the next block's arrays take its place.
glibc gives arrays of half a megabyte back and asks for them anew, a fifth of a short answer. And a
task's replies come with the word that it has ended, up to a megabyte of them, and not by way of two
machines' stores."""

FOR_OTHERS = ("start_monitor", "start_log_monitor", "start_api_server")
"""What starts Ray's autoscaler, its copying of logs and its dashboard, by the method of Ray's Node.
A Ray of one run in one machine needs none: each is a Python to start, and to be waited for."""

TASK: dict[str, Any] = {"num_cpus": 1}
"""What a task asks of Ray."""


class _Ours:
    """The Ray that this process has started: one thread's at a time, since Ray dies with it."""

    turn = Semaphore()
    thread: int | None = None
    runs = 0
    started_by: int | None = None


def start_ray(workers: int | None, address: str | None) -> bool:
    """Start Ray in this machine, or join a cluster; says whether :func:`stop_ray` is due.

    Waits while another thread of this process runs on a Ray that was started here. Raises
    FedhistError if the cluster cannot be joined, if the Ray that somebody else has started leaves
    no CPU free, and in a process forked from one that has started Ray.
    """
    if _Ours.started_by not in (None, os.getpid()):
        raise FedhistError(
            "this process was forked from one that had started Ray, and cannot start its own: use "
            'the method "spawn", or runtime = "inline"'
        )
    ours = _Ours.thread == get_ident()
    if ours and ray.is_initialized():
        _Ours.runs += 1
        return True
    if _Ours.thread is None and ray.is_initialized():
        _check_free()
        return False
    if not ours:
        _Ours.turn.acquire()
    _Ours.thread = get_ident()
    try:
        _start(workers, address)
    except BaseException:
        _Ours.thread = None
        _Ours.turn.release()
        raise
    _Ours.runs, _Ours.started_by = 1, os.getpid()
    return True


def stop_ray() -> None:
    """End one use of the Ray that :func:`start_ray` has started, and Ray with the last one."""
    _Ours.runs -= 1
    if not _Ours.runs:
        ray.shutdown()
        _Ours.thread = None
        _Ours.turn.release()


def _start(workers: int | None, address: str | None) -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # give a reply's memory back at once, not once a second: the next ones then take its place
    os.environ.setdefault("RAY_free_objects_period_milliseconds", "10")
    # workers that want more memory than there is are started again, but not for ever
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address:
        _reach(address)
        _join(address, quiet | {"runtime_env": {"env_vars": THREADS | HEAP}})
        return
    # what workers run with is no environment of tasks: Ray starts its workers before they are asked
    # for, and would throw those away and start others for tasks with one of their own
    _check_address_space()
    with _inherited(THREADS | HEAP), _lean():
        places = _places()
        try:
            # "local": never a cluster of somebody else's that runs on this machine
            ray.init(address="local", num_cpus=workers, include_dashboard=False, **places, **quiet)
        except Exception as e:  # whatever keeps Ray's own processes from starting
            raise FedhistError(
                f'Ray does not start on this machine: {e} Set runtime = "inline", or see the logs '
                f"in {places.get('_temp_dir', Path(tempfile.gettempdir()) / 'ray')}"
            ) from e


def _check_address_space() -> None:
    """Refuse a limit (ulimit -v) below the machine's memory: Ray maps a third, or aborts."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 0 <= limit < memory:  # RLIM_INFINITY is -1
        raise FedhistError(
            f"this process may map {limit >> 20:,} MiB (ulimit -v), less than the machine's "
            f"{memory >> 20:,} MiB, and Ray then breaks off: raise the limit, or set "
            'runtime = "inline"'
        )


def _places() -> dict[str, str]:
    """Give Ray folders: one for its sockets, and one for objects where /dev/shm takes none.

    The names of sockets may have 107 letters, 66 of them Ray's own.
    """
    shared = os.access("/dev/shm", os.W_OK) or sys.platform != "linux"
    store = {} if shared else {"_plasma_directory": tempfile.gettempdir()}
    if len(os.fsencode(tempfile.gettempdir())) <= 107 - 66:
        return store
    if os.access("/tmp", os.W_OK):
        return store | {"_temp_dir": "/tmp/ray"}
    raise FedhistError(
        f"Ray needs a temporary folder of at most 41 letters, got {tempfile.gettempdir()!r}: set "
        'TMPDIR, or runtime = "inline"'
    )


def _check_free() -> None:
    """Raise FedhistError unless a CPU becomes free; a task would wait for one without end."""
    if ray.get_runtime_context().worker.mode == ray.WORKER_MODE:
        return  # within a task, which lends its own CPU while it waits
    end = time.monotonic() + FREE_SECONDS
    while not _asked(ray.available_resources).get("CPU", 0) >= 1:
        there = int(_asked(ray.cluster_resources).get("CPU", 0))
        if not there or time.monotonic() > end:
            raise FedhistError(
                f"Ray is running in this process with {there} CPUs and none is free: start it with "
                'more, as ray.init(num_cpus=2), end what uses them, or set runtime = "inline"'
            )
        time.sleep(0.1)


def _asked(question: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Ask Ray within some time: in a child that was forked from its driver it never answers."""
    answer: Future[dict[str, float]] = Future()
    Thread(target=lambda: answer.set_result(question()), daemon=True).start()
    try:
        return answer.result(timeout=FREE_SECONDS)
    except TimeoutError:
        raise FedhistError(
            f"the Ray of this process did not answer within {FREE_SECONDS:g} s: was the process "
            'forked from one that had started it? Use the method "spawn", or runtime = "inline"'
        ) from None


@contextmanager
def _inherited(variables: dict[str, str]) -> Iterator[None]:
    """Set what processes that are started meanwhile find in their environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _lean() -> Iterator[None]:
    """Let Ray start what answers, nothing beside it, and go on as soon as it is there.

    Internal to Ray: a test watches it.
    """
    before = {name: getattr(Node, name) for name in FOR_OTHERS}
    ask = GlobalState.get_node

    def get_node(state: GlobalState, node_id: str) -> Any:
        # asked too early, Ray looks again once a second
        end = time.monotonic() + REGISTERED_SECONDS
        while time.monotonic() < end and all(n["NodeID"] != node_id for n in state.node_table()):
            time.sleep(0.02)
        return ask(state, node_id)

    for name in FOR_OTHERS:
        setattr(Node, name, lambda *_, **__: None)
    GlobalState.get_node = get_node
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(Node, name, method)
        GlobalState.get_node = ask


def _reach(address: str) -> None:
    """Raise FedhistError unless something listens at host:port; Ray itself would wait for long."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return  # "auto" and such
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED_SECONDS):
            return
    except OSError as e:
        raise FedhistError(f"no Ray cluster answers at {address!r}: {e}") from e


def _join(address: str, options: dict[str, Any]) -> None:
    """Join a cluster within some time, which Ray itself does not limit."""
    joined: Future[None] = Future()

    def join() -> None:
        try:
            ray.init(address=address, **options)
        except BaseException as e:  # a SystemExit, too
            joined.set_exception(e)
        else:
            joined.set_result(None)

    logging.getLogger("ray").setLevel(logging.ERROR)  # it would warn of the thread
    Thread(target=join, daemon=True).start()
    try:
        joined.result(timeout=JOINED_SECONDS)
    except TimeoutError as e:
        raise FedhistError(
            f"what listens at {address!r} is no Ray cluster, or a broken one: it did not answer "
            f"within {JOINED_SECONDS:g} s"
        ) from e
    except (ConnectionError, ValueError, RuntimeError, SystemExit) as e:
        raise FedhistError(f"no Ray cluster answers at {address!r}: {e}") from e


@contextmanager
def ray_session(workers: int | None = None, address: str | None = None) -> Iterator[None]:
    """Keep Ray up for several grids, and stop it afterwards if this started it."""
    started = start_ray(workers, address)
    try:
        yield
    finally:
        if started:
            stop_ray()


def window(workers: int | None) -> int:
    """Return how many tasks may be under way: some ahead of the CPUs that there are now.

    Fewer workers than CPUs are a limit: no more tasks then run at a time than that.
    """
    cpus = int(ray.cluster_resources().get("CPU", 0))
    return workers if workers is not None and workers < cpus else max(1, AHEAD * cpus)


# -- the machines of a cluster ---------------------------------------------------------------------


def facts_of(plugins: Sequence[str]) -> dict[str, str]:
    """Return versions of packages and digests of plugin files, on the machine that this runs on."""
    facts = {f"the version of {n}": version(n) for n in ("fedhist", "numpy", "numba", "flwr")}
    for name in plugins:
        file = Path(name)
        digest = f"{digest64(file.read_bytes()):016x}" if file.is_file() else "missing"
        facts[f"the plugin {name}"] = digest
    return facts


def check_machines(plugins: Sequence[str], seconds: float = 180.0) -> None:
    """Compare every machine of a cluster with this one, before any work is sent.

    Raises FedhistError if a machine has other versions or plugins, or says nothing in time.
    """
    wanted, asked = facts_of(plugins), {}
    for machine in (m for m in ray.nodes() if m["Alive"] and m["Resources"].get("CPU")):
        there = NodeAffinitySchedulingStrategy(machine["NodeID"], soft=False)
        task = ray.remote(call).options(num_cpus=0, scheduling_strategy=there)
        asked[task.remote(facts_of, plugins)] = machine["NodeManagerAddress"]
    if not asked:
        raise FedhistError("no machine of the Ray cluster has a CPU")
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=seconds)
    if late:
        names = ", ".join(sorted({asked[ref] for ref in late}))
        raise FedhistError(f"no answer within {seconds:g} s from Ray's machines {names}")
    for ref in done:
        try:
            facts = ray.get(ref)
        except ray.exceptions.RayTaskError as e:
            raise FedhistError(
                f"the machine {asked[ref]} of the Ray cluster cannot answer: {e.cause or e}; "
                "fedhist has to be installed there"
            ) from e
        except ray.exceptions.RayError:
            continue  # it is gone: nobody is asked there
        compare(asked[ref], facts, wanted)


def compare(address: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Refuse a machine where something is not as it is here."""
    unlike = [f"{k} is {v} there and {here[k]} here" for k, v in there.items() if v != here[k]]
    if unlike:
        raise FedhistError(f"the machine {address} is unlike this one: {'; '.join(unlike)}")
