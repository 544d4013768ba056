"""Timing in turns, and what a benchmark returns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedhist.base.checks import check_count

Task = Callable[[], object]


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of several measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise; ValueError for no values.

        >>> Spread.of([3.0, 1.0, 2.0])
        Spread(median=2.0, low=1.0, high=3.0)
        """
        if not len(values):
            raise ValueError("there is nothing to summarise: no values")
        return cls(float(np.median(values)), float(min(values)), float(max(values)))


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's table.

    Attributes
    ----------
    what : str
        What was measured.
    unit : str
        "ms", "ns", "x", ...
    spread : Spread
    at_least, at_most : float or None
        The target for the median; at most one of the two. Neither: the line is for information.
    """

    what: str
    unit: str
    spread: Spread
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None where there is none."""
        if self.at_least is not None:
            return self.spread.median >= self.at_least
        if self.at_most is not None:
            return self.spread.median <= self.at_most
        return None


@dataclass(frozen=True)
class Result:
    """What one benchmark found.

    Attributes
    ----------
    name : str
    setting : str
        Sizes, in one sentence.
    rows : tuple of Row
    notes : tuple of str
        How it was counted, and what could not be measured.
    """

    name: str
    setting: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, with whether each target is met."""
        body = asdict(self)
        for row, plain in zip(self.rows, body["rows"], strict=True):
            plain["met"] = row.met
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Result:
        """Read what :meth:`to_json` made."""
        rows = tuple(
            Row(r["what"], r["unit"], Spread(**r["spread"]), r["at_least"], r["at_most"])
            for r in body["rows"]
        )
        return cls(body["name"], body["setting"], rows, tuple(body["notes"]))


def seconds(task: Task, clock: Callable[[], float] = time.perf_counter) -> float:
    """Time one call; garbage of earlier calls is collected before the clock starts."""
    gc.collect()
    started = clock()
    task()
    return clock() - started


def in_turns(
    tasks: Mapping[str, Task],
    turns: int,
    warm: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Time tasks in turns: every task once, then every task again, ...

    Parameters
    ----------
    tasks : mapping of str to callable
    turns : int
    warm : int
        Turns before the first that counts (compiled loops are loaded, caches filled).
    clock : callable
        In seconds; ``time.process_time`` where other programs share the machine.

    Returns
    -------
    dict of str to list of float
        Seconds of each task in each turn.
    """
    check_count("turns", turns)
    found: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(warm + turns):
        for name, task in tasks.items():
            taken = seconds(task, clock)
            if turn >= warm:
                found[name].append(taken)
    return found


def beside_numpy(
    what: str,
    n: int,
    compiled: Task,
    plain: Task,
    turns: int,
    *,
    warm: int = 1,
    ours: str = "compiled",
    at_least: float | None = None,
) -> list[Row]:
    """Time our form of something and NumPy's in turns: nanoseconds per one of n, and the ratio."""
    found = in_turns({"ours": compiled, "NumPy": plain}, turns, warm)
    return [
        Row(what, "ns", scaled(found["ours"], 1e9 / n)),
        Row(f"{what}, NumPy", "ns", scaled(found["NumPy"], 1e9 / n)),
        Row(f"{what}: NumPy / {ours}", "x", ratio(found["NumPy"], found["ours"]), at_least),
    ]


def ratio(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Summarise the ratios of two tasks, turn by turn.

    >>> ratio([2.0, 9.0], [1.0, 3.0])
    Spread(median=2.5, low=2.0, high=3.0)
    """
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def scaled(values: Sequence[float], factor: float) -> Spread:
    """Summarise values in another unit: each times ``factor``."""
    return Spread.of([factor * v for v in values])
