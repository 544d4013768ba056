"""Timing in turns, and what a benchmark returns."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedhist.base.checks import check_count

Task = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One line: what was measured, in which unit, every value, and the target of the median."""

    what: str
    unit: str
    values: Sequence[float]
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if not len(self.values):
            raise ValueError(f"{self.what}: no values")

    @property
    def median(self) -> float:
        """The value that is judged."""
        return float(np.median(self.values))

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None where there is none."""
        if self.at_least is not None:
            return self.median >= self.at_least
        return None if self.at_most is None else self.median <= self.at_most

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        target = "" if self.at_most is None else f"<= {self.at_most:g}"
        target = target if self.at_least is None else f">= {self.at_least:g}"
        met = {None: "", True: "yes", False: "NO"}[self.met]
        spread = "" if low == high else f"{number(low)}..{number(high)}"
        value = f"{number(self.median)} {self.unit}"
        return f"{self.what:42} {value:>14}  {spread:18} {target:>8} {met}".rstrip()


@dataclass(frozen=True)
class Result:
    """What a benchmark measured: sizes in one sentence, rows, how it was counted."""

    setting: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()


def number(x: float) -> str:
    """Three digits that count.

    >>> number(1234.5), number(12.345), number(0.012345)
    ('1,234', '12.3', '0.0123')
    """
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:#.3g}".rstrip(".")


def seconds(task: Task) -> float:
    """Time one call; garbage of earlier calls is collected before the clock starts."""
    gc.collect()
    started = time.perf_counter()
    task()
    return time.perf_counter() - started


def in_turns(tasks: Mapping[str, Task], turns: int) -> dict[str, list[float]]:
    """Time tasks in turns (A B A B ...), so that another program slows all: seconds of each.

    The turn before the first that counts loads compiled loops and fills caches.
    """
    check_count("turns", turns)
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(1 + turns):
        for name, task in tasks.items():
            spent = seconds(task)
            if turn:
                taken[name].append(spent)
    return taken


def ratio(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Divide two tasks turn by turn.

    >>> ratio([2.0, 9.0], [1.0, 3.0])
    [2.0, 3.0]
    """
    return [a / b for a, b in zip(above, below, strict=True)]


def scaled(values: Sequence[float], factor: float) -> list[float]:
    """Return values in another unit: each times ``factor``."""
    return [factor * v for v in values]


def memory(pid: int | None = None) -> dict[str, int]:
    """Return a process's memory in bytes, from Linux's /proc: "VmRSS", "VmHWM" (its peak), ..."""
    try:
        lines = Path(f"/proc/{pid or os.getpid()}/status").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): 1024 * int(size) for name, size, _ in pairs}
