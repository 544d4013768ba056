"""Starting Ray in this machine, or joining a cluster; whether its CPUs are this process's own."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from fedhist.base.errors import FedhistError

REACHED_SECONDS = 20.0
"""How long a cluster's address is tried."""

_own = ""  # where the Ray that this process started last can be reached


def start_ray(workers: int | None, address: str | None) -> bool:
    """Start Ray in this machine, or join a cluster; says whether this process started it.

    Raises
    ------
    FedhistError
        If the cluster cannot be joined.
    """
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # give a part's memory back at once, not once a second: the next part then takes its place
    os.environ.setdefault("RAY_free_objects_period_milliseconds", "10")
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address:
        _reach(address)
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as e:
            raise FedhistError(f"no Ray cluster answers at {address!r}: {e}") from e
        return True
    # "local": never a cluster of somebody else's that runs on this machine
    ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
    global _own
    _own = ray.get_runtime_context().gcs_address
    return True


def _reach(address: str) -> None:
    """Raise FedhistError unless something listens at host:port; Ray itself would wait for long."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return  # "auto" and such
    end = time.monotonic() + REACHED_SECONDS
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5.0):
                return
        except OSError as e:
            if time.monotonic() > end:
                raise FedhistError(
                    f"no Ray cluster answers at {address!r} within {REACHED_SECONDS:g} s: {e}"
                ) from e
        time.sleep(0.5)


@contextmanager
def ray_session(workers: int | None = None, address: str | None = None) -> Iterator[None]:
    """Keep Ray up for several grids, and stop it afterwards if this started it."""
    started = start_ray(workers, address)
    try:
        yield
    finally:
        if started:
            ray.shutdown()


def granted() -> int | None:
    """Count the CPUs that the workers of this process hold, those that still start included.

    None on a cluster that it has joined: others may hold CPUs there.
    """
    if ray.get_runtime_context().gcs_address != _own:
        return None
    free: float = ray.available_resources().get("CPU", 0.0)
    return round(float(ray.cluster_resources().get("CPU", 0.0)) - free)
