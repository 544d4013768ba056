"""Processes that were started here, and those that these have started: found, and ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARKER = "FEDHIST_LOOPBACK"
"""Environment variable that every process of one deployment inherits."""
TRIES, POLL_SECONDS = 50, 0.2


def marked_processes(token: str) -> Iterator[int]:
    """Find the processes that inherited a deployment's marker (where there is a /proc)."""
    wanted = f"{MARKER}={token}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            result = wanted in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if result and int(folder.name) != os.getpid():
            yield int(folder.name)


def end_marked(token: str) -> list[int]:
    """Kill the processes that inherited a marker; return those that are left nevertheless."""
    left: list[int] = []
    for _ in range(TRIES):
        left = list(marked_processes(token))
        if not left:
            break
        for pid in left:
            kill(pid)
        time.sleep(POLL_SECONDS)
    return left


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
