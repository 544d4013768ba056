"""Independent tasks on Ray: on this machine, or on a cluster's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from os.path import abspath
from typing import Any, TypeVar

import ray

from fedhist.base.errors import FedhistError
from fedhist.base.lazy import call
from simulations.runtimes.ray_start import TASK, check_machines, ray_session, window

T = TypeVar("T")

ALONE_SECONDS = 30.0
"""How long a Ray may have no CPU at all, its machines being lost, before nobody waits for it."""


class NoMachines(FedhistError):
    """Every machine that tasks could run on is gone."""


def on_ray(
    function: Callable[[T], Any],
    tasks: Sequence[T],
    workers: int | None,
    address: str | None,
    plugins: Sequence[str] = (),
) -> Iterator[tuple[T, Any]]:
    """Run a function on each of some tasks, a few more at a time than there are workers.

    ``function``: of a module, so that workers find it; ``tasks``: its arguments; ``workers``: most
    tasks at a time; default: the CPUs that Ray has; ``address``: join this Ray cluster, whose
    machines are compared with this one before any task, and where they run one; ``plugins``: plugin
    files that the tasks load: the same on all machines. Raises FedhistError if a cluster cannot be
    joined, or has no CPU left, or a machine unlike this one.

    Yields
    ------
    (task, result)
        As they end. The result is the exception, if there was one; a ``RayError`` where the worker
        died twice.
    """
    with ray_session(workers, address):
        if address:
            check_machines([*map(abspath, plugins)])
        remote = ray.remote(call).options(**TASK, max_retries=1)
        waiting, under_way, last = iter(tasks), dict[Any, T](), time.monotonic()
        while True:
            for task in islice(waiting, max(0, window(workers) - len(under_way))):
                under_way[remote.remote(function, task)] = task
            if not under_way:
                return
            ready, _ = ray.wait(list(under_way), timeout=1.0)
            if ready or ray.cluster_resources().get("CPU"):
                last = time.monotonic()
            elif time.monotonic() > last + ALONE_SECONDS:
                raise NoMachines(
                    f"Ray has had no CPU for {ALONE_SECONDS:g} s: are its machines up?"
                )
            for ref in ready:
                task = under_way.pop(ref)
                try:
                    result = ray.get(ref)
                except ray.exceptions.TaskCancelledError:
                    raise KeyboardInterrupt from None  # a terminal's Ctrl-C reaches workers too
                except ray.exceptions.RayTaskError as e:
                    result = e.cause or e
                except ray.exceptions.RayError as e:
                    result = e
                yield task, result
