"""Memory of a process, from Linux's /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def status(pid: int | None = None) -> dict[str, int]:
    """Return a process's memory in bytes: "VmRSS", "VmHWM" (the peak of VmRSS), "RssAnon", ...

    Returns
    -------
    dict of str to int
        Empty where there is no /proc.
    """
    try:
        lines = Path(f"/proc/{pid or os.getpid()}/status").read_text().splitlines()
    except OSError:
        return {}
    sizes = {}
    for line in lines:
        name, _, value = line.partition(":")
        if value.strip().endswith(" kB"):
            sizes[name] = 1024 * int(value.split()[0])
    return sizes


def private(found: dict[str, int]) -> int:
    """Return resident memory without shared memory (Ray's object store), in bytes."""
    return found.get("VmRSS", 0) - found.get("RssShmem", 0)


@contextmanager
def watch_private(every: float = 0.005) -> Iterator[list[int]]:
    """Watch this process's private memory; the list's one entry is the peak so far, in bytes."""
    peak = [private(status())]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(every):
            peak[0] = max(peak[0], private(status()))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def above(peak: int, before: int, data: int) -> float:
    """Return memory above a baseline, as a multiple of the data.

    >>> above(peak=300, before=100, data=200)
    1.0
    """
    return (peak - before) / data
