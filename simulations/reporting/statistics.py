"""Student's intervals around means of a few runs, and predictions that they are held against."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy.special import stdtrit

from simulations.reporting.numbers import number
from simulations.reporting.table import Column, Table

NORMAL = 1.96
"""Half the width of a 95 % interval of what is normal, in standard errors."""


def student(n: int, level: float) -> float:
    """Return half the width of the interval of a mean of n values, in standard errors.

    >>> round(student(2, 0.95), 3), round(student(20, 0.99), 3)
    (12.706, 2.861)
    """
    return float(stdtrit(n - 1, (1 + level) / 2))


def half_width(values: Sequence[float], level: float) -> float | None:
    """Return half the width of Student's interval of a mean; None for one value, or an infinity.

    >>> half_width([1.0], 0.95)
    """
    n = len(values)
    if n < 2 or not all(map(math.isfinite, values)):
        return None
    with np.errstate(all="ignore"):  # squares of large values may overflow
        return student(n, level) * float(np.std(values, ddof=1)) / math.sqrt(n)


FAR = 2.0
"""Factor between measurement and theory from which on theory is flagged."""


def far_off(losses: Sequence[float], predicted: float | None, level: float = 0.95) -> bool:
    """Whether theory is more than a factor of two from a mean, and outside of its interval.

    One run has no interval, and is taken as it is.

    >>> far_off([2.1], 1.0), far_off([1.9], 1.0), far_off([0.1, 5.0, 1.9], 1.0), far_off([], 1.0)
    (True, False, False, False)
    """
    if not len(losses) or not predicted:
        return False
    mean, half = float(np.mean(losses)), half_width(losses, level)
    off = not predicted / FAR <= mean <= predicted * FAR
    return off and (half is None or abs(mean - predicted) > half)


LEVEL = 0.99
"""Of the intervals of measured over predicted."""


class Compared(ABC):
    """Losses of runs against a prediction.

    Attributes
    ----------
    losses : tuple of float
        Of the runs that have an estimate.
    """

    losses: tuple[float, ...]

    @property
    @abstractmethod
    def loss(self) -> str:
        """What the losses are."""

    @property
    @abstractmethod
    def predicted(self) -> float:
        """The expected loss."""

    @property
    def measured(self) -> float:
        """Mean loss."""
        return float(np.mean(self.losses)) if len(self.losses) else math.nan

    @property
    def ratio(self) -> float:
        """Measured over predicted error."""
        return self.measured / self.predicted

    @property
    def interval(self) -> tuple[float, float]:
        """Student's 99% interval of the ratio; NaN for one run."""
        half = half_width(self.losses, LEVEL)
        half = math.nan if half is None else half / self.predicted
        return self.ratio - half, self.ratio + half


C = TypeVar("C", bound=Compared)
Read = Mapping[Column | str, Callable[[C], Any]]
"""Columns, and how their values are read from a row."""


def compared_table(rows: Iterable[C], before: Read[C], after: Read[C], *, title: str = "") -> Table:
    """Return the table of rows: prediction and measurement, between columns of the rows' own."""
    read: Read[C] = {
        **before,
        Column("runs", right=True): lambda c: len(c.losses),
        "predicted": lambda c: f"{number(c.predicted)} {c.loss}",
        "measured": lambda c: number(c.measured),
        "measured / predicted": lambda c: "{:.3f} ({:.3f} to {:.3f})".format(c.ratio, *c.interval),
        **after,
    }
    return Table.of(read, [[value(c) for value in read.values()] for c in rows], title=title)
