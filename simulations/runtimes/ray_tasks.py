"""Independent tasks on Ray: on this machine, or on a cluster's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")


def on_ray(
    function: Callable[[T], Any], tasks: Sequence[T], workers: int | None, address: str | None
) -> Iterator[tuple[T, Any]]:
    """Run a function on each of some tasks, a few more at a time than there are workers.

    Parameters
    ----------
    function : callable
        Of a module, so that workers find it.
    tasks : sequence
        Its arguments.
    workers : int, optional
        Most tasks at a time; default: the CPUs that Ray has.
    address : str, optional
        Join this Ray cluster.

    Yields
    ------
    (task, result)
        As they end. The result is the exception, if there was one; a ``RayError`` where the worker
        died twice.
    """
    import ray

    from simulations.runtimes.ray_start import TASK, ray_session, window

    with ray_session(workers, address):
        remote = ray.remote(function).options(**TASK, max_retries=1)
        waiting, under_way = iter(tasks), dict[Any, T]()
        while True:
            for task in islice(waiting, max(0, window(workers) - len(under_way))):
                under_way[remote.remote(task)] = task
            if not under_way:
                return
            ready, _ = ray.wait(list(under_way), timeout=1.0)
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
