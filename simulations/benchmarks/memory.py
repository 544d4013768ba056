"""Memory of a process, from Linux's /proc."""

from __future__ import annotations

import os
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


def above(peak: int, before: int, data: int) -> float:
    """Return memory above a baseline, as a multiple of the data.

    >>> above(peak=300, before=100, data=200)
    1.0
    """
    return (peak - before) / data
